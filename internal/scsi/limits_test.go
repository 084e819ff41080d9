package scsi_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestManyRegistrations: a unit keeps 1,024 registrations and refuses the next; whoever leaves
// makes room.
func TestManyRegistrations(t *testing.T) {
	r := newRig(t)
	register := func(port int, key uint64) string {
		name := fmt.Sprintf("iqn.2026-11.org.example:many%d", port)
		n := r.tg.OpenNexus(name, name+",i,0x1", 1)
		r.submit(n, r.task("tur", scsitest.Thin, make([]byte, 6)))
		r.exec.Run()
		r.log = nil
		list := make([]byte, 24)
		binary.BigEndian.PutUint64(list[8:], key)
		k := r.task("register", scsitest.Thin, []byte{0x5F, 6, 0, 0, 0, 0, 0, 0, 24, 0})
		k.DataOut = [][]byte{list}
		r.submit(n, k)
		r.exec.Run()
		n.Close(func() {})
		r.exec.Run()
		return r.log[0]
	}
	for i := range 1024 {
		if got := register(i, 1); got != "register" {
			t.Fatalf("registration %d: %s", i, got)
		}
	}
	if got := register(1024, 1); got != "register 5/55/04" {
		t.Errorf("one more: %s", got)
	}
	if got := register(7, 0); got != "register" {
		t.Errorf("leaving: %s", got)
	}
	if got := register(1024, 1); got != "register" {
		t.Errorf("in its place: %s", got)
	}
}
