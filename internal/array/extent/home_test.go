package extent

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// TestHomeBesideThoseOfGarbage: a write in place makes a grain the home of its window, which had none, although the volume has more
// homes than windows: those of the garbage count until they are collected. Else a grain stays reserved for the window that nobody
// needs, and that others do not get.
func TestHomeBesideThoseOfGarbage(t *testing.T) {
	for _, thick := range []bool{true, false} {
		r := newTestRig(t, rand.New(rand.NewPCG(1, 2)), t.Name(), 10)
		clone, v := r.add(1000, false), r.add(2*node.LeafSectors, thick)
		promise := func(at uint64) {
			if !thick {
				r.do(v, at, 1, sector{state: block.Anchored})
			}
		}
		promise(8)
		r.first(clone, 0)
		r.do(v, 0, 8, clone.sectors[0]) // shared, and so no home
		r.do(clone, 0, 8, sector{})
		for w := range uint64(2) {
			at := node.LeafSectors + w*layout.WindowSectors
			promise(at + 8)
			r.first(v, at)
		}
		r.resize(v, layout.WindowSectors) // the second leaf is garbage
		if a := v.m.Tenant().Account; a.Entitled != 1 || a.Homes != 2 || !r.arena.HasGarbage() {
			t.Fatalf("thick: %v, the account is %+v", thick, a)
		}
		if _, mapped, ok := v.m.InPlace(0, 0, 8); !ok || !mapped {
			t.Fatalf("thick: %v, the window is not written in place", thick)
		}
		if s, _ := v.m.find(0); v.m.homes.Of(s, 0) == alloc.NoGrain {
			t.Errorf("thick: %v, the window has no home", thick)
		}
		r.collect()
		if got, want := r.space.Available(), r.space.Grains()-1; got != want {
			t.Errorf("thick: %v, %d grains are available, not %d", thick, got, want)
		}
		r.check()
	}
}
