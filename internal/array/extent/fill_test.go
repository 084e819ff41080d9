package extent

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// filling is a map that is filled.
type filling struct {
	arena *Arena
	space *alloc.Space
	m     *Map
}

func newFilling(windows uint64, thick bool) *filling {
	f := &filling{arena: NewArena(func() {})}
	f.space = alloc.New([]int{20, 12}, alloc.Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
	f.m = f.arena.NewMap(Config{Space: f.space, Volume: 1, Sectors: windows * layout.WindowSectors, Thick: thick,
		Drop: func(uint64, layout.Mask) {}})
	return f
}

// one makes a window data without Fill; false: there is no room.
func (f *filling) one(w uint64) bool {
	g, ok := f.m.Allocate(w)
	if ok {
		f.m.SetData(block.Range{Start: w << layout.WindowShift, Count: layout.WindowSectors}, g<<layout.WindowShift)
	}
	return ok
}

// TestFillIsWindowsOneByOne fills parts of maps that have states and data already, with Fill where it
// can and one by one.
func TestFillIsWindowsOneByOne(t *testing.T) {
	const windows = 3 * node.Fanout
	for first, i := testkit.Seed(t), uint64(0); i < 100; i++ {
		seed := first + i
		var both [2]*filling
		filled := uint64(0)
		for i := range both {
			rnd := rand.New(rand.NewPCG(seed, 1))
			f := newFilling(windows, seed%8 == 0)
			both[i] = f
			for range rnd.IntN(12) {
				lo := rnd.Uint64N(windows * layout.WindowSectors)
				hi := lo + 1 + rnd.Uint64N(min(windows*layout.WindowSectors-lo, 20*layout.WindowSectors))
				switch state := block.State(rnd.IntN(5)); {
				case state < block.Data && (state != block.Anchored || seed%3 == 0):
					f.m.SetState(lo, hi, state)
				default:
					f.one(lo >> layout.WindowShift)
				}
			}
			for range 1 + rnd.IntN(4) {
				w := rnd.Uint64N(windows)
				for end := w + 1 + rnd.Uint64N(windows-w); w < end; {
					if i == 0 {
						if n := f.m.Fill(w, end-w); n > 0 {
							filled += n
							w += n
							continue
						}
					}
					if !f.m.HasData(w) && !f.one(w) {
						t.Fatalf("seed %d: there is no room for window %d", seed, w)
					}
					w++
				}
			}
		}
		a, b := both[0], both[1]
		for w := range uint64(windows) {
			x, _ := a.m.find(w)
			y, _ := b.m.find(w)
			if x.Kind() != y.Kind() || x.Kind() < 4 && x != y {
				t.Fatalf("seed %d: window %d is %#x, one by one %#x", seed, w, x, y)
			}
		}
		if a.m.sum != b.m.sum || a.arena.Nodes() != b.arena.Nodes() || a.space.Available() != b.space.Available() || *a.m.tenant != *b.m.tenant {
			t.Fatalf("seed %d: the map has %+v and %d nodes, one by one %+v and %d; its account is %+v and %+v",
				seed, a.m.sum, a.arena.Nodes(), b.m.sum, b.arena.Nodes(), a.m.tenant, b.m.tenant)
		}
		u := a.arena.NewAudit(a.space, func(_ uint32, why string) { t.Fatalf("seed %d: %s", seed, why) })
		for u.Step(1000) {
		}
		for _, why := range u.Compare() {
			t.Fatalf("seed %d: %s", seed, why)
		}
		u.End()
		for a.arena.Collect(1 << 20) {
		}
		c := a.arena.Checkpoint()
		c.Begin(func(_, _ []byte) {})
		for c.Next() {
		}
		for g := range uint64(a.space.Grains()) {
			if got, want := a.arena.acct.Refs(a.m.vol, g), a.space.MapRefs(g); got != want {
				t.Fatalf("seed %d: the book has %d references of grain %d, the space %d", seed, got, g, want)
			}
		}
		if a.m.homes.Thick && filled > 0 {
			t.Fatalf("seed %d: %d windows that are promised their space were filled without homes", seed, filled)
		}
	}
}

// TestFillGoesByExtents: an empty volume is filled an extent at a time.
func TestFillGoesByExtents(t *testing.T) {
	const windows = 4 * node.Fanout
	f, calls := newFilling(windows, false), 0
	for w := uint64(0); w < windows; calls++ {
		n := f.m.Fill(w, windows-w)
		if n == 0 {
			t.Fatalf("window %d was not filled", w)
		}
		w += n
	}
	if want := windows / layout.ExtentGrains; calls != want {
		t.Errorf("%d windows took %d calls, not %d", windows, calls, want)
	}
}
