package array

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
)

// descriptors returns how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A pool that cannot be made leaves no file, no descriptor, no name and no number: the same one can be made
// as soon as what was in its way is gone.
func TestFailedPoolLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	x := block.NewLive()
	defer x.Stop()
	s, err := store.OpenFiles(x, dir, store.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x.Lock()
	a, err := Open(Options{Exec: x, Store: s, CacheBytes: 4 << 20})
	x.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	defer wait(x, func(done func(error)) { a.Stop(done) })
	create := func(name string, mdisks int) error {
		spec := PoolSpec{Name: name}
		for i := range mdisks {
			spec.Mdisks = append(spec.Mdisks, MdiskSpec{Name: fmt.Sprintf("m%d", i), Size: 4 << 20})
		}
		return wait(x, func(done func(error)) { a.CreatePool(spec, func(_ *Pool, err error) { done(err) }) })
	}
	if err := create("kept", 2); err != nil {
		t.Fatal(err)
	}
	files := func() int {
		list, err := os.ReadDir(filepath.Join(dir, "mdisk"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	had, open := files(), descriptors(t)

	// A folder that is not empty is in the way of mdisk 20.
	obstacle := filepath.Join(dir, "mdisk", "p.m20.img")
	if err := os.MkdirAll(filepath.Join(obstacle, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := create("p", 40); err == nil || !strings.Contains(err.Error(), "p.m20") {
		t.Fatalf("with an obstacle: %v", err)
	}
	if err := os.RemoveAll(obstacle); err != nil {
		t.Fatal(err)
	}
	if err := create("p", directory.MaxMdisks-1); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Fatalf("beyond the limit: %v", err)
	}
	if n := files(); n != had {
		t.Errorf("%d files are there, there were %d", n, had)
	}
	if n := descriptors(t); n > open {
		t.Errorf("%d descriptors are open, there were %d", n, open)
	}
	for range 2 {
		if err := create("p", 40); err != nil {
			t.Fatalf("after the failures: %v", err)
		}
		// While it is there, no second one is; and what is deleted gives its files back.
		if err := create("p", 1); !errors.Is(err, ErrExists) {
			t.Errorf("twice: %v", err)
		}
		if err := wait(x, func(done func(error)) { a.DeletePool(a.Pool("p"), done) }); err != nil {
			t.Fatal(err)
		}
		if n := files(); n != had {
			t.Errorf("after its end: %d files are there, there were %d", n, had)
		}
		if n := descriptors(t); n > open {
			t.Errorf("after its end: %d descriptors are open, there were %d", n, open)
		}
	}
}

// wait calls fn on the executor and waits for its callback.
func wait(x *block.Live, fn func(done func(error))) error {
	end := make(chan error, 1)
	x.Lock()
	fn(func(err error) { end <- err })
	x.Unlock()
	return <-end
}

// Pools whose names differ must not share the files of an mdisk.
func TestPoolsShareNoMedium(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.a.CreatePool(PoolSpec{Name: "a.b", Mdisks: []MdiskSpec{{Name: "c", Size: 64 << 20}}}, func(_ *Pool, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.clock.Run()
	var got error
	r.a.CreatePool(PoolSpec{Name: "a", Mdisks: []MdiskSpec{{Name: "b.c", Size: 64 << 20}}}, func(_ *Pool, err error) { got = err })
	r.clock.Run()
	if got == nil || !strings.Contains(got.Error(), "another pool") {
		t.Errorf("pool a with mdisk b.c beside pool a.b with mdisk c: %v", got)
	}
}

// deafStore has a meta store that can stop to take anything, or refuse the next few batches.
type deafStore struct {
	block.Store
	deaf   bool
	refuse int
}

type deafMeta struct {
	block.MetaStore
	s *deafStore
}

func (s *deafStore) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return deafMeta{m, s}, err
}

var errDeaf = errors.New("the meta store takes nothing")

func (m deafMeta) Commit(batch []block.KV, done func(error)) {
	if m.s.deaf || m.s.refuse > 0 {
		m.s.refuse--
		done(errDeaf)
		return
	}
	m.MetaStore.Commit(batch, done)
}

// lameRig is a rig whose meta store can refuse batches, of which nothing is there then.
func lameRig(t *testing.T) (*rig, *deafStore) {
	s := &deafStore{}
	return rigOver(t, Options{}, func(under block.Store) block.Store { s.Store = under; return s }), s
}

// What cannot be made durable is not there: no pool, no volume, no room that is promised.
func TestObjectsThatAreNotDurable(t *testing.T) {
	r, s := lameRig(t)
	a, p := r.a, r.pool("p", PoolSpec{}, 64<<20)
	had := p.Stats()
	s.deaf = true
	var pool, thick error
	a.CreatePool(PoolSpec{Name: "q", Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, func(_ *Pool, err error) { pool = err })
	a.CreateVolume(VolumeSpec{Name: "v", Pool: "p", Sectors: 1 << 14}, func(_ *Volume, err error) { thick = err })
	r.clock.Run()
	if !errors.Is(pool, errDeaf) || !errors.Is(thick, errDeaf) {
		t.Errorf("pool: %v, volume: %v", pool, thick)
	}
	if a.Pool("q") != nil || a.Volume("v") != nil || len(a.manager.Objects.Pools) != 1 || len(a.manager.Objects.Volumes) != 0 {
		t.Errorf("they are there: %+v", a.manager.Objects)
	}
	if now := p.Stats(); now.Reserved != had.Reserved || now.Volumes != 0 || now.CacheLimit != had.CacheLimit {
		t.Errorf("the pool has %+v, it had %+v", now, had)
	}
}

type lateStore struct {
	block.Store
	x block.Executor
}

func (s *lateStore) MakeMedium(name string, size uint64, done func(error)) {
	s.x.Post(func() { s.Store.MakeMedium(name, size, done) })
}

// Two pools that are made at once do not both take the last number.
func TestLastPoolNumber(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.a.manager.Objects.NextPool = directory.MaxPools - 1
	r.a.manager.Media = media.NewMaker(&lateStore{r.store, r.clock})
	made, refused := 0, 0
	for _, n := range []string{"a", "b"} {
		r.a.CreatePool(PoolSpec{Name: n, Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 20}}}, func(_ *Pool, err error) {
			if err == nil {
				made++
			} else {
				refused++
			}
		})
	}
	r.clock.Run()
	if made != 1 || refused != 1 {
		t.Errorf("%d pools were made and %d refused", made, refused)
	}
	r.crash()
	if n := len(r.a.Pools()); n != 1 {
		t.Errorf("after a start there are %d pools", n)
	}
}

// TestLastVolumeNumber: an array that has used all of its volume numbers says so, and goes on with what it has.
func TestLastVolumeNumber(t *testing.T) {
	r := newRig(t, Options{}, true)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 8<<20, true)
	r.a.manager.Objects.NextVolume = directory.MaxVolumeID
	err := ends(r.clock, func(done func(error)) {
		r.a.CreateVolume(VolumeSpec{Name: "w", Pool: "p", Sectors: 4096, Thin: true}, func(_ *Volume, err error) { done(err) })
	})
	if err == nil || !strings.Contains(err.Error(), "used all of its volume numbers") || len(r.a.Volumes()) != 1 {
		t.Errorf("it ended %v, and the array has %v", err, r.a.Volumes())
	}
	mustOK(t, r.do(v, write(0, 8)))
}
