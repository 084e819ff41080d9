package wcache

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// TestPageIndex puts pages in and takes them out at random, with many more grains than slots, so
// that most are chained, and compares every answer with a map.
func TestPageIndex(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		pages := make([]page, 64)
		x := newPageIndex(pages)
		want := map[layout.PageKey]uint32{}
		for range 5000 {
			i := uint32(r.IntN(len(pages)))
			p := &pages[i]
			k := layout.PageKey(r.IntN(40)*layout.GrainPages + r.IntN(2))
			switch newest, there := want[p.key]; {
			case there && newest == i && r.IntN(2) == 0:
				x.remove(i)
				delete(want, p.key)
			case there && newest == i:
				x.removeKnown(i, p.key)
				delete(want, p.key)
			default:
				x.removeKnown(i, p.key) // it is not there: nothing may change
				if _, taken := want[k]; !taken {
					p.key = k
					x.insert(i)
					want[k] = i
				}
			}
			x.touch([]layout.PageKey{k, p.key})
			for g := range layout.PageKey(40) {
				for in := range layout.PageKey(2) {
					k := g*layout.GrainPages + in
					i, there := want[k]
					if !there {
						i = NoPage
					}
					if got := x.Lookup(k); got != i {
						t.Fatalf("seed %d: key %d is page %d, not %d", seed, k, got, i)
					}
				}
			}
		}
	}
}
