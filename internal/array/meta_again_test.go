// Starts that try a second copy of the metadata: what the first try has opened, and what either says.

package array

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble"

	"github.com/arraysim/arraysim/internal/store"
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
