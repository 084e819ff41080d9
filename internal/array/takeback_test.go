package array

import (
	"errors"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// TestFailedPoolDeletionIsTakenBack: the batch that deletes a pool fails, and the store has it. A crash right behind the
// answer finds the pool all the same; where the store takes nothing more, the answer says that nobody knows, and the
// array goes on.
func TestFailedPoolDeletionIsTakenBack(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		r, s := doubtRig(t, Options{})
		p, q := r.pool("p", PoolSpec{}, 64<<20), r.pool("q", PoolSpec{}, 64<<20)
		v := r.volume("v", "q", 8<<20, true)
		s.fail = func([]block.KV) (bool, bool) {
			if !lasting {
				s.fail = nil
			}
			return true, true
		}
		err := errNever
		r.a.DeletePool(p, func(e error) { err = e })
		for errors.Is(err, errNever) && r.clock.Step() {
		}
		if !errors.Is(err, errDeaf) || r.a.Pool("p") != p || p.Ending || strings.Contains(err.Error(), "done or not") != lasting {
			t.Fatalf("lasting %v: it ended %v, the pool is %v", lasting, err, r.a.Pool("p"))
		}
		mustOK(t, r.do(v, write(0, 8)))
		if lasting {
			continue
		}
		if err := r.restart(); err != nil {
			t.Fatal(err)
		}
		if r.a.Pool("p") == nil || r.a.Pool(q.Name()) == nil {
			t.Error("a pool whose deletion failed is gone after a start")
		}
		r.check()
	}
}

// stickyStore cannot remove the files of some mdisks.
type stickyStore struct {
	block.Store
	sticky bool
}

var errSticky = errors.New("the folder is read-only")

func (s *stickyStore) RemoveMedium(name string, done func(error)) {
	if s.sticky {
		done(errSticky)
		return
	}
	s.Store.RemoveMedium(name, done)
}

// TestDeletedPoolWithFilesLeft: a pool that is gone is gone, though its files are not. Health names them, until a new
// pool of that name has them.
func TestDeletedPoolWithFilesLeft(t *testing.T) {
	s := &stickyStore{sticky: true}
	r := rigOver(t, Options{}, func(under block.Store) block.Store { s.Store = under; return s })
	p := r.pool("p", PoolSpec{}, 64<<20)
	err := errNever
	r.a.DeletePool(p, func(e error) { err = e })
	r.clock.Run()
	if err != nil || r.a.Pool("p") != nil {
		t.Fatalf("it ended %v, the pool is %v", err, r.a.Pool("p"))
	}
	if h := strings.Join(r.a.Health(), "; "); !strings.Contains(h, "p.d0") || !strings.Contains(h, "p.d1") || !strings.Contains(h, "read-only") {
		t.Errorf("health is %q", h)
	}
	if r.pool("p", PoolSpec{}, 64<<20); len(r.a.Health()) > 0 {
		t.Errorf("with a new pool health is %q", r.a.Health())
	}
}

// brokenSync is a store of mdisks whose syncs fail while bad is set.
type brokenSync struct {
	block.Store
	bad bool
}

type brokenMedium struct {
	block.Medium
	s *brokenSync
}

func (s *brokenSync) Medium(name string, size uint64) (block.Medium, error) {
	m, err := s.Store.Medium(name, size)
	return brokenMedium{m, s}, err
}

func (m brokenMedium) Sync(done func(error)) {
	if m.s.bad {
		done(errSticky)
		return
	}
	m.Medium.Sync(done)
}

// TestRedoEndsWithItsPool: a sync of an mdisk has failed that had nothing to lose, what it had sent was unmapped; and
// then its pool is deleted. Nobody tries it again.
func TestRedoEndsWithItsPool(t *testing.T) {
	s := &brokenSync{}
	r := rigOver(t, Options{}, func(under block.Store) block.Store { s.Store = under; return s })
	p := r.pool("p", PoolSpec{}, 64<<20)
	r.pool("q", PoolSpec{}, 64<<20)
	// A write of which the cache has nothing.
	d := p.Mdisks[0]
	x := d.Op(true, 0, block.SectorSize, block.ReasonScrub)
	x.IO.Vec = append(x.IO.Vec, make([]byte, block.SectorSize))
	x.Ctx = &pool.Unit{Left: 2}
	d.Write(x)
	r.a.engine.EndStep()
	r.clock.Run()
	s.bad = true
	r.a.cache.BeginSync()
	r.a.back.Sync()
	r.clock.RunUntil(r.clock.Now() + 10e9)
	if !d.Redoing() || len(r.a.Health()) != 1 {
		t.Fatalf("it is to be written again: %v, health is %q", d.Redoing(), r.a.Health())
	}
	err := errNever
	r.a.DeletePool(p, func(e error) { err = e })
	r.clock.RunUntil(r.clock.Now() + 100e9)
	if err != nil || d.Redoing() || len(r.a.Health()) != 0 {
		t.Errorf("after %v it is to be written again: %v, health is %q", err, d.Redoing(), r.a.Health())
	}
}

