// What keeps a grain: references of maps, holds of copies, pins of transfers. The last one that
// goes frees it, at once; who counts wrongly here panics.

package alloc

import "github.com/arraysim/arraysim/internal/array/layout"

// What keeps a grain: references, holds and pins. Each function that takes the last of them away
// frees the grain, so that nobody else has to.

// Sole reports whether a grain has one reference or hold: as long as that is so, a write may replace
// what is in the grain.
func (s *Space) Sole(g uint64) bool {
	return s.sole[g/layout.ExtentGrains]>>(g%layout.ExtentGrains)&1 != 0
}

// Refs returns the number of references and holds of a grain.
func (s *Space) Refs(g uint64) uint32 {
	gi := s.grain(g)
	return gi.refs + gi.held
}

// MapRefs returns the number of references of a grain, without holds.
func (s *Space) MapRefs(g uint64) uint32 { return s.grain(g).refs }

// Retain and Release count references from the maps. A home that gets a second reference is one
// that its window must not write to any more: another grain is reserved for it.
func (s *Space) Retain(g uint64) {
	gi := s.grain(g)
	if gi.refs++; gi.refs == 2 && gi.home != 0 {
		s.housed(gi, -1)
	}
	s.counted(g, gi)
}

// Release gives a reference back. It panics where there is none: who counts wrongly here would
// sooner or later free what somebody else has.
func (s *Space) Release(g uint64) {
	gi := s.grain(g)
	if gi.refs == 0 {
		panic("alloc: a grain was released more often than retained")
	}
	gi.refs--
	s.counted(g, gi)
	switch {
	case gi.refs == 1 && gi.home != 0:
		s.housed(gi, 1)
		s.more()
	case gi.refs == 0:
		s.clearHome(gi)
		s.freeUnused(g, gi)
	}
}

// Hold and Unhold count references of copies. They do not count in the account of space: where
// there is none left for what is promised, they are given up.
func (s *Space) Hold(g uint64) {
	gi := s.grain(g)
	gi.held++
	s.counted(g, gi)
}

// Unhold gives a hold back.
func (s *Space) Unhold(g uint64) {
	gi := s.grain(g)
	gi.held--
	s.counted(g, gi)
	s.freeUnused(g, gi)
}

func (s *Space) freeUnused(g uint64, gi *grainInfo) {
	switch {
	case gi.refs+gi.held > 0:
	case s.extent(g).pins[g%layout.ExtentGrains] > 0:
		s.leaving++
	default:
		s.free(g, gi)
	}
}

// Pin keeps physical sectors [phys, phys+n) from being freed and used anew while a transfer has to
// do with them.
func (s *Space) Pin(phys, n uint64) {
	for g := phys >> layout.WindowShift; g <= (phys+n-1)>>layout.WindowShift; g++ {
		s.extent(g).pins[g%layout.ExtentGrains]++
	}
}

// Unpin ends a Pin of the same range.
func (s *Space) Unpin(phys, n uint64) {
	for g := phys >> layout.WindowShift; g <= (phys+n-1)>>layout.WindowShift; g++ {
		pins := &s.extent(g).pins[g%layout.ExtentGrains]
		if *pins--; *pins == 0 && !s.Sole(g) && s.Refs(g) == 0 {
			s.leaving--
			s.free(g, s.grain(g))
			s.more()
		}
	}
}

// Leaving returns the number of grains that nothing but transfers keep.
func (s *Space) Leaving() int { return s.leaving }

// Recount counts a reference that a map has after a start, when nothing is counted yet; t is the
// map's tenant. The first that refers to a grain owns it. Preconditions: g is in the space.
func (s *Space) Recount(g uint64, t *Tenant) {
	gi := s.grain(g)
	if s.isFree(g) {
		s.use(uint32(g/layout.ExtentGrains), 1<<(g%layout.ExtentGrains))
		s.allocated++
		gi.owner = t.vol
		t.allocated++
		if s.discards.stale != nil { // nobody knows what of it an earlier life has written
			s.discards.stale[g/layout.ExtentGrains] |= 1 << (g % layout.ExtentGrains)
		}
	}
	gi.refs++
	s.counted(g, gi)
}
