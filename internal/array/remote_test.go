package array

import (
	"bytes"
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// heldRegion is an NVRAM that is not local, whose commits end when the test says so.
type heldRegion struct {
	block.Region
	s *heldStore
}

func (h heldRegion) Local() bool                   { return false }
func (h heldRegion) Announce(block.Part, int, int) {}
func (h heldRegion) Commit(done func(error))       { h.s.commits = append(h.s.commits, done) }

type heldStore struct {
	block.Store
	commits []func(error)
}

func (s *heldStore) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	r, fresh, err := s.Store.Region(name, l)
	return heldRegion{r, s}, fresh, err
}

// commit ends all commits that wait.
func (s *heldStore) commit(err error) {
	held := s.commits
	s.commits = nil
	for _, done := range held {
		done(err)
	}
}

// TestNobodyHearsBeforeTheCommit: a write, what changes maps, and a read that has found what a write has left, are answered when the
// log says that it has all of it, in their order; and those that come meanwhile wait for the next commit.
func TestNobodyHearsBeforeTheCommit(t *testing.T) {
	s := &heldStore{}
	r := rigOver(t, Options{}, func(under block.Store) block.Store { s.Store = under; return s })
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	var order []int
	got := make([]byte, 4096)
	submit := func(n int, q *block.Request) {
		q.Done = func(q *block.Request) {
			mustOK(t, q.Status)
			order = append(order, n)
		}
		v.Submit([]*block.Request{q})
		r.clock.RunUntil(r.clock.Now() + 1e9)
	}
	submit(1, &block.Request{Op: block.OpWrite, Range: rng(0, 8), Data: [][]byte{bytes.Repeat([]byte{7}, 4096)}})
	submit(2, &block.Request{Op: block.OpWriteSame, Range: rng(64, 640)})
	submit(3, &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{got}})
	if len(order) != 0 || len(s.commits) == 0 {
		t.Fatalf("%v were answered, and %d commits wait", order, len(s.commits))
	}
	first := s.commits
	s.commits = nil
	submit(4, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 8)}})
	for _, done := range first {
		done(nil)
	}
	r.clock.Run()
	if len(order) != 3 || order[0] != 1 || order[2] != 3 || got[0] != 7 {
		t.Fatalf("%v were answered", order)
	}
	s.commit(nil)
	if len(order) != 4 {
		t.Errorf("%v were answered", order)
	}
}

// TestCommitFails: a write that the log has perhaps not got ends with an error, and so do all that come; reads go on.
func TestCommitFails(t *testing.T) {
	s := &heldStore{}
	r := rigOver(t, Options{}, func(under block.Store) block.Store { s.Store = under; return s })
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	ended := map[block.Op]block.Status{}
	submit := func(q *block.Request) {
		q.Done = func(q *block.Request) { ended[q.Op] = q.Status }
		v.Submit([]*block.Request{q})
		r.clock.RunUntil(r.clock.Now() + 1e9)
	}
	submit(write(0, 8))
	submit(&block.Request{Op: block.OpRead, Range: rng(100, 8), Data: [][]byte{make([]byte, 4096)}})
	s.commit(errors.New("the partner does not answer"))
	if ended[block.OpWrite] != block.Hardware || ended[block.OpRead] != block.OK || len(ended) != 2 {
		t.Errorf("they ended %v", ended)
	}
	submit(&block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 8)}})
	s.commit(nil)
	if ended[block.OpUnmap] != block.Hardware {
		t.Errorf("after that a command ended %v", ended)
	}
	if rep := r.a.Check(false); len(rep.Problems) == 0 {
		t.Error("check says that all is well")
	}
}

// TestCommitFailsOfWhatWasRead: who has seen what the log has perhaps not got hears an error as well, for a start may find
// what was there before; who has read something else does not. Once a commit ends well, all of it can be read.
func TestCommitFailsOfWhatWasRead(t *testing.T) {
	page := func(b byte) [][]byte { return [][]byte{bytes.Repeat([]byte{b}, 4096)} }
	for what, change := range map[string]*block.Request{
		"what was written":  {Op: block.OpWrite, Range: rng(0, 8), Data: page(2)},
		"what was unmapped": {Op: block.OpUnmap, Ranges: []block.Range{rng(0, 8)}},
	} {
		s := &heldStore{}
		r := rigOver(t, Options{}, func(under block.Store) block.Store { s.Store = under; return s })
		r.pool("p", PoolSpec{}, 64<<20)
		v := r.volume("v", "p", 16<<20, true)
		w := r.volume("w", "p", 16<<20, true)
		submit := func(v *Volume, q *block.Request) *block.Request {
			q.Status = block.Gone
			q.Done = func(*block.Request) {}
			v.Submit([]*block.Request{q})
			r.clock.RunUntil(r.clock.Now() + 1e9)
			return q
		}
		read := func(v *Volume, at uint64) *block.Request {
			return submit(v, &block.Request{Op: block.OpRead, Range: rng(at, 8), Data: page(0)})
		}
		status := func(at, n uint64) *block.Request {
			return submit(v, &block.Request{Op: block.OpStatus, Range: rng(at, n), Extents: make([]block.Extent, 0, 4)})
		}
		old := submit(v, &block.Request{Op: block.OpWrite, Range: rng(0, 8), Data: page(1)})
		s.commit(nil)
		changed := submit(v, change)
		saw := []*block.Request{read(v, 4), status(0, 8),
			submit(v, &block.Request{Op: block.OpCompareWrite, Range: rng(0, 8), Compare: page(3), Data: page(4)})}
		others := []*block.Request{read(v, 8), read(w, 0), status(128, 8)}
		s.commit(errors.New("the partner does not answer"))
		for i, q := range saw {
			if q.Status != block.Hardware {
				t.Errorf("%s: who has seen it, request %d, ended %v", what, i, q.Status)
			}
		}
		for i, q := range others {
			if q.Status != block.OK {
				t.Errorf("%s: who has seen something else, request %d, ended %v", what, i, q.Status)
			}
		}
		again := read(v, 0)
		s.commit(errors.New("it still does not"))
		if old.Status != block.OK || changed.Status != block.Hardware || again.Status != block.Hardware {
			t.Errorf("%s: the change ended %v, a read later %v", what, changed.Status, again.Status)
		}
		again = read(v, 0)
		s.commit(nil)
		first := read(v, 0)
		s.commit(errors.New("it does not any more, but has all that there is"))
		if again.Status != block.OK || first.Status != block.OK {
			t.Errorf("%s: when the partner has it, it reads %v and %v", what, again.Status, first.Status)
		}
	}
}
