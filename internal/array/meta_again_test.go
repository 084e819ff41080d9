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

// away is a disk of which the files of a folder can neither be opened nor removed, nor get another name.
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

func (d away) Rename(from, to string) error {
	if strings.HasPrefix(from+"/", d.folder) {
		return syscall.EIO
	}
	return d.Disk.Rename(from, to)
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

// copyFolder has a disk hold a folder as another one has it.
func copyFolder(t *testing.T, to, from *storetest.Disk, folder string) {
	t.Helper()
	to.RemoveAll(folder)
	to.MkdirAll(folder, 0o700)
	names, err := from.List(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(folder, name)
		src, err := from.OpenData(path)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := src.Size()
		b := make([]byte, size)
		n, err := src.Readv([][]byte{b}, 0)
		dst, err2 := to.OpenData(path)
		if err != nil || err2 != nil || n != len(b) {
			t.Fatal(err, err2)
		}
		if n, err := dst.Writev([][]byte{b}, 0); err != nil || n != len(b) {
			t.Fatal(err)
		}
	}
}

// TestCopyOfAnotherTime: one copy of the metadata is that of an earlier image of the data folder, or of another history of the
// array, with lower or higher numbers. The log goes with the other copy: a start takes that one, and finds everything.
func TestCopyOfAnotherTime(t *testing.T) {
	folders := []string{"/data/meta", "/data/meta.copy"}
	for n := range 30 {
		seed, at := uint64(n/4+1), 2+n%5
		folder, forked := folders[n%2], n/2%2 == 0
		r := newPowerRigWith(t, seed, false, func(r *powerRig) { r.opt.CheckpointBytes = 0 })
		images := []*storetest.Disk{}
		life := func(lives int, stamp uint64) {
			for i := range lives {
				for k := range 4 {
					r.put(2, uint64(k)*100, 100, stamp+uint64(i)*4+uint64(k))
				}
				if r.commit(); i%2 == 1 {
					r.put(0, 0, 50, stamp+uint64(i))
				}
				images = append(images, r.disk.Kill())
				r.reopen()
			}
		}
		life(at, 1)
		fork := r.disk.Kill()
		if forked { // another history from here on: more batches, and fewer starts
			images = nil
			for i := range uint64(12) {
				r.put(2, 600+i*100, 100, 1000+i)
				r.commit()
				images = append(images, r.disk.Kill())
			}
			r.openOn(fork)
			r.find()
		}
		life(2, 100)
		r.disk = r.disk.Kill()
		r.files.Close()
		before := r.disk.Kill()
		for _, old := range []*storetest.Disk{images[0], images[len(images)/2], images[min(len(images)-1, 11)]} {
			r.disk = before.Kill()
			copyFolder(t, r.disk, old, folder)
			have := numbers(t, r.disk)
			r.clock = &block.Virtual{}
			var err error
			if r.a, r.files, err = openOn(r.disk, r.clock, r.rnd, r.opt); err != nil {
				t.Errorf("run %d: numbers %d, forked %v: %v", n, have, forked, err)
				continue
			}
			r.find()
			for k := range uint64(4) {
				if !r.holds(2, k*100, 100, 104+k) {
					t.Errorf("run %d: numbers %d, forked %v: what was written is lost", n, have, forked)
				}
			}
			if !r.holds(0, 0, 50, 101) {
				t.Errorf("run %d: numbers %d, forked %v: what was written last is lost", n, have, forked)
			}
			if lines := r.a.CheckCopies(); len(lines) > 0 {
				t.Error(lines)
			}
			r.files.Close()
		}
	}
}
