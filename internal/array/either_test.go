package array

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
)

// twoCopies is a store whose metadata has two copies, of which either may have other values of some keys: nil is one that it has
// lost, and badBlock one that it fails at, as what lies behind it in a walk.
type twoCopies struct {
	block.Store
	bad     [2]map[string][]byte
	renewed [2]int
	stays   bool // a batch does not repair what it writes
	exec    block.Executor
}

var badBlock = []byte("this cannot be read")

type twoMeta struct {
	block.MetaStore
	s      *twoCopies
	chosen int
}

var errBlock = errors.New("a block is damaged")

func (s *twoCopies) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return &twoMeta{MetaStore: m, s: s}, err
}

func (m *twoMeta) Copies() int  { return 2 }
func (m *twoMeta) Choose(i int) { m.chosen = i }
func (m *twoMeta) Chosen() int  { return m.chosen }
func (m *twoMeta) Behind() bool { return false }

func (m *twoMeta) Renew(i int, _ error, entries func(func(key, value []byte) error) error) {
	m.s.renewed[i]++
	got, bad := map[string][]byte{}, map[string][]byte{}
	err := entries(func(key, value []byte) error {
		got[string(key)] = bytes.Clone(value)
		return nil
	})
	if err == nil {
		err = m.MetaStore.Load(nil, func(key, value []byte) error {
			if now, ok := got[string(key)]; !ok || !bytes.Equal(now, value) {
				bad[string(key)] = now
			}
			return nil
		})
	}
	if err == nil {
		m.s.bad[i] = bad
	}
}

// has returns what a copy has of an entry that the other one may have.
func (m *twoMeta) has(i int, key, value []byte) ([]byte, error) {
	if bad, ok := m.s.bad[i][string(key)]; ok {
		if value = bytes.Clone(bad); bytes.Equal(bad, badBlock) {
			return nil, errBlock
		}
	}
	return value, nil
}

func (m *twoMeta) Get(key []byte) ([]byte, error) {
	value, err := m.MetaStore.Get(key)
	if err == nil {
		value, err = m.has(m.chosen, key, value)
	}
	return value, err
}

func (m *twoMeta) Load(prefix []byte, fn func(key, value []byte) error) error {
	return m.MetaStore.Load(prefix, func(key, value []byte) error {
		value, err := m.has(m.chosen, key, value)
		if err != nil || value == nil {
			return err
		}
		return fn(key, value)
	})
}

func (m *twoMeta) Read(key []byte, done func([]byte, error)) { m.ReadFrom(m.chosen, key, done) }

func (m *twoMeta) ReadFrom(i int, key []byte, done func([]byte, error)) {
	m.MetaStore.Read(key, func(value []byte, err error) {
		if err == nil {
			value, err = m.has(i, key, value)
		}
		done(value, err)
	})
}

func (m *twoMeta) repair(batch []block.KV) {
	for _, e := range batch {
		if !m.s.stays {
			delete(m.s.bad[0], string(e.Key))
			delete(m.s.bad[1], string(e.Key))
		}
	}
}

func (m *twoMeta) CommitNow(batch []block.KV) error {
	m.repair(batch)
	return m.MetaStore.CommitNow(batch)
}

func (m *twoMeta) Commit(batch []block.KV, done func(error)) {
	m.repair(batch)
	m.MetaStore.Commit(batch, done)
}

// startOver is a start over what a rig's store has, of which copies are damaged.
func (s *twoCopies) startOver(r *rig, under *store.Memory) error {
	r.clock = &block.Virtual{}
	r.store = under.Clone(r.clock)
	s.Store, s.exec = r.store, r.clock
	r.opt.Exec, r.opt.Store = r.clock, s
	a, err := Open(r.opt)
	if err == nil {
		r.a = a
	}
	return err
}

