package account

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/testkit"
)

func newAccount(extents int) (*Account, *alloc.Space) {
	a := &Account{Nodes: new(node.Slab), Dead: Dead{}, Doomed: Dead{}}
	s := alloc.New([]int{extents}, alloc.Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
	a.OpenPool(7, s)
	return a, s
}

// TestEntries: what a book puts another one loads, with the owners that are there, and puts again as it was; what has none left is
// removed.
func TestEntries(t *testing.T) {
	seed := testkit.Seed(t)
	for round := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, round))
		a, space := newAccount(5)
		b, other := newAccount(5)
		for vol := range uint32(3) {
			a.Open(vol, 7, space)
			b.Open(vol, 7, other)
			if vol > 0 {
				other.AddTenant(vol)
			}
		}
		tenants := []*alloc.Tenant{space.AddTenant(0), space.AddTenant(1), space.AddTenant(2)}
		for range rnd.IntN(600) {
			g, vol := rnd.Uint64N(4*layout.ExtentGrains), rnd.IntN(3)
			if rnd.IntN(3) == 0 {
				g &= 7
			}
			for range 1 + rnd.IntN(1+rnd.IntN(400)) {
				a.Has(uint32(vol), g)
				space.Recount(g, tenants[vol])
			}
		}
		store := map[string][]byte{}
		put := func(key, value []byte) {
			if store[string(key)] = value; value == nil {
				delete(store, string(key))
			}
		}
		a.EndBatch(put)
		for key, value := range store {
			if known, err := b.Load([]byte(key), value); !known || err != nil {
				t.Fatalf("-seed %d, round %d: entry %x: %v, %v", seed, round, key, known, err)
			}
		}
		for g := range uint64(5 * layout.ExtentGrains) {
			n := a.Refs(0, g)
			if got := b.Refs(0, g); got != n || other.MapRefs(g) != n {
				t.Fatalf("-seed %d, round %d: grain %d has %d references, and %d in the space, not %d", seed, round, g, got, other.MapRefs(g), n)
			}
			if owner := space.Owner(g); n > 0 && owner > 0 && other.Owner(g) != owner || n > 0 && owner == 0 && other.Owner(g) < 3 {
				t.Fatalf("-seed %d, round %d: grain %d is volume %d's, not %d's", seed, round, g, other.Owner(g), owner)
			}
			for ; n > 0; n-- {
				a.Lost(0, g)
			}
		}
		if a.Close(space); a.books[0].space == nil && len(store) > 0 {
			t.Fatalf("-seed %d, round %d: the book is closed before the store has nothing of it", seed, round)
		}
		if a.EndBatch(put); a.books[0].space != nil || a.books[0].refs != nil {
			t.Fatalf("-seed %d, round %d: the book of a pool that is no more has its space still", seed, round)
		}
		var l List // of a leaf that took a reference and gave it back, and whose key is removed late
		a.Take(&l, 3)
		a.Give(&l, 3)
		if a.Settle(1, &l); l != 0 || a.Notes() != 0 {
			t.Fatalf("-seed %d, round %d: %d notes", seed, round, a.Notes())
		}
		if len(store) != 0 {
			t.Fatalf("-seed %d, round %d: %d entries without references", seed, round, len(store))
		}
	}
}

// TestDamagedEntries: what means nothing is refused, and nothing panics.
func TestDamagedEntries(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 20000 {
		a, _ := newAccount(2)
		value := []byte{byte(rnd.IntN(4))}
		for range rnd.IntN(80) {
			value = append(value, byte(rnd.Uint32()))
		}
		_, _ = a.Load(keyOf(7, uint32(rnd.IntN(2))), value)
	}
	a, _ := newAccount(2)
	good := append(le.AppendUint64([]byte{0}, 1), 0, 0, 0, 0)
	for what, row := range map[string]struct {
		key, value []byte
		known, bad bool
	}{
		"a good one":        {keyOf(7, 0), good, true, false},
		"of no pool":        {keyOf(8, 0), good, false, false},
		"behind the end":    {keyOf(7, 2), good, true, true},
		"the last of all":   {keyOf(7, 1<<32-1), good, true, true},
		"too short":         {keyOf(7, 1), good[:12], true, true},
		"too long":          {keyOf(7, 1), append(bytes.Clone(good), 0), true, true},
		"a key of no sense": {keyOf(7, 1)[:5], good, false, true},
	} {
		if known, err := a.Load(row.key, row.value); known != row.known || (err != nil) != row.bad {
			t.Errorf("%s: %v, %v", what, known, err)
		}
	}
}

// TestTouchedIsAtTheMost: what a batch still needs is no less than what it gets, or a store would refuse it: of extents of one owner,
// of several, and with grains that are shared, changed and removed.
func TestTouchedIsAtTheMost(t *testing.T) {
	seed := testkit.Seed(t)
	for round := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, round))
		a, space := newAccount(40)
		var tenants []*alloc.Tenant
		for vol := range uint32(1 + rnd.IntN(3)) {
			a.Open(vol<<20, 7, space)
			tenants = append(tenants, space.AddTenant(vol<<20))
		}
		var grains []uint64
		for range 5 {
			for range rnd.IntN(1000) {
				vol := rnd.IntN(len(tenants))
				if g, ok := space.Take(tenants[vol]); ok {
					grains = append(grains, g)
					for range 1 + rnd.IntN(1+rnd.IntN(200)) {
						space.Retain(g)
						a.Has(uint32(vol)<<20, g)
					}
				}
			}
			for i := 0; i < len(grains); i += 1 + rnd.IntN(9) {
				if a.Refs(0, grains[i]) > 0 {
					a.Lost(0, grains[i])
				}
			}
			bytes, most := 0, a.Touched()
			if a.EndBatch(func(key, value []byte) { bytes += len(key) + len(value) }); bytes > most || bytes == 0 != (most == 0) || a.Touched() != 0 {
				t.Fatalf("-seed %d, round %d: the batch got %d bytes, and not %d at the most; it needs %d more", seed, round, bytes, most, a.Touched())
			}
		}
	}
}

// TestUnsureWhileDerived: what is not known any more while the account is put for the first time is not known behind it.
func TestUnsureWhileDerived(t *testing.T) {
	a, _ := newAccount(2)
	a.Derived = true
	a.Unsure()
	store := map[string][]byte{}
	put := func(key, value []byte) { store[string(key)] = value }
	for a.Derived {
		a.PutDerived(put)
	}
	if a.EndBatch(put); len(store[Prefix]) == 0 {
		t.Error("the store says that the account is right")
	}
}
