package array

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
)

// failing makes writes and syncs of what is below these folders fail.
func (r *powerRig) failing(folders ...string) {
	r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
		for _, f := range folders {
			if op != storetest.Read && strings.HasPrefix(path, f) {
				return 0, syscall.EIO
			}
		}
		return n, nil
	})
}

// put writes sectors with a stamp and returns how that ended.
func (r *powerRig) put(vol int, at, n uint64, stamp uint64) block.Status {
	buf := make([]byte, n*512)
	for s := range n {
		fillStamp(buf[s*512:(s+1)*512], stamp<<20|s)
	}
	return r.wait(vol, &block.Request{Op: block.OpWrite, Range: rng(at, n), Data: [][]byte{buf}})
}

func (r *powerRig) wait(vol int, q *block.Request) block.Status {
	ended := false
	q.Done = func(*block.Request) { ended = true }
	r.vols[vol].Submit([]*block.Request{q})
	for limit := r.clock.Now() + 120e9; !ended && r.clock.Now() < limit && r.clock.Step(); {
	}
	if !ended {
		r.t.Fatalf("%v of %v does not end", q.Op, q.Range)
	}
	return q.Status
}

// holds tells whether sectors have a stamp.
func (r *powerRig) holds(vol int, at, n uint64, stamp uint64) bool {
	got, want := make([]byte, n*512), make([]byte, 512)
	if s := r.wait(vol, &block.Request{Op: block.OpRead, Range: rng(at, n), Data: [][]byte{got}}); s != block.OK {
		r.t.Errorf("reading %d+%d ended %v", at, n, s)
		return false
	}
	for s := range n {
		if fillStamp(want, stamp<<20|s); string(got[s*512:(s+1)*512]) != string(want) {
			return false
		}
	}
	return true
}

// commit makes a checkpoint.
func (r *powerRig) commit() {
	r.a.checkpoint(true)
	r.clock.RunUntil(r.clock.Now() + 2e9)
}

// reopen starts the array anew on what the death of the process left.
func (r *powerRig) reopen() {
	r.openOn(r.disk.Kill())
	r.find()
}

// losePower starts the array anew on what a loss of power leaves.
func (r *powerRig) losePower() { r.openOn(r.disk.Cut()) }

// openOn starts the array anew on what is left of its disk.
func (r *powerRig) openOn(image *storetest.Disk) {
	r.files.Close()
	r.disk = image
	r.open()
}

// TestFailingCopyOfMetadata: the disk under one copy fails, in any of them. Nobody notices, and the next start makes it anew.
func TestFailingCopyOfMetadata(t *testing.T) {
	for i, folder := range []string{"/data/meta/", "/data/meta.copy/"} {
		t.Run(folder, func(t *testing.T) {
			r := newPowerRig(t, uint64(i+1), false)
			r.failing(folder)
			for n := range uint64(20) {
				if s := r.put(0, n*100, 100, n+1); s != block.OK {
					t.Fatalf("write %d ended %v", n, s)
				}
				r.commit()
			}
			made := false
			r.a.CreateVolume(VolumeSpec{Name: "late", Pool: "a", Sectors: 100, Thin: true}, func(_ *Volume, err error) {
				made = true
				r.must(nil, err)
			})
			r.clock.RunUntil(r.clock.Now() + 1e9)
			if rep := r.a.Check(true); !made || len(rep.Problems) > 0 {
				t.Errorf("a volume was made: %v; check: %v", made, rep.Problems)
			}
			r.reopen()
			if r.files.Renewed() != 1 || r.a.Volume("late") == nil {
				t.Errorf("%d copies were made anew, the last volume is there: %v", r.files.Renewed(), r.a.Volume("late") != nil)
			}
			if lines := r.a.CheckCopies(); len(lines) > 0 {
				t.Error(lines)
			}
			for n := range uint64(20) {
				if !r.holds(0, n*100, 100, n+1) {
					t.Errorf("what write %d wrote is lost", n)
				}
			}
			r.files.Close()
		})
	}
}

// unreadable is a disk of which the files of a folder cannot be opened.
type unreadable struct {
	*storetest.Disk
	folder string
}

func (d unreadable) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	if strings.HasPrefix(name, d.folder) {
		return nil, syscall.EIO
	}
	return d.Disk.Open(name, o...)
}

