package array

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
)

// liveRig is an array over files, driven by the wall clock.
type liveRig struct {
	t     testing.TB
	exec  *block.Live
	store *store.Files
	a     *Array
}

func openLive(t testing.TB, dir string, opt Options) *liveRig {
	t.Helper()
	return openLiveWith(t, dir, opt, store.FilesOptions{})
}

func openLiveWith(t testing.TB, dir string, opt Options, files store.FilesOptions) *liveRig {
	t.Helper()
	r := &liveRig{t: t, exec: block.NewLive()}
	st, err := store.OpenFiles(r.exec, dir, files)
	if err != nil {
		t.Fatal(err)
	}
	r.store = st
	opt.Exec, opt.Store = r.exec, st
	r.exec.Lock()
	r.a, err = Open(opt)
	r.exec.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wait runs fn on the executor and waits until it calls done.
func (r *liveRig) wait(fn func(done func())) {
	ch := make(chan struct{})
	r.exec.Lock()
	fn(func() { close(ch) })
	r.exec.Unlock()
	<-ch
}

func (r *liveRig) do(v *Volume, q *block.Request) block.Status {
	r.wait(func(done func()) {
		q.Done = func(*block.Request) { done() }
		v.Submit([]*block.Request{q})
	})
	return q.Status
}

func (r *liveRig) close() {
	r.wait(func(done func()) {
		r.a.Stop(func(err error) {
			if err != nil {
				r.t.Error(err)
			}
			done()
		})
	})
	r.exec.Stop() // a timer of the array must not find its NVRAM gone
	if err := r.store.Close(); err != nil {
		r.t.Error(err)
	}
}

func TestFilesKeepDataOverRestart(t *testing.T) {
	dir := t.TempDir()
	opt := Options{CacheBytes: 4 << 20}
	r := openLive(t, dir, opt)
	var v *Volume
	r.wait(func(done func()) {
		r.a.CreatePool(PoolSpec{Name: "p", Mdisks: []MdiskSpec{{Name: "a", Size: 64 << 20}, {Name: "b", Size: 32 << 20}}}, func(_ *Pool, err error) {
			if err != nil {
				t.Error(err)
			}
			r.a.CreateVolume(VolumeSpec{Name: "v", Pool: "p", Sectors: 40 << 11, Thin: true}, func(x *Volume, err error) {
				if err != nil {
					t.Error(err)
				}
				v = x
				done()
			})
		})
	})
	want := make([]byte, 40<<20)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	const piece = 1 << 20
	for off := 0; off < len(want); off += piece { // ten times the cache
		q := &block.Request{Op: block.OpWrite, Range: rng(uint64(off)/512, piece/512), Data: [][]byte{want[off : off+piece]}}
		if s := r.do(v, q); s != block.OK {
			t.Fatal(s)
		}
	}
	if s := r.do(v, &block.Request{Op: block.OpFlush}); s != block.OK {
		t.Fatal(s)
	}
	if _, err := store.OpenFiles(r.exec, dir, store.FilesOptions{}); err == nil {
		t.Error("the folder could be opened twice")
	}
	r.close()
	r = openLive(t, dir, opt)
	defer r.close()
	r.exec.Lock()
	v = r.a.Volume("v")
	rep := r.a.Check(true)
	r.exec.Unlock()
	for _, p := range rep.Problems {
		t.Error(p)
	}
	got := make([]byte, len(want))
	if s := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, uint64(len(got))/512), Data: [][]byte{got}}); s != block.OK {
		t.Fatal(s)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("data differs after a restart")
	}
}
