package array

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
)

// TestMissingMdisk: the files of an mdisk are not there at a start, as where its disk is not mounted. The start is refused, and says
// which and why; it makes no empty ones, of which hosts would read zeros. With the files as they were it has all its data.
func TestMissingMdisk(t *testing.T) {
	for _, lost := range [][]string{{"b.m.img", "b.m.sum"}, {"b.m.img"}} {
		r := newPowerRig(t, 1, false)
		if s := r.put(2, 0, 100, 7); s != block.OK {
			t.Fatal(s)
		}
		drained := false
		r.a.Drain(func() { drained = true })
		for !drained && r.clock.Step() {
		}
		r.clock.RunUntil(r.clock.Now() + 1e9)
		r.losePower()
		there := r.disk.Kill()
		r.files.Close()
		for _, name := range lost {
			if err := r.disk.Remove("/data/mdisk/" + name); err != nil {
				t.Fatal(err)
			}
		}
		open := func(d *storetest.Disk) error {
			var err error
			r.disk, r.clock = d, &block.Virtual{}
			r.a, r.files, err = openOn(r.disk, r.clock, rand.New(rand.NewPCG(1, 1)), r.opt)
			return err
		}
		for range 2 {
			err := open(r.disk)
			if err == nil {
				t.Fatalf("without %v it starts, and reads what was written: %v", lost, r.sees(2, 100, 7))
			}
			if !strings.Contains(err.Error(), "b.m.img") || !strings.Contains(err.Error(), "mount") {
				t.Errorf("without %v it says: %v", lost, err)
			}
		}
		if got := fmt.Sprint(r.mdisks()); strings.Contains(got, "b.m") != (len(lost) == 1) {
			t.Errorf("the store has %v", got)
		}
		if err := open(there); err != nil || !r.sees(2, 100, 7) {
			t.Errorf("with what was lost it starts %v, and has not what was written", err)
		}
		r.files.Close()
	}
}

// sees reports whether the first sectors of a volume hold what put has written.
func (r *powerRig) sees(vol int, n, seed uint64) bool {
	r.find()
	return r.holds(vol, 0, n, seed)
}
