package scsi_test

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestDelay lets the front end take its time: commands are carried out late, count
// as arrived, and can be aborted; their unit may go away meanwhile.
func TestDelay(t *testing.T) {
	exec := &block.Virtual{}
	delay := int64(0)
	tg := scsi.NewTarget(scsi.Options{Name: "iqn.2026-11.org.example:array", Exec: exec, Delay: func(*scsi.Task) int64 { return delay }})
	d := scsitest.NewDevice(exec, scsitest.Ready(1, 2048, 512, true))
	u := tg.AddUnit(d, scsi.UnitOptions{})
	if err := tg.Map("", 0, u); err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, exec: exec, tg: tg}
	r.a = r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 1)
	for range 3 {
		r.submit(r.a, r.task("tur", 0, make([]byte, 6)))
		exec.Run()
	}
	write := func(name string, tag uint64) *scsi.Task {
		k := r.task(name, 0, scsitest.CDB(0x2A, 0, 1))
		k.Tag = tag
		return k
	}
	r.log, delay = nil, 5e6
	again := write("w1", 1)
	r.submit(r.a, again)
	exec.RunUntil(exec.Now() + 4e6)
	if len(r.log) != 0 {
		t.Fatalf("ended before the delay was over: %v", r.log)
	}
	exec.Run()
	r.submit(r.a, again, write("w2", 2)) // a task is used again
	r.manage(r.a, scsi.AbortTask, 0, 2)
	exec.Run()
	r.submit(r.a, write("w3", 3))
	tg.RemoveUnit(u)
	exec.Run()
	if got, want := fmt.Sprint(r.log), "[w1 w1 w2 aborted tmf 0 w3 5/25/00]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