// TestCopyThatWasLeftBehindIsNotTaken: the disk under one copy fails, a change is acknowledged, and the power goes. A start
// that cannot read the other copy refuses; one that can has the change.
func TestCopyThatWasLeftBehindIsNotTaken(t *testing.T) {
	for seed := range uint64(12) {
		folders := []string{"/data/meta/", "/data/meta.copy/"}
		r := newPowerRig(t, seed+1, false)
		r.failing(folders[seed%2])
		made := false
		r.a.CreateVolume(VolumeSpec{Name: "late", Pool: "a", Sectors: 100, Thin: true}, func(_ *Volume, err error) {
			made = true
			r.must(nil, err)
		})
		for !made && r.clock.Step() {
		}
		r.files.Close()
		r.disk = r.disk.Cut()
		if a, files, err := openOn(unreadable{r.disk, folders[1-seed%2]}, r.clock, r.rnd, r.opt); err == nil {
			t.Errorf("seed %d: it starts from the copy that was left behind; the change is there: %v", seed, a.Volume("late") != nil)
			files.Close()
		}
		if r.open(); r.a.Volume("late") == nil {
			t.Errorf("seed %d: the change is lost", seed)
		}
		r.files.Close()
	}
}

// TestFailingMetadata: no copy can be written any more. Changes end with an error, what was acknowledged stays
// readable, and the next start has all of it.
func TestFailingMetadata(t *testing.T) {
	r := newPowerRig(t, 3, true)
	if s := r.put(0, 0, 100, 1); s != block.OK {
		t.Fatal(s)
	}
	r.failing("/data/meta")
	acked := map[uint64]bool{0: true}
	refused := 0
	for n := uint64(1); n < 25; n++ {
		switch s := r.put(0, n*100, 100, n+1); s {
		case block.OK:
			acked[n] = true
		case block.Hardware:
			refused++
		default:
			t.Errorf("write %d ended %v", n, s)
		}
		if n == 3 {
			r.commit()
		}
	}
	if len(acked) < 4 || refused == 0 {
		t.Errorf("%d writes were acknowledged, %d refused", len(acked), refused)
	}
	if rep := r.a.Check(true); len(rep.Problems) == 0 {
		t.Error("check says that all is well")
	}
	for start := range 2 {
		for n := range acked {
			if !r.holds(0, n*100, 100, n+1) {
				t.Errorf("start %d: what write %d wrote is lost", start, n)
			}
		}
		r.reopen() // the fault is gone with the old disk
	}
	if s := r.put(0, 0, 100, 99); s != block.OK || !r.holds(0, 0, 100, 99) {
		t.Errorf("after the disk was mended a write ends %v", s)
	}
	r.files.Close()
}

// TestLostCopyOfMetadata: a folder of either copy may be removed, or be from another time.
func TestLostCopyOfMetadata(t *testing.T) {
	for i, folder := range []string{"/data/meta", "/data/meta.copy"} {
		t.Run(fmt.Sprint(folder), func(t *testing.T) {
			r := newPowerRig(t, uint64(i+1), false)
			for n := range uint64(10) {
				r.put(2, n*100, 100, n+1)
				r.commit()
			}
			image := r.disk.Kill()
			r.files.Close()
			if err := image.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			r.disk = image
			r.open()
			r.find()
			for n := range uint64(10) {
				if !r.holds(2, n*100, 100, n+1) {
					t.Errorf("what write %d wrote is lost", n)
				}
			}
			if lines := r.a.CheckCopies(); len(lines) > 0 {
				t.Error(lines)
			}
			r.files.Close()
		})
	}
}

// TestStartOverFailingMetadata: a write or a sync of one copy, or of either, fails while the array starts. It starts with
// all that there was.
func TestStartOverFailingMetadata(t *testing.T) {
	failed := 0
	for i, folder := range []string{"/data/meta.copy/", "/data/meta/", "/data/meta"} {
		r := newPowerRig(t, uint64(i+1), false)
		for n := range uint64(5) {
			r.put(2, n*100, 100, n+1)
			r.commit()
		}
		for nth := range 30 {
			r.disk = r.disk.Kill()
			r.files.Close()
			left := nth
			r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
				if op != storetest.Read && strings.HasPrefix(path, folder) {
					if left--; left == -1 {
						return 0, syscall.EIO
					}
				}
				return n, nil
			})
			r.clock = &block.Virtual{}
			var err error
			r.a, r.files, err = openOn(r.disk, r.clock, r.rnd, r.opt)
			r.disk.SetFault(nil)
			if err != nil {
				t.Fatalf("%s, operation %d: %v", folder, nth, err)
			}
			if left < 0 {
				failed++
			}
			r.find()
			for n := range uint64(5) {
				if !r.holds(2, n*100, 100, n+1) {
					t.Fatalf("%s, operation %d: what write %d wrote is lost", folder, nth, n)
				}
			}
		}
		r.files.Close()
	}
	if failed < 60 {
		t.Errorf("something failed in %d starts alone", failed)
	}
}
