// Starts that try a second copy of the metadata: what the first try has opened, and what either says.

package array

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/storetest"
)

// openMdisks counts the descriptors of files of mdisks in a folder, removed ones included.
func openMdisks(t *testing.T, dir string) (n int) {
	t.Helper()
	list, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if name, err := os.Readlink(p); err == nil && strings.HasPrefix(name, filepath.Join(dir, "mdisk")) {
			n++
		}
	}
	return n
}

// TestSecondTryOfAStart: a copy of the metadata, from which a start opens its pools, turns out to lack an entry. The start
// goes on with the other copy; it does not wait for locks of its own, and a pool that is deleted afterwards gives its room back.
func TestSecondTryOfAStart(t *testing.T) {
	for name, files := range map[string]store.FilesOptions{"direct": {Direct: true}, "ring": {}, "threads": {NoRing: true}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			opt := Options{CacheBytes: 1 << 20, LogBytes: 64 << 10}
			r := openLiveWith(t, dir, opt, files)
			r.wait(func(done func()) {
				r.a.CreatePool(PoolSpec{Name: "p", Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, func(*Pool, error) { done() })
			})
			once := openMdisks(t, dir)
			r.close()
			db, err := pebble.Open(filepath.Join(dir, "meta"), &pebble.Options{})
			if err == nil {
				err = db.Delete([]byte("c"), pebble.Sync)
			}
			if err != nil || db.Close() != nil {
				t.Fatal(err)
			}
			r = openLiveWith(t, dir, opt, files)
			if n := openMdisks(t, dir); r.store.Renewed() != 1 || n != once {
				t.Errorf("%d copies were made anew; %d files of mdisks are open, and not %d", r.store.Renewed(), n, once)
			}
			r.wait(func(done func()) {
				r.a.DeletePool(r.a.Pool("p"), func(err error) {
					if err != nil {
						t.Error(err)
					}
					done()
				})
			})
			if n := openMdisks(t, dir); n != 0 {
				t.Errorf("%d files of the deleted pool are open", n)
			}
			r.close()
		})
	}
}

// away is a disk of which the files of a folder can neither be opened nor removed.
type away struct{ unreadable }

func (d away) Remove(name string) error {
	if strings.HasPrefix(name, d.folder) {
		return syscall.EIO
	}
	return d.Disk.Remove(name)
}

func (d away) RemoveAll(name string) error {
	if strings.HasPrefix(name+"/", d.folder) {
		return syscall.EIO
	}
	return d.Disk.RemoveAll(name)
}

// numbers returns the numbers of the last batches of both copies.
func numbers(t *testing.T, d *storetest.Disk) (n [2]uint64) {
	t.Helper()
	clock := &block.Virtual{}
	files, err := store.OpenFiles(clock, "/data", store.FilesOptions{FS: d.Kill(), Later: func(fn func()) { clock.At(clock.Now(), fn) }})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	m, err := files.Meta()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m.(block.MetaCopies).Choose(i)
		v, err := m.Get([]byte("g"))
		if err != nil {
			t.Fatal(err)
		}
		n[i] = le.Uint64(v)
	}
	return n
}

// TestNumberOfTwoBatches: the process dies in a checkpoint, whose batch only one copy of the metadata may have. A start that cannot
// reach this copy goes on with the other and dies after a few writes; behind it both copies can be reached. Every start finds
// what was acknowledged.
func TestNumberOfTwoBatches(t *testing.T) {
	ahead := [2]int{}
	for n := range 120 {
		folder, other := n%2, 1-n%2
		r := newPowerRigWith(t, uint64(n/2+1), false, func(r *powerRig) { r.opt.CheckpointBytes = 0 }) // a start has one batch
		r.put(2, 0, 100, 1)
		r.commit()
		r.put(2, 100, 100, 2)
		r.put(0, 0, 100, 3)
		r.disk.KillAtSync(2 + n/2%6)
		r.commit()
		r.disk.KillNow()
		image := r.disk.Image()
		r.files.Close()
		have := numbers(t, image)
		if have[folder] < have[other] {
			continue // the folder that is away is the one that is behind
		} else if have[folder] > have[other] {
			ahead[folder]++
		}
		for _, step := range []store.FS{away{unreadable{image, []string{"/data/meta/", "/data/meta.copy/"}[folder]}}, nil} {
			if r.disk = image; step == nil {
				step = image
			}
			r.clock = &block.Virtual{}
			var err error
			if r.a, r.files, err = openOn(step, r.clock, r.rnd, r.opt); err != nil {
				t.Errorf("run %d: numbers %d, %T: %v", n, have, step, err)
				break
			}
			r.find()
			if !r.holds(2, 0, 100, 1) || !r.holds(2, 100, 100, 2) || !r.holds(0, 0, 100, 3) {
				t.Errorf("run %d: numbers %d, %T: what was written is lost", n, have, step)
			}
			if _, ok := step.(away); !ok {
				if !r.holds(2, 200, 100, 4) {
					t.Errorf("run %d: numbers %d: what was written meanwhile is lost", n, have)
				}
				r.files.Close()
				break
			}
			r.put(2, 200, 100, 4)
			image = r.disk.Kill()
			r.files.Close()
		}
	}
	if ahead[0] == 0 {
		t.Errorf("of the copies that could not be reached %d were ahead", ahead)
	}
	t.Logf("of the copies that could not be reached %d were ahead", ahead)
}
