package account

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/testkit"
)

// randomStore returns what a meta store has of random leaves of four volumes, of which one is of a pool that is no more, and of
// which one leaf is of no pool.
func randomStore(rnd *rand.Rand) map[string][]byte {
	a, space := newAccount(5)
	store := map[string][]byte{}
	put := func(key, value []byte) {
		if store[string(key)] = value; value == nil {
			delete(store, string(key))
		}
	}
	for i := range 1 + rnd.IntN(12) {
		vol := uint32(rnd.IntN(4))
		nd := node.Node{Vol: vol, Index: uint64(i)}
		pool := uint16(7)
		switch {
		case vol == 3:
			pool = 9
		case i == 5:
			pool = node.NoPool
		}
		a.Open(vol, 7, space)
		for range rnd.IntN(40) {
			g := rnd.Uint64N(4 * layout.ExtentGrains)
			if rnd.IntN(3) == 0 {
				g &= 7
			}
			s := &nd.Slots[rnd.IntN(node.Fanout)]
			if !s.Uniform() {
				continue
			}
			if *s = window.Data(g << layout.WindowShift); pool == 7 {
				a.Has(vol, g)
			}
		}
		var sums window.Sums
		for _, s := range nd.Slots {
			sums.Add(a.Nodes.Sums(s, 0))
		}
		key, page := nd.Key().Bytes(), a.Nodes.Encode(&nd)
		put(key, page)
		put(node.EntryKey(key), node.EncodeEntry(0, page, sums, pool))
	}
	a.EndBatch(put)
	return store
}

// compare returns what a comparison of a store finds.
func compare(store map[string][]byte) (list []Difference, ok bool, err error) {
	var c Comparison
	c.Pool(7, 5*layout.ExtentGrains)
	c.Pool(8, 2*layout.ExtentGrains)
	for _, k := range slices.Sorted(maps.Keys(store)) {
		if err := c.Take([]byte(k), store[k]); err != nil {
			return nil, false, err
		}
	}
	list, ok = c.Differences()
	return list, ok, nil
}

// TestComparison: an account that says what the pages do has no difference; one whose entry is another, or is gone, or that lacks a
// leaf, has.
func TestComparison(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	differ := 0
	for n := range 400 {
		store := randomStore(rnd)
		if list, ok, err := compare(store); err != nil || !ok || len(list) > 0 {
			t.Fatalf("round %d: %+v, %v, %v", n, list, ok, err)
		}
		keys := slices.Sorted(maps.Keys(store))
		key, want := keys[rnd.IntN(len(keys))], 0
		switch {
		case key[:1] == Prefix: // of an extent the account has nothing
			for left := le.Uint64(store[key][1:]); left != 0; left &= left - 1 {
				want++
			}
			delete(store, key)
		case key[:1] == node.Prefix: // a leaf is gone
			pool, _ := node.DecodeEntry([]byte(node.EntryPrefix+key[1:]), store[node.EntryPrefix+key[1:]])
			grains := map[uint64]bool{}
			for i := 0; i < node.Fanout && pool.Pool == 7; i++ {
				if s := window.Slot(le.Uint64(store[key][i*8:])); !s.Uniform() {
					grains[s.Value()>>layout.WindowShift] = true
				}
			}
			want = len(grains)
			delete(store, key)
		default:
			store[Prefix] = []byte{1}
			if _, ok, err := compare(store); err != nil || ok {
				t.Fatalf("round %d: an account that is not known to be right is compared: %v", n, err)
			}
			continue
		}
		list, ok, err := compare(store)
		if got := fmt.Sprint(len(list)); err != nil || !ok || (want > 0) != (got == "1") || want > 0 && (list[0].Grains != want || list[0].Pool != 7 || list[0].Stored == list[0].Pages) {
			t.Fatalf("round %d: without %x: %+v, %v, %v; %d grains differ", n, key, list, ok, err, want)
		}
		if want > 0 {
			differ++
		}
	}
	if differ < 100 {
		t.Errorf("%d accounts differ: the test shows too little", differ)
	}
}

// TestReferencesOfNoPages: an account that has references is compared where there is not one page.
func TestReferencesOfNoPages(t *testing.T) {
	a, space := newAccount(5)
	a.Open(0, 7, space)
	a.Has(0, 70)
	store := map[string][]byte{}
	a.EndBatch(func(key, value []byte) { store[string(key)] = value })
	if list, ok, err := compare(store); err != nil || !ok || len(list) != 1 || list[0] != (Difference{7, 1, 70, 1, 0}) {
		t.Errorf("%+v, %v, %v", list, ok, err)
	}
}
