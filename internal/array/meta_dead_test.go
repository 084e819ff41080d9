// Starts over copies of the metadata of which one is gone, or only a part.

package array

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestStartOverADeadCopy: the disk under one copy of the metadata is gone for good, read-only, or full. The
// array starts with the other copy, and says so.
func TestStartOverADeadCopy(t *testing.T) {
	for _, why := range []error{syscall.EROFS, syscall.ENOSPC} {
		for i, folder := range []string{"/data/meta/", "/data/meta.copy/"} {
			t.Run(folder+" "+why.Error(), func(t *testing.T) { startOverADeadCopy(t, uint64(i+1), folder, why) })
		}
	}
}

func startOverADeadCopy(t *testing.T, seed uint64, folder string, why error) {
	r := newPowerRig(t, seed, false)
	r.put(2, 0, 100, 1)
	r.commit()
	r.failing(folder) // while it runs: it goes on with the other
	ended, got := false, error(nil)
	r.a.SetBlob("x", []byte("y"), func(err error) { ended, got = true, err })
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if !ended || got != nil {
		t.Fatalf("%v %v", ended, got)
	}
	r.disk = r.disk.Kill()
	r.files.Close()
	r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
		if op != storetest.Read && strings.HasPrefix(path, folder) {
			return 0, why
		}
		return n, nil
	})
	r.clock = &block.Virtual{}
	a, files, err := openOn(r.disk, r.clock, r.rnd, r.opt)
	if err != nil {
		t.Fatalf("%s cannot be written, the other copy is whole: %v", folder, err)
	}
	if health := strings.Join(a.Health(), "; "); !strings.Contains(health, "is not used") {
		t.Errorf("health: %q", health)
	}
	ended, got = false, nil
	a.SetBlob("x", []byte("z"), func(err error) { ended, got = true, err })
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if !ended || got != nil {
		t.Errorf("behind the start a change has ended: %v, %v", ended, got)
	}
	files.Close()
}

// TestOneArrayOfAStart: a start meets an error of NVRAM when it is nearly over, and its copy of the metadata has failed meanwhile. The
// other copy could be read, but an array over it would have the first one's writes among its own: the start fails, and the next one
// begins anew.
func TestOneArrayOfAStart(t *testing.T) {
	r := newPowerRig(t, 1, false)
	r.put(2, 0, 100, 1)
	r.commit()
	r.put(2, 0, 100, 2)
	r.put(0, 0, 100, 3) // two maps and their roots: several batches
	r.put(0, 32_500, 100, 4)
	r.disk = r.disk.Kill()
	r.files.Close()
	flushes := 0
	r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
		switch {
		case op == storetest.Sync && path == "/data/nvram":
			if flushes++; flushes == 3 || flushes == 4 { // behind the replay, and behind the pages it works
				return 0, syscall.EIO
			}
		case op != storetest.Read && strings.HasPrefix(path, "/data/meta/") && flushes >= 2:
			return 0, syscall.EIO
		}
		return n, nil
	})
	if _, _, err := openOn(r.disk, &block.Virtual{}, r.rnd, r.opt); err == nil || flushes != 4 {
		t.Errorf("after %d flushes it starts with %v", flushes, err)
	}
	r.disk.SetFault(nil)
	r.open()
	r.find()
	if !r.holds(2, 0, 100, 2) {
		t.Error("what was written is lost")
	}
	r.files.Close()
}

// TestPartOfACopyIsNotTaken: a folder of format 1 was being brought to two copies when the process
// died: the second copy has a part of the entries. At the next start the first one cannot be read
// for a moment.
func TestPartOfACopyIsNotTaken(t *testing.T) {
	dir := testkit.Unpack(t, "testdata/format1.tar.gz")
	// What Renew has done when it dies behind its first batch: b, c and nodes, but not yet the objects.
	src, err := pebble.Open(filepath.Join(dir, "meta"), &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dst, err := pebble.Open(filepath.Join(dir, "meta.copy"), &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	it, _ := src.NewIter(nil)
	for it.First(); it.Valid(); it.Next() {
		if it.Key()[0] < 'o' && it.Key()[0] != 'g' {
			dst.Set(it.Key(), it.Value(), pebble.Sync)
		}
	}
	it.Close()
	src.Close()
	dst.Close()
	refuseOnce(t, dir)
}
