package array

import (
	"bytes"
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// leftGarbageRig has a volume of which 15 leaves were cut off, in a pool that promises space, of an array that has stopped before
// it has read these: the next start collects them before it serves, the first one last. The account of space lacks a
// reference of the first if it is wrong.
func leftGarbageRig(t *testing.T, wrong bool, wrap func(block.Store) block.Store) *rig {
	t.Helper()
	r, v := leavesRig(t, wrap)
	r.volume("thick", "p", 8<<20, false)
	if wrong {
		v.Map.Walk(rng(0, 8), func(x extent.Run) bool {
			r.a.arena.Account().Lost(v.ID(), x.Phys/windowSectors)
			return false
		})
	}
	r.storeMaps(r.a.Volume("thick"))
	r.evict()
	cut := unmap(0, rng(0, 15*node.LeafSectors))
	cut.Done = func(*block.Request) {}
	v.Submit([]*block.Request{cut})
	stopped := false
	r.a.Stop(func(err error) { mustDo(t, err); stopped = true })
	if r.clock.RunUntil(r.clock.Now() + 60e9); !stopped {
		t.Fatal("it does not stop")
	}
	return r
}

// TestStartOverAWrongAccountDiscardsNothing: an array that was not opened, because what it had read is wrong, gives no room back
// afterwards: what is free by what it knew may have data of the one that was opened in its place.
func TestStartOverAWrongAccountDiscardsNothing(t *testing.T) {
	s := &discardStore{media: map[string]*discardMedium{}}
	r := leftGarbageRig(t, true, func(under block.Store) block.Store { s.Store = under; return s })
	r.opt.Discard = true
	s.crash(r)
	if r.a.Recovery().Derived == "" {
		t.Fatal("the account was not derived")
	}
	discards := 0
	s.began = func(name string, off, n uint64) {
		if discards++; r.a.Pool("p").Alloc.Withheld() == 0 {
			t.Errorf("%d bytes at %d of %s are discarded at %d ns, which the array does not withhold", n, off, name, r.clock.Now())
		}
	}
	if r.clock.RunUntil(60e9); discards == 0 {
		t.Error("nothing is discarded: the test shows too little")
	}
	r.check()
}

// TestUnreadGarbageDies: a page of the garbage is damaged, which a start passes over, and the process dies while it stores that.
// The next start has the page still or says that the account is not right, but never needs to read the page.
func TestUnreadGarbageDies(t *testing.T) {
	r := leftGarbageRig(t, false, func(s block.Store) block.Store { return s })
	meta, err := r.store.Meta()
	mustDo(t, err)
	key := node.LeafKey(r.a.Volume("v").ID(), 3).Bytes()
	page, err := meta.Get(key)
	mustDo(t, err)
	page = bytes.Clone(page)
	page[8] ^= 1
	mustDo(t, meta.CommitNow([]block.KV{{Key: key, Value: page}}))
	deaths := 0
	for ; ; deaths++ {
		clock := &block.Virtual{}
		st := r.store.Clone(clock)
		opt := r.opt
		opt.Exec, opt.Store, opt.CheckpointBytes = clock, &dyingStore{Store: st, left: deaths}, 1
		if _, err := Open(opt); !errors.Is(err, errDied) {
			mustDo(t, err)
			break
		}
		left := *r
		left.clock, left.store = clock, st
		left.crash()
		left.crash() // what was passed over is gone
		left.check()
		if !left.reads(left.a.Volume("v"), rng(15*node.LeafSectors, 100), 15<<20) {
			t.Errorf("behind %d batches the data is another one", deaths)
		}
	}
	if deaths < 3 {
		t.Errorf("%d deaths: the test shows too little", deaths)
	}
}

// noAccount is a store that cannot read its account of space.
type noAccount struct{ block.Store }

type noAccountMeta struct{ block.MetaStore }

func (s noAccount) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return noAccountMeta{m}, err
}

func (m noAccountMeta) Load(prefix []byte, fn func(key, value []byte) error) error {
	if string(prefix) == account.Prefix {
		return errors.New("a block is damaged")
	}
	return m.MetaStore.Load(prefix, fn)
}

// TestUnreadableAccountIsDerived: whether the account of space was known to be wrong or not, a start does without it.
func TestUnreadableAccountIsDerived(t *testing.T) {
	for _, known := range []bool{false, true} {
		r, v, _ := accountRig(t)
		if known {
			r.a.arena.Account().Unsure()
		}
		r.storeMaps(v)
		r.clock = &block.Virtual{}
		r.store = r.store.Clone(r.clock)
		r.opt.Exec, r.opt.Store = r.clock, noAccount{r.store}
		a, err := Open(r.opt)
		if err != nil {
			t.Errorf("known %v: it does not open: %v", known, err)
			continue
		}
		if r.a = a; a.Recovery().Derived == "" || !r.reads(a.Volume("v"), rng(0, 1000), 1) {
			t.Errorf("known %v: it was derived because %q, or the data is another one", known, a.Recovery().Derived)
		}
		r.check()
	}
}

// TestWrongAccountIsTold: who looks at what fails hears of an account of space that is wrong, without a check.
func TestWrongAccountIsTold(t *testing.T) {
	r, v, grain := accountRig(t)
	if lines := r.a.Health(); len(lines) != 0 {
		t.Errorf("it says %q", lines)
	}
	for range 9 {
		r.a.arena.Account().Lost(v.ID(), grain)
	}
	if lines := r.a.Health(); len(lines) != 1 {
		t.Errorf("it says %q", lines)
	}
}

// TestFreeGrainOfAThickVolume: a start reads all leaves of a volume that is promised its space, and finds that a grain counts as
// free that one refers to: the next one to write would take it.
func TestFreeGrainOfAThickVolume(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 40<<20, false)
	mustOK(t, r.do(v, stamped(rng(0, 1000), 1)))
	r.storeMaps(v)
	v.Map.Walk(rng(0, 8), func(x extent.Run) bool {
		r.a.arena.Account().Lost(v.ID(), x.Phys/windowSectors)
		return false
	})
	r.storeMaps(v)
	r.derives("v", rng(0, 1000), 1)
}