// TestCountersOfVolumesInTheMaking: who reads counters sees a volume from when it is there.
func TestCountersOfVolumesInTheMaking(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	names := func() (list []string) {
		var s metrics.Snapshot
		s.Take(r.clock.Now(), r.clock, r.a)
		s.Each(func(f *metrics.Family, labels []string, _ float64, _ *metrics.Histogram) {
			if f == metrics.VolumeSize || f == metrics.CacheDirty {
				list = append(list, labels...)
			}
		})
		return list
	}
	r.a.CreateVolume(VolumeSpec{Name: "v", Pool: "p", Sectors: 4096, Thin: true}, func(*Volume, error) {})
	if got := names(); len(got) > 0 {
		t.Errorf("while the volume is being made, counters name %q", got)
	}
	if r.clock.Run(); len(names()) == 0 {
		t.Error("when it is there, they do not name it")
	}
}

// TestRootsOfDeletedVolumesGo: a volume is deleted, and the power goes before a checkpoint could remove the root of its
// map. A start does.
func TestRootsOfDeletedVolumesGo(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 8<<20, true), r.volume("w", "p", 8<<20, true)
	roots := func() (n int) {
		if err := r.a.meta.Load(extent.KeyRoot, func(_, _ []byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, x := range []*Volume{v, w} {
		mustOK(t, r.do(x, stamped(rng(100, 8), 5)))
	}
	r.a.checkpoint(true)
	r.clock.Run()
	if n := roots(); n != 2 {
		t.Fatalf("a checkpoint has %d roots", n)
	}
	if err := r.delete(v); err != nil {
		t.Fatal(err)
	}
	r.crash()
	if n := roots(); n != 1 || r.a.Volume("v") != nil || !r.reads(r.a.Volume("w"), rng(100, 8), 5) {
		t.Errorf("after a start there are %d roots", n)
	}
	r.check()
}

// TestSilenceIsTold: an mdisk takes destages that nobody waits for and never answers, and a batch of a checkpoint does not
// come back. Volumes hear it once when it has lasted, and once when it is over, each time when health says so.
func TestSilenceIsTold(t *testing.T) {
	told := func(r *rig, v *Volume) *[]int {
		lines := &[]int{}
		v.Notify(func(e block.Event) {
			if e.Kind == block.EventHealth {
				*lines = append(*lines, len(r.a.Health()))
			}
		})
		return lines
	}
	is := func(what string, got []int, want ...int) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: told at %v lines of health, not at %v", what, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: told at %v lines of health, not at %v", what, got, want)
			}
		}
	}
	r, s := stuckRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "d", Size: 64 << 20}}}, 0)
	r.pool("q", PoolSpec{Mdisks: []MdiskSpec{{Name: "d", Size: 64 << 20}}}, 0)
	v, w := r.volume("v", "p", 16<<20, true), r.volume("w", "q", 16<<20, true)
	heard, other := told(r, v), told(r, w)
	s.stuck = true
	mustOK(t, r.do(v, write(0, 512)))
	r.clock.RunUntil(r.clock.Now() + 60e9)
	is("while the mdisk is silent", *heard, 1)
	s.answer()
	r.clock.RunUntil(r.clock.Now() + 60e9)
	is("when it has answered", *heard, 1, 0)
	is("a volume of another pool", *other)

	late := &lateBatches{late: 90e9}
	r = rigOver(t, Options{}, func(under block.Store) block.Store { late.Store = under; return late })
	r.pool("p", PoolSpec{}, 64<<20)
	v = r.volume("v", "p", 16<<20, true)
	heard = told(r, v)
	late.x = r.clock
	mustOK(t, r.do(v, write(0, 8)))
	r.a.checkpoint(true)
	r.clock.RunUntil(r.clock.Now() + 60e9)
	is("while a checkpoint is under way", *heard, 1)
	r.clock.RunUntil(r.clock.Now() + 60e9)
	is("when it is durable", *heard, 1, 0)
}

// lateBatches has a meta store whose batches take so long, once x is set.
type lateBatches struct {
	block.Store
	x    block.Executor
	late int64
}

func (s *lateBatches) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return lateMeta{m, s}, err
}

type lateMeta struct {
	block.MetaStore
	s *lateBatches
}

func (m lateMeta) Commit(batch []block.KV, done func(error)) {
	if m.s.x == nil {
		m.MetaStore.Commit(batch, done)
		return
	}
	m.s.x.At(m.s.x.Now()+m.s.late, func() { m.MetaStore.Commit(batch, done) })
}
