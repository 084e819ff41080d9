package scsi_test

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// direct is an initiator that submits on a nexus in virtual time.
type direct struct {
	t    testing.TB
	exec *block.Virtual
	n    *scsi.Nexus
}

func (d *direct) Do(c scsitest.Command) scsitest.Result {
	d.t.Helper()
	done := 0
	lun := c.LUN
	if lun > 255 {
		lun |= 0x4000
	}
	task := &scsi.Task{LUN: lun << 48, CDB: c.CDB, MaxIn: c.In, Bufs: heap{}, Done: func(*scsi.Task) { done++ }}
	for out := c.Out; len(out) > 0; { // in pieces, as the wire brings it
		n := min(len(out), 700)
		task.DataOut = append(task.DataOut, out[:n])
		out = out[n:]
	}
	d.n.Submit([]*scsi.Task{task})
	if done != 0 {
		d.t.Fatal("Done from inside Submit")
	}
	// Not until nothing happens any more: what lasts would have ended by then.
	for range 10_000 {
		if d.exec.RunUntil(d.exec.Now() + 1_000_000); done > 0 {
			break
		}
	}
	if done != 1 {
		d.t.Fatalf("cdb %x: Done called %d times", c.CDB, done)
	}
	in := bytes.Join(task.DataIn, nil)
	if len(in) > c.In {
		d.t.Fatalf("cdb %x: %d bytes for a buffer of %d", c.CDB, len(in), c.In)
	}
	r := scsitest.Result{Status: task.Status, Sense: task.Sense, In: in}
	switch {
	case task.OutTotal > 0 || len(c.Out) > 0:
		r.Residual = task.OutTotal - len(c.Out)
	case task.InTotal > 0 || c.In > 0:
		r.Residual = task.InTotal - c.In
	}
	return r
}

func (d *direct) Reset(lun uint64) {
	answered := false
	d.n.Manage(scsi.LogicalUnitReset, lun<<48, 0, func(r scsi.TMFResponse) { answered = r == scsi.TMFComplete })
	if answered {
		d.t.Fatal("the answer came from inside Manage")
	}
	d.exec.Run()
	if !answered {
		d.t.Fatal("LOGICAL UNIT RESET was not completed")
	}
}

func (d *direct) Close() {
	closed := false
	d.n.Close(func() { closed = true })
	d.exec.Run()
	if !closed {
		d.t.Fatal("the nexus did not close")
	}
}

func TestSuite(t *testing.T) {
	scsitest.Run(t, func(t *testing.T) func(string) scsitest.Initiator {
		exec := &block.Virtual{}
		tg, devs := scsitest.NewTarget(exec)
		t.Cleanup(func() {
			tg.RevokeTokens()
			for _, d := range devs {
				if d.Refs != 0 {
					t.Errorf("%s: %d references are not released", d.Info().Name, d.Refs)
				}
			}
		})
		return func(name string) scsitest.Initiator {
			return &direct{t, exec, tg.OpenNexus(name, name+",i,0x00023d000001", 1)}
		}
	})
}
