package handlers

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// endsWith ends all commands with a status, in memory that earlier commands have used.
type endsWith struct {
	unit   *unit
	status byte
}

func (endsWith) Close() {}

func (h endsWith) Serve(batch []*tcmu.Command) {
	for _, c := range batch {
		for _, d := range c.Data {
			copy(d, bytes.Repeat([]byte("S"), len(d)))
		}
		x := &command{cmd: c, unit: h.unit}
		x.task.Status = h.status
		x.finish()
	}
}

// TestStatusBringsNoData: a READ that ends with a status other than GOOD hands out nothing of what the ring's
// memory held before.
func TestStatusBringsNoData(t *testing.T) {
	for _, status := range []byte{scsi.StatusTaskAborted, scsi.StatusBusy, scsi.StatusTaskSetFull, scsi.StatusCheckCondition, scsi.StatusReservationConflict} {
		k := tcmutest.New(tcmutest.Options{})
		d, err := tcmu.Attach(k, tcmu.Info{})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = d.Serve(endsWith{&unit{}, status})
		}()
		call, err := k.Send(cdb10(0x28, 0, 8), nil, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if r := call.Wait(); r.Status != status || bytes.Contains(r.Data, []byte("S")) {
			t.Errorf("status %#x, with bytes of earlier commands: %v", r.Status, bytes.Contains(r.Data, []byte("S")))
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		<-served
	}
}
