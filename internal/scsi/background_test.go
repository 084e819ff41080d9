package scsi_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// issue submits a command and does not wait for its end.
func issue(n *scsi.Nexus, cdb, out []byte) *scsi.Task {
	t := &scsi.Task{CDB: cdb, MaxIn: 512, Bufs: heap{}, Done: func(t *scsi.Task) { t.Ctx = true }}
	if out != nil {
		t.DataOut = [][]byte{out}
	}
	n.Submit([]*scsi.Task{t})
	return t
}

// code returns status and sense of a task that has ended; -1 of one that has not.
func code(t *scsi.Task) int {
	if t.Ctx == nil {
		return -1
	}
	k, a, q := scsitest.SenseCode(t.Sense)
	return int(t.Status)<<24 | int(k)<<16 | int(a)<<8 | int(q)
}

var (
	tur       = make([]byte, 6)
	overwrite = []byte{0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0}
	fives     = []byte{2, 0, 0, 1, 0x55} // two passes of 55h
)

// A SANITIZE outlives its task, resets and nexuses; while it runs the unit is not
// ready, and says how far it is.
func TestSanitizeGoesOn(t *testing.T) {
	r := newRig(t)
	d := r.devs[scsitest.Thin]
	d.Hold = true
	task := issue(r.a, overwrite, fives)
	want := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %08x, want %08x", what, got, want)
		}
	}
	soon := func() { r.exec.RunUntil(r.exec.Now() + 1_000_000) }
	soon()
	want("the command", code(task), -1)
	for _, c := range [][]byte{tur, scsitest.CDB(0x28, 0, 1), {0x1B, 0, 0, 0, 1, 0}, overwrite} {
		x := issue(r.b, c, fives)
		soon()
		want("other commands", code(x), 0x0202041B)
	}
	for _, c := range [][]byte{{0x12, 0, 0, 0, 96, 0}, {0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, {0x03, 0, 0, 0, 18, 0}} {
		x := issue(r.b, c, nil)
		soon()
		want("commands that pass", code(x), 0)
	}
	r.a.Manage(scsi.LogicalUnitReset, 0, 0, func(scsi.TMFResponse) {})
	soon()
	if !task.Aborted {
		t.Error("the command was not aborted")
	}
	r.a.Close(func() {})
	d.Release(d.Waiting())
	soon()
	issue(r.b, tur, nil) // the reset
	soon()
	x := issue(r.b, tur, nil)
	soon()
	want("after reset and logout", code(x), 0x0202041B)
	if p := int(x.Sense[16])<<8 | int(x.Sense[17]); x.Sense[15] != 0x80 || p != 65535/2 {
		t.Errorf("progress % x, want half", x.Sense[15:18])
	}
	if now := r.exec.Now(); now > 20_000_000 {
		t.Fatalf("it is %d: later than planned", now)
	}
	r.exec.RunUntil(100_000_000)
	d.Release(d.Waiting())
	soon()
	want("before it is flushed", code(turned(r)), 0x0202041B)
	d.Release(d.Waiting())
	soon()
	want("afterwards", code(turned(r)), 0)
	if !bytes.Equal(d.Data, bytes.Repeat([]byte{0x55}, len(d.Data))) {
		t.Error("the medium is not overwritten")
	}
}

func turned(r *rig) *scsi.Task {
	x := issue(r.b, tur, nil)
	r.exec.RunUntil(r.exec.Now() + 1_000_000)
	return x
}

