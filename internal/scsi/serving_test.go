package scsi_test

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestServing: while a process may not be the array's owner any more it answers BUSY to reads and writes, and reports no
// unit attention condition that its successor would have to report again.
func TestServing(t *testing.T) {
	exec, serves := &block.Virtual{}, true
	tg := scsi.NewTarget(scsi.Options{Name: "iqn.2026-11.org.example:array", Exec: exec, Serving: func() bool { return serves }})
	if err := tg.Map("", 0, tg.AddUnit(scsitest.NewDevice(exec, scsitest.Ready(1, 2048, 512, true)), scsi.UnitOptions{})); err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, exec: exec, tg: tg}
	r.a = r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 1)
	for _, serves = range []bool{false, true, false} {
		for _, op := range []byte{0x28, 0x2A} {
			r.submit(r.a, r.task(fmt.Sprintf("%x", op), 0, scsitest.CDB(op, 0, 1)))
			exec.Run()
		}
	}
	if got, want := fmt.Sprint(r.log), "[28 status 08 2a status 08 28 6/29/00 2a 28 status 08 2a status 08]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
