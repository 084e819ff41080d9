package hostcache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// random returns a source whose seed is printed if the test fails.
func random(t testing.TB) *rand.Rand {
	return rand.New(rand.NewPCG(testkit.Seed(t), 1))
}

// workload makes references with the shapes that separate policies: a skewed
// part, scans, and loops larger than a small cache.
func workload(r *rand.Rand, n, blocks int) []Key {
	var out []Key
	for len(out) < n {
		start := r.IntN(blocks)
		switch r.IntN(4) {
		case 0:
			for i := range r.IntN(blocks) {
				out = append(out, Key((start+i)%blocks))
			}
		case 1:
			for i := range 3 * (1 + r.IntN(8)) {
				out = append(out, Key((start+i%8)%blocks))
			}
		default:
			for range 50 {
				out = append(out, Key(float64(blocks)*r.Float64()*r.Float64()*r.Float64()))
			}
		}
	}
	return out[:n]
}

// naive caches are slices, oldest first, written from the policies' descriptions.
type naive struct {
	keys []Key
	mark map[Key]bool
	hand int
}

func (c *naive) access(policy string, k Key, capacity int) bool {
	i := slices.Index(c.keys, k)
	if i >= 0 {
		switch policy {
		case "lru":
			c.keys = append(slices.Delete(c.keys, i, i+1), k)
		case "clock", "sieve":
			c.mark[k] = true
		}
		return true
	}
	for len(c.keys) >= capacity {
		switch policy {
		case "lru", "fifo":
			c.keys = c.keys[1:]
		case "clock":
			v := c.keys[0]
			c.keys = c.keys[1:]
			if c.mark[v] {
				c.keys = append(c.keys, v)
			}
			delete(c.mark, v)
		case "sieve":
			for c.mark[c.keys[c.hand]] {
				delete(c.mark, c.keys[c.hand])
				c.hand = (c.hand + 1) % len(c.keys)
			}
			c.keys = slices.Delete(c.keys, c.hand, c.hand+1)
			if c.hand == len(c.keys) {
				c.hand = 0
				if len(c.keys) > 0 {
					// The hand stands behind the newest: the block that comes now is not passed.
					c.keys = append(c.keys, k)
					return false
				}
			}
		}
	}
	c.keys = append(c.keys, k)
	return false
}

func TestExactPoliciesAgainstModels(t *testing.T) {
	r := random(t)
	for _, capacity := range []int{1, 2, 3, 7, 50, 1000} {
		refs := workload(r, 4000, 200)
		for _, policy := range []string{"lru", "fifo", "clock", "sieve"} {
			ix := mustNew(Config{Policy: policy, Capacity: int64(capacity)})
			model := &naive{mark: map[Key]bool{}}
			for i, k := range refs {
				want := model.access(policy, k, capacity)
				if got := ix.Access(k, 0); got != want {
					t.Fatalf("%s of %d blocks: reference %d to %d: hit %t, want %t", policy, capacity, i, k, got, want)
				}
			}
			verify(t, ix)
		}
	}
}

// TestBelady compares with the definition: look ahead from every eviction.
func TestBelady(t *testing.T) {
	r := random(t)
	for _, capacity := range []int{1, 2, 5, 40, 500} {
		refs := workload(r, 1500, 100)
		var cache []Key
		for i := range 2 { // the second time with sizes that are all one
			cache = cache[:0]
			var sizes []uint32
			if i == 1 {
				sizes = slices.Repeat([]uint32{1}, len(refs))
			}
			misses, want := 0, 0
			Belady(refs, sizes, int64(capacity), func(_ int, hit bool) {
				if !hit {
					misses++
				}
			})
			for i, k := range refs {
				if slices.Contains(cache, k) {
					continue
				}
				want++
				if len(cache) == capacity {
					far, at := -1, 0
					for j, c := range cache {
						n := slices.Index(refs[i:], c)
						if n < 0 {
							n = len(refs)
						}
						if n > far {
							far, at = n, j
						}
					}
					cache = slices.Delete(cache, at, at+1)
				}
				cache = append(cache, k)
			}
			if misses != want {
				t.Errorf("%d blocks: %d misses, want %d", capacity, misses, want)
			}
		}
	}
}

