package array

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// failSyncs makes the next n syncs of NVRAM fail.
func (r *powerRig) failSyncs(n int) {
	r.disk.SetFault(func(op storetest.Op, path string, k int) (int, error) {
		if op == storetest.Sync && path == "/data/nvram" && n > 0 {
			n--
			return 0, syscall.EIO
		}
		return k, nil
	})
}

// TestFailedFlushIsNotBelieved: a flush of NVRAM fails, after which the kernel takes for clean what it could not write. What a later
// SYNCHRONIZE CACHE acknowledges survives a loss of power all the same: in the same process, in the next one, and when the flush of a
// start failed.
func TestFailedFlushIsNotBelieved(t *testing.T) {
	flush := func(r *powerRig) block.Status { return r.wait(0, &block.Request{Op: block.OpFlush}) }
	for name, between := range map[string]func(r *powerRig){
		"the same process": func(*powerRig) {},
		"the next process": func(r *powerRig) { r.reopen() },
		"a start whose first flush fails": func(r *powerRig) {
			image := r.disk.Kill()
			r.files.Close()
			r.disk = image
			r.failSyncs(1)
			r.open()
			r.find()
		},
		"a failing start": func(r *powerRig) {
			image := r.disk.Kill()
			r.files.Close()
			r.disk = image
			r.failSyncs(2) // one is tried again
			if _, _, err := openOn(r.disk, &block.Virtual{}, r.rnd, r.opt); err == nil {
				t.Error("it starts although NVRAM cannot be flushed")
			}
			r.open()
			r.find()
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := testkit.Seed(t)
			for s := base; s < base+20; s++ {
				r := newPowerRig(t, s, false)
				if r.put(0, 0, 300, 1) != block.OK || flush(r) != block.OK || r.put(0, 100, 300, 2) != block.OK {
					t.Fatal("nothing has failed yet")
				}
				r.failSyncs(1 << 30)
				if got := flush(r); got != block.Hardware {
					t.Fatalf("a flush that fails ends %v", got)
				}
				r.failSyncs(0)
				between(r)
				if got := flush(r); got != block.OK {
					t.Fatalf("a flush that works ends %v", got)
				}
				r.losePower()
				r.find()
				if !r.holds(0, 100, 300, 2) {
					t.Fatalf("-seed %d: what was flushed is lost", s)
				}
				if p := r.a.Check(true).Problems; len(p) > 0 {
					t.Fatalf("-seed %d: %s", s, p[0])
				}
				r.files.Close()
			}
		})
	}
}

// TestUnknownBootCountsAsAnother: where nobody can tell one start of the machine from another, each start may have been one.
func TestUnknownBootCountsAsAnother(t *testing.T) {
	base := testkit.Seed(t)
	for s := base; s < base+40; s++ {
		r := newPowerRig(t, s, false)
		r.disk.HideBoot()
		r.steps(200)
		r.disk.Cut()
		r.faulty = true // commands that were cut off count as done or not
		r.restart(fmt.Sprintf("-seed %d", s))
		if !r.a.Recovery().PowerLost {
			t.Fatal("the machine's start is not known, and counts as the same")
		}
		r.files.Close()
	}
}

// TestShrunkVolumeIsClipped shrinks a volume, whose map then needs fewer levels, and kills the array before a checkpoint: what
// was cut off does not come back when the volume grows again, and what was written to its rest is there.
func TestShrunkVolumeIsClipped(t *testing.T) {
	for _, checkpoint := range []bool{false, true} {
		for _, sizes := range [][2]uint64{{40_000, 100}, {9_000_000, 100}, {9_000_000, 33_000}} {
			t.Run(fmt.Sprint(sizes, checkpoint), func(t *testing.T) {
				r := newRig(t, Options{}, false)
				r.pool("p", PoolSpec{}, 64<<20)
				v := r.volume("v", "p", sizes[0]*512, true)
				data := make([]byte, 300*512)
				for s := range uint64(300) {
					fillStamp(data[s*512:(s+1)*512], 7<<20|s)
				}
				at := sizes[1] - 50
				if checkpoint {
					mustOK(t, r.do(v, write(at+40, 300)))
					r.a.checkpoint(true)
					r.clock.Run()
				}
				mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(at, 300), Data: [][]byte{data}}))
				// Zeros from within what stays to far behind it.
				mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(at+10, sizes[0]-at-10)}))
				mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(at+20, 200), Data: [][]byte{data[:200*512]}}))
				resize := func(n uint64) {
					t.Helper()
					ended := false
					r.a.Resize(v, n, func(err error) {
						if err != nil {
							t.Fatal(err)
						}
						ended = true
					})
					for !ended && r.clock.Step() {
					}
				}
				resize(sizes[1])
				r.crash()
				r.check()
				v = r.a.Volume("v")
				resize(sizes[0])
				got := make([]byte, 300*512)
				mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(at, 300), Data: [][]byte{got}}))
				want := make([]byte, 300*512)
				copy(want, data[:10*512])
				copy(want[20*512:50*512], data)
				for s := range 300 {
					if string(got[s*512:(s+1)*512]) != string(want[s*512:(s+1)*512]) {
						t.Fatalf("sector %d holds %x, not %x", at+uint64(s), le.Uint64(got[s*512:]), le.Uint64(want[s*512:]))
					}
				}
				r.check()
			})
		}
	}
}
