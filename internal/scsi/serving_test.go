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

// TestStale: a task that waits behind an ORDERED one is asked when it begins whether it is too old by then.
func TestStale(t *testing.T) {
	exec, stale := &block.Virtual{}, false
	tg := scsi.NewTarget(scsi.Options{Name: "iqn.2026-11.org.example:array", Exec: exec})
	d := scsitest.NewDevice(exec, scsitest.Ready(1, 2048, 512, true))
	if err := tg.Map("", 0, tg.AddUnit(d, scsi.UnitOptions{})); err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, exec: exec, tg: tg}
	r.a = r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 1)
	r.submit(r.a, r.task("attention", 0, make([]byte, 6)))
	exec.Run()
	d.Hold = true
	first := r.task("ordered", 0, scsitest.CDB(0x28, 0, 1))
	first.Attr = scsi.AttrOrdered
	r.submit(r.a, first)
	write := r.task("write", 0, scsitest.CDB(0x2A, 0, 1))
	write.DataOut, write.Stale = [][]byte{make([]byte, 512)}, func(*scsi.Task) bool { return stale }
	r.submit(r.a, write)
	exec.Run()
	d.Hold, stale = false, true
	d.Release(1)
	exec.Run()
	if got, want := fmt.Sprint(r.log[1:]), "[ordered write status 08]"; got != want || d.Seen[block.OpWrite] != 0 {
		t.Errorf("got %s and %d writes, want %s and none", got, d.Seen[block.OpWrite], want)
	}
}

// TestServingOfNoUnit: what is said of a LUN without a unit is said of the array, too: its owner may have made one there
// meanwhile. So is that a unit was removed while a command was delayed.
func TestServingOfNoUnit(t *testing.T) {
	exec, serves := &block.Virtual{}, true
	tg := scsi.NewTarget(scsi.Options{Name: "iqn.2026-11.org.example:array", Exec: exec, Serving: func() bool { return serves },
		Delay: func(*scsi.Task) int64 { return 1000 }})
	u := tg.AddUnit(scsitest.NewDevice(exec, scsitest.Ready(1, 2048, 512, true)), scsi.UnitOptions{})
	if err := tg.Map("", 0, u); err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, exec: exec, tg: tg}
	r.a = r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 1)
	for _, serves = range []bool{false, true} {
		for name, cdb := range map[string][]byte{"read": scsitest.CDB(0x28, 0, 1), "inquiry": {0x12, 0, 0, 0, 96, 0}} {
			r.submit(r.a, r.task(name, 7, cdb))
			exec.Run()
			busy := len(r.log) == 1 && r.log[0] == name+" status 08"
			if busy == serves || len(r.log) != 1 {
				t.Errorf("serving %v, a LUN without a unit answers %v", serves, r.log)
			}
			r.log = nil
		}
	}
	serves = false
	r.submit(r.a, r.task("read", 0, scsitest.CDB(0x28, 0, 1)))
	tg.RemoveUnit(u)
	exec.Run()
	if got := fmt.Sprint(r.log); got != "[read status 08]" {
		t.Errorf("a delayed command, whose unit was removed, answers %s", got)
	}
}