// verify checks all that must hold between calls.
func verify(t testing.TB, ix *Index) {
	t.Helper()
	var units, blocks, pinned [numLists]int64
	inTable := int64(0)
	dirtySectors := int64(0)
	for s := uint32(numLists); s < uint32(len(ix.meta)); s++ {
		state := ix.meta[s] & stateMask
		if state == stateFree {
			continue
		}
		units[state] += ix.weight(s)
		blocks[state]++
		if ix.meta[s]&pinMask != 0 {
			pinned[state]++
		}
		if got := ix.find(ix.nodes[s].key); got != s {
			t.Fatalf("%s: find of the key of slot %d gives %d", ix.Policy(), s, got)
		}
		inTable++
		if state < firstGhost && ix.bitmaps.dirty != nil {
			at, per := int(s-numLists)*ix.bitmaps.per, ix.bitmaps.per
			n := countBits(ix.bitmaps.dirty, at, per)
			dirtySectors += int64(n)
			if (n > 0) != (ix.meta[s]&pinDirty != 0) || ix.dirty.keys.Contains(ix.nodes[s].key) != (n > 0) {
				t.Fatalf("%s: slot %d has %d dirty sectors, pin %x", ix.Policy(), s, n, ix.meta[s]&pinMask)
			}
		}
		if state >= firstGhost && ix.meta[s]&pinMask != 0 {
			t.Fatalf("%s: a ghost is pinned", ix.Policy())
		}
	}
	if units != ix.units || blocks != ix.blocks || pinned != ix.pinnedIn {
		t.Fatalf("%s: counted %v %v %v, have %v %v %v", ix.Policy(), units, blocks, pinned, ix.units, ix.blocks, ix.pinnedIn)
	}
	var used, resident, ghosts, pins int64
	for state := range numLists {
		if state < firstGhost {
			used, resident, pins = used+units[state], resident+blocks[state], pins+pinned[state]
		} else {
			ghosts += units[state]
		}
	}
	if used != ix.used || resident != ix.resident || pins != ix.pinned || used > ix.capacity {
		t.Fatalf("%s: used %d of %d (have %d), resident %d (%d), pinned %d (%d)", ix.Policy(), used, ix.capacity, ix.used, resident, ix.resident, pins, ix.pinned)
	}
	if ghosts > ix.ghostsMax {
		t.Fatalf("%s: ghosts of %d units, at most %d", ix.Policy(), ghosts, ix.ghostsMax)
	}
	entries := int64(0)
	over := make([][classes]int, len(ix.table.buckets))
	for i := range ix.table.buckets {
		b := &ix.table.buckets[i]
		for n, s := range b.slots {
			if b.tags[n] == 0 {
				continue
			}
			entries++
			h := hash(ix.nodes[s].key)
			if b.tags[n] != tag(h) {
				t.Fatalf("%s: slot %d has tag %x in bucket %d, want %x", ix.Policy(), s, b.tags[n], i, tag(h))
			}
			for at := ix.table.home(h); at != i; at = ix.table.after(at) {
				over[at][class(h)]++
			}
		}
	}
	for i := range ix.table.buckets {
		for c, got := range ix.table.buckets[i].over {
			if want := over[i][c]; int(got) != want && got != overMax {
				t.Fatalf("%s: %d slots of class %d are behind bucket %d, which counts %d", ix.Policy(), want, c, i, got)
			}
		}
	}
	if entries != inTable || ix.table.used != inTable {
		t.Fatalf("%s: %d entries in the table, %d counted, %d slots in use", ix.Policy(), entries, ix.table.used, inTable)
	}
	if dirtySectors != ix.DirtySectors() {
		t.Fatalf("%s: %d dirty sectors, counted %d", ix.Policy(), dirtySectors, ix.DirtySectors())
	}
	verifyLists(t, ix)
}

// verifyLists checks that all lists are rings and hold what the states say.
func verifyLists(t testing.TB, ix *Index) {
	t.Helper()
	listed := int64(0)
	for l := range uint32(numLists) {
		for s := ix.nodes[l].next; s != l; s = ix.nodes[s].next {
			if ix.nodes[ix.nodes[s].prev].next != s || ix.nodes[ix.nodes[s].next].prev != s {
				t.Fatalf("%s: list %d is broken at slot %d", ix.Policy(), l, s)
			}
			listed++
		}
	}
	want := ix.table.used
	cur := ix.policy
	if a, ok := cur.(*auto); ok {
		cur = a.live[a.cur]
	}
	if p, ok := cur.(*lirs); ok {
		want -= ix.blocks[lirsQ]
		if int64(p.q.used) != ix.blocks[lirsQ]+ix.blocks[lirsBoth] {
			t.Fatalf("lirs: %d queued, want %d and %d", p.q.used, ix.blocks[lirsQ], ix.blocks[lirsBoth])
		}
	}
	if listed != want {
		t.Fatalf("%s: %d slots on lists, want %d", ix.Policy(), listed, want)
	}
}