// What fails leaves the unit failed until another SANITIZE succeeds, or EXIT
// FAILURE MODE where that is allowed.
func TestSanitizeFails(t *testing.T) {
	r := newRig(t)
	d := r.devs[scsitest.Thin]
	broken := func(*block.Request) block.Status { return block.MediumWrite }
	do := func(cdb, out []byte) int {
		x := issue(r.a, cdb, out)
		r.exec.RunUntil(r.exec.Now() + 200_000_000)
		return code(x)
	}
	for i, c := range []struct {
		what     string
		fault    bool
		cdb, out []byte
		want     int
	}{
		{"fails", true, overwrite, fives, 0x02033103},
		{"is failed", false, tur, nil, 0x02033103},
		{"no exit without AUSE", false, []byte{0x48, 0x1F, 0, 0, 0, 0, 0, 0, 0, 0}, nil, 0x02052400},
		{"no way out by FORMAT UNIT", false, []byte{4, 0, 0, 0, 0, 0}, nil, 0x02033103},
		{"fails with AUSE", true, []byte{0x48, 0x22, 0, 0, 0, 0, 0, 0, 0, 0}, nil, 0x02033103},
		{"EXIT FAILURE MODE", false, []byte{0x48, 0x1F, 0, 0, 0, 0, 0, 0, 0, 0}, nil, 0},
		{"is ready", false, tur, nil, 0},
		{"fails at once with IMMED", true, []byte{0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0}, nil, 0},
		{"is failed again", false, tur, nil, 0x02033103},
		{"succeeds", false, []byte{0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0}, nil, 0},
		{"is ready again", false, tur, nil, 0},
		{"FORMAT UNIT fails", true, []byte{4, 0, 0, 0, 0, 0}, nil, 0x02033101},
		{"is not formatted", false, tur, nil, 0x02033100},
		{"FORMAT UNIT", false, []byte{4, 0, 0, 0, 0, 0}, nil, 0},
		{"is ready at last", false, tur, nil, 0},
	} {
		d.Fault = nil
		if c.fault {
			d.Fault = broken
		}
		if got := do(c.cdb, c.out); got != c.want {
			t.Fatalf("%d %s: %08x, want %08x", i, c.what, got, c.want)
		}
	}
}

// Commands that run when SANITIZE comes end before it begins.
func TestSanitizeWaitsForWrites(t *testing.T) {
	r := newRig(t)
	d := r.devs[scsitest.Thin]
	d.Hold = true
	issue(r.b, scsitest.CDB(0x2A, 0, 1), bytes.Repeat([]byte{1}, 512))
	issue(r.a, []byte{0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0}, nil)
	r.exec.RunUntil(1_000_000)
	if d.Waiting() != 1 {
		t.Fatalf("%d requests are with the device, want the write alone", d.Waiting())
	}
	for d.Waiting() > 0 {
		d.Release(1)
		r.exec.RunUntil(r.exec.Now() + 1_000_000)
	}
	if d.Data[0] != 0 {
		t.Error("the write came after the erasure")
	}
	if d.Seen[block.OpUnmap] != 1 {
		t.Errorf("%d unmaps", d.Seen[block.OpUnmap])
	}
}

// TestEarlyAnswerIsKept: a SANITIZE with IMMED=1 is answered when the unit's state says that there is
// one: it goes on after a loss of power, whenever that comes.
func TestEarlyAnswerIsKept(t *testing.T) {
	for _, fail := range []error{nil, errors.New("the disk is broken")} {
		exec := &block.Virtual{}
		k := &keeper{exec: exec, fail: fail}
		dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
		r := life(t, k, dev)
		turned(r)
		dev.Hold = true
		cdb := bytes.Clone(overwrite)
		cdb[1] |= 0x80
		x := issue(r.a, cdb, fives)
		for code(x) < 0 && exec.Step() {
		}
		if fail != nil {
			if code(x) != 0x02044400 {
				t.Errorf("what cannot be kept ended %08x", code(x))
			}
			continue
		}
		if code(x) != 0 {
			t.Fatalf("it ended %08x", code(x))
		}
		r = life(t, k, dev) // the power was lost at once
		for range 2 {
			x = turned(r)
		}
		if code(x) != 0x0202041B {
			t.Errorf("after its answer and a loss of power the unit says %08x", code(x))
		}
	}
}

// TestEndOfAnErasureIsKept: when a SANITIZE has ended, and the unit is ready, no start erases it once
// more, for hosts write to it. Where that cannot be kept, the erasure has failed and nobody writes.
func TestEndOfAnErasureIsKept(t *testing.T) {
	for _, fail := range []error{nil, errors.New("the disk is broken")} {
		exec := &block.Virtual{}
		k := &keeper{exec: exec}
		dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
		r := life(t, k, dev)
		turned(r)
		x := issue(r.a, overwrite, fives)
		exec.RunUntil(exec.Now() + 10_000) // it is kept that it has begun
		k.fail = fail
		for code(x) < 0 && exec.Step() {
		}
		if fail != nil {
			if code(x) == 0 || code(turned(r)) == 0 {
				t.Errorf("an end that cannot be kept: %08x, and then %08x", code(x), code(turned(r)))
			}
			continue
		}
		if code(x) != 0 {
			t.Fatalf("it ended %08x", code(x))
		}
		if state, err := scsi.ParseUnitState(k.state); err != nil || bytes.Contains(k.state, []byte("rasing")) {
			t.Errorf("when it has ended a start finds %s (%+v, %v)", k.state, state, err)
		}
	}
}
