package array

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// blocksOf returns the bytes that the files of all mdisks take on their disk.
func blocksOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "mdisk", "*.img"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += st.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return n
}

// TestFilesShrink: files of mdisks give the blocks back that deleted volumes had, and with them the room of the file
// system; the start behind that finds what an earlier life has left.
func TestFilesShrink(t *testing.T) {
	dir := t.TempDir()
	opt := Options{CacheBytes: 8 << 20, DiscardDelay: 1e6}
	r := openLive(t, dir, opt) // it does not discard
	volumes := map[string]*Volume{}
	make1 := func(name string) {
		r.wait(func(done func()) {
			r.a.CreateVolume(VolumeSpec{Name: name, Pool: "p", Sectors: 40 << 11, Thin: true}, func(v *Volume, err error) {
				if err != nil {
					t.Error(err)
				}
				volumes[name] = v
				done()
			})
		})
	}
	r.wait(func(done func()) {
		r.a.CreatePool(PoolSpec{Name: "p", Mdisks: []MdiskSpec{{Name: "a", Size: 64 << 20}, {Name: "b", Size: 32 << 20}}}, func(_ *Pool, err error) { done() })
	})
	fill := func(name string, from, to int, b byte) {
		for at := from; at < to; at++ {
			if s := r.do(volumes[name], written(uint64(at)<<11, 1<<11, b)); s != block.OK {
				t.Fatal(s)
			}
		}
		r.wait(func(done func()) { r.a.Drain(done) })
	}
	remove := func(name string) {
		r.wait(func(done func()) {
			r.a.DeleteVolume(volumes[name], func(err error) {
				if err != nil {
					t.Error(err)
				}
				done()
			})
		})
	}
	shrinks := func(what string, to int64) {
		t.Helper()
		for until := time.Now().Add(30 * time.Second); blocksOf(t, dir) > to; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: the files take %d KiB, not %d", what, blocksOf(t, dir)>>10, to>>10)
			}
		}
	}
	make1("old")
	make1("kept")
	fill("old", 0, 20, 1)
	fill("kept", 0, 4, 2)
	if n := blocksOf(t, dir); n < 24<<20 {
		t.Fatalf("the files take %d KiB", n>>10)
	}
	remove("old")
	time.Sleep(50 * time.Millisecond)
	if n := blocksOf(t, dir); n < 24<<20 {
		t.Errorf("the files take %d KiB, and nobody asked for that", n>>10)
	}
	r.close()
	opt.Discard = true
	r = openLive(t, dir, opt)
	defer r.close()
	volumes["kept"] = r.a.Volume("kept")
	shrinks("at the start", 5<<20)
	make1("new")
	fill("new", 0, 20, 3)
	if n := blocksOf(t, dir); n < 24<<20 {
		t.Errorf("the files take %d KiB", n>>10)
	}
	remove("new")
	shrinks("behind a deletion", 5<<20)
	if s := r.do(volumes["kept"], unmap(0, rng(0, 2<<11))); s != block.OK {
		t.Fatal(s)
	}
	shrinks("behind UNMAP", 3<<20)
	got := make([]byte, 2<<20)
	if s := r.do(volumes["kept"], &block.Request{Op: block.OpRead, Range: rng(2<<11, 2<<11), Data: [][]byte{got}}); s != block.OK || !bytes.Equal(got, bytes.Repeat([]byte{2}, len(got))) {
		t.Errorf("what is kept reads %v, %d", s, got[0])
	}
}