// counts returns the references of all grains of a rig's pools.
func (r *rig) counts() (list []string) {
	for _, p := range r.a.Pools() {
		for g := range uint64(p.Alloc.Grains()) {
			if n := p.Alloc.MapRefs(g); n > 0 {
				list = append(list, fmt.Sprint(p.Name(), " ", g, ": ", n, " of ", p.Alloc.Owner(g)))
			}
		}
	}
	return list
}

// pageKeys returns the keys of all pages of maps.
func (r *rig) pageKeys() (keys []string) {
	meta, err := r.store.Meta()
	if err == nil {
		err = meta.Load([]byte(node.Prefix), func(key, _ []byte) error {
			keys = append(keys, string(key))
			return nil
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return keys
}

// TestDerivedFromBothCopies: the account of space has to be derived, and of some pages of maps one copy of the metadata alone is as it
// was. A start reads each from where it is good, and has the account that there was. A copy that is damaged while the other is
// whole is made anew at once.
func TestDerivedFromBothCopies(t *testing.T) {
	s := &twoCopies{bad: [2]map[string][]byte{{}, {}}}
	r, v := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
	r.volume("thick", "p", 40<<20, false)
	mustOK(t, r.do(r.a.Volume("thick"), stamped(rng(70_000, 900), 77)))
	r.a.arena.Account().Unsure()
	r.storeMaps(r.a.Volume("thick"))
	want, under, keys, vol := r.counts(), r.store, r.pageKeys(), v.ID()
	leaves := 0
	for how, value := range map[string][]byte{"another value": []byte("damage"), "gone": nil, "not to be read": badBlock} {
		for n, key := range append(keys, "each has its own") {
			for first := range 2 {
				s.bad, s.renewed = [2]map[string][]byte{{}, {}}, [2]int{}
				if n < len(keys) {
					s.bad[first][key] = value
				} else {
					s.bad[first][keys[3]], s.bad[1-first][keys[4]], s.bad[1-first][keys[len(keys)-1]] = value, value, value
				}
				if err := s.startOver(r, under); err != nil {
					t.Errorf("page %x is %s in copy %d: %v", key, how, first, err)
					continue
				}
				if got := r.counts(); fmt.Sprint(got) != fmt.Sprint(want) || r.a.Recovery().Derived == "" {
					t.Errorf("page %x is %s in copy %d: %d grains have references, before there were %d; derived because %q", key, how, first, len(got), len(want), r.a.Recovery().Derived)
				}
				if n < len(keys) && (len(s.bad[0])+len(s.bad[1]) > 0 && first == 0 || s.renewed[1-first] > 0) {
					t.Errorf("page %x is %s in copy %d: copies were made anew %d times, and %d pages are damaged", key, how, first, s.renewed, len(s.bad[0])+len(s.bad[1]))
				}
				r.check()
				for leaf := range uint64(16) {
					if !r.reads(r.a.Volume("v"), rng(leaf*node.LeafSectors, 100), leaf<<20) {
						t.Errorf("page %x is %s in copy %d: leaf %d has other data", key, how, first, leaf)
					}
				}
				if k := node.KeyOf([]byte(keys[min(n, len(keys)-1)])); k.Vol == vol && k.Level == 0 {
					leaves++
				}
			}
		}
	}
	if leaves < 50 {
		t.Errorf("%d leaves were damaged: the test shows too little", leaves)
	}
}

// TestWrongAccountAndADamagedLeaf: as TestDerivedFromBothCopies, where the first copy's start finds that the account is wrong.
func TestWrongAccountAndADamagedLeaf(t *testing.T) {
	for first := range 2 {
		s := &twoCopies{bad: [2]map[string][]byte{{}, {}}}
		r := leftGarbageRig(t, true, func(under block.Store) block.Store { s.Store = under; return s })
		v := r.a.Volume("v")
		s.bad[first][string(node.LeafKey(v.ID(), 15).Bytes())] = []byte("damage")
		if err := s.startOver(r, r.store); err != nil {
			t.Errorf("copy %d: %v", first, err)
			continue
		}
		if r.a.Recovery().Derived == "" || !r.reads(r.a.Volume("v"), rng(15*node.LeafSectors, 100), 15<<20) {
			t.Errorf("copy %d: it was derived because %q, or the data is another one", first, r.a.Recovery().Derived)
		}
		r.check()
	}
}

// TestHomesFromBothCopies: a start finds the homes of a volume that is promised its space by its leaves, of which one is damaged in
// the copy that it reads.
func TestHomesFromBothCopies(t *testing.T) {
	s := &twoCopies{bad: [2]map[string][]byte{{}, {}}}
	r := rigOver(t, Options{MapBytes: 1}, func(under block.Store) block.Store { s.Store = under; return s })
	r.pool("p", PoolSpec{}, 128<<20)
	v := r.volume("v", "p", 80<<20, false)
	for leaf := range uint64(5) {
		mustOK(t, r.do(v, stamped(rng(leaf*node.LeafSectors, 500), leaf<<20)))
	}
	r.storeMaps(v)
	want, under := v.Map.Tenant().Marked, r.store
	for first := range 2 {
		for _, value := range [][]byte{[]byte("damage"), nil, badBlock} {
			s.bad = [2]map[string][]byte{{}, {}}
			s.bad[first][string(node.LeafKey(v.ID(), 2).Bytes())] = value
			if err := s.startOver(r, under); err != nil {
				t.Errorf("copy %d: %v", first, err)
				continue
			}
			if got := r.a.Volume("v").Map.Tenant().Marked; got != want || want == 0 {
				t.Errorf("copy %d: %d homes, before there were %d", first, got, want)
			}
			if len(s.bad[0]) > 0 {
				t.Errorf("copy %d: the copy that was read is damaged still", first)
			}
			r.check()
		}
	}
}

// TestScrubReadsBothCopies: a scrub, and a check while the array serves, find what is damaged in either copy of the metadata, and have
// the other one's written there. Where that does not help the next start makes the copy anew.
func TestScrubReadsBothCopies(t *testing.T) {
	for n := range 4 {
		first, stays := n%2, n/2 == 0
		s := &twoCopies{bad: [2]map[string][]byte{{}, {}}, stays: stays}
		r, _ := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
		if got := verifyAll(r.a, r.clock, false).Problems; len(got) > 0 {
			t.Errorf("of copies that are whole it says %q", got)
		}
		keys := r.pageKeys()
		damage := func() { s.bad[first][keys[2]], s.bad[first][keys[len(keys)-1]] = []byte("damage"), badBlock }
		damage()
		damaged := []int(nil)
		r.a.StartScrub(0, func(s *Scrub) { damaged = s.Damaged })
		r.clock.Run()
		if len(damaged) != 2 || damaged[first] != 2 || damaged[1-first] != 0 {
			t.Errorf("copy %d: the scrub finds %d", first, damaged)
		}
		if !stays {
			if got := verifyAll(r.a, r.clock, false).Problems; len(got) > 0 || len(s.bad[first]) > 0 {
				t.Errorf("copy %d: behind the scrub a check says %q", first, got)
			}
			damage()
		}
		want := fmt.Sprintf("metadata: 2 entries of copy %d of the checkpoints are damaged; if another copy has them, the next start rebuilds this one", first+1)
		if got := verifyAll(r.a, r.clock, false).Problems; len(got) != 1 || got[0] != want {
			t.Errorf("copy %d: a check says %q", first, got)
		}
		r.storeMaps(r.a.Volume("v"))
		if err := s.startOver(r, r.store); err != nil {
			t.Fatal(err)
		}
		if anew := map[bool]int{true: 1}[stays]; s.renewed[first] != anew || s.renewed[1-first] != 0 || len(s.bad[first]) > 0 {
			t.Errorf("copy %d, which stays damaged: %v; copies were made anew %d times", first, stays, s.renewed)
		}
		if got := verifyAll(r.a, r.clock, false).Problems; len(got) > 0 {
			t.Errorf("copy %d: behind that a check says %q", first, got)
		}
	}
}
