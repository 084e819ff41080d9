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
	x := s.extent(g)
	return s.refs(x, g) + s.held(x, g)
}

// MapRefs returns the number of references of a grain, without holds.
func (s *Space) MapRefs(g uint64) uint32 { return s.refs(s.extent(g), g) }

// Retain and Release count references from the maps. A home that gets a second reference is one
// that its window must not write to any more: another grain is reserved for it.
func (s *Space) Retain(g uint64) {
	x := s.extent(g)
	was := s.refs(x, g)
	s.setRefs(x, g, was, was+1)
	if was == 1 && x.homed>>in(g)&1 != 0 {
		s.housed(s.ownerOf(x, g), -1)
	}
}

// Release gives a reference back. It panics where there is none: who counts wrongly here would
// sooner or later free what somebody else has.
func (s *Space) Release(g uint64) {
	x := s.extent(g)
	was := s.refs(x, g)
	if was == 0 {
		s.miscounted()
		panic(Miscount("a grain was released more often than retained"))
	}
	s.setRefs(x, g, was, was-1)
	switch {
	case was == 2 && x.homed>>in(g)&1 != 0:
		s.housed(s.ownerOf(x, g), 1)
		s.more()
	case was == 1:
		s.clearHome(x, g, 0)
		if s.held(x, g) == 0 {
			s.freeUnused(x, g)
		}
	}
}

// Miscount is what a Space panics with that was counted wrongly: by who uses it, or by an earlier life, whose account of
// space was stored.
type Miscount string

// Error says which.
func (m Miscount) Error() string { return "the account of space is wrong: " + string(m) }

func (s *Space) miscounted() {
	if s.events.Miscounted != nil {
		s.events.Miscounted()
	}
}

// Hold and Unhold count references of copies. They do not count in the account of space: where
// there is none left for what is promised, they are given up.
func (s *Space) Hold(g uint64) {
	x := s.extent(g)
	was := s.held(x, g)
	s.setHeld(x, g, was, was+1)
}

// Unhold gives a hold back.
func (s *Space) Unhold(g uint64) {
	x := s.extent(g)
	was := s.held(x, g)
	if was == 0 {
		panic("alloc: a grain was given back more often than held")
	}
	s.setHeld(x, g, was, was-1)
	if was == 1 && s.refs(x, g) == 0 {
		s.freeUnused(x, g)
	}
}

// freeUnused frees a grain that has neither references nor holds any more, unless a transfer reads it.
func (s *Space) freeUnused(x *extentInfo, g uint64) {
	if s.isPinned(x, g) {
		s.leaving++
		return
	}
	s.free(x, g)
}

// Pin keeps physical sectors [phys, phys+n) from being freed and used anew while a transfer has to
// do with them.
func (s *Space) Pin(phys, n uint64) {
	for g := phys >> layout.WindowShift; g <= (phys+n-1)>>layout.WindowShift; g++ {
		s.pin(g)
	}
}

// Unpin ends a Pin of the same range.
func (s *Space) Unpin(phys, n uint64) {
	for g := phys >> layout.WindowShift; g <= (phys+n-1)>>layout.WindowShift; g++ {
		if s.unpin(g) && !s.Sole(g) && s.Refs(g) == 0 {
			s.leaving--
			s.free(s.extent(g), g)
			s.more()
		}
	}
}

// Leaving returns the number of grains that nothing but transfers keep.
func (s *Space) Leaving() int { return s.leaving }

// Recount counts a reference that a map has after a start, when nothing is counted yet; t is the
// map's tenant. The first that refers to a grain owns it. Preconditions: g is in the space.
func (s *Space) Recount(g uint64, t *Tenant) {
	x := s.extent(g)
	was := s.refs(x, g)
	if s.isFree(g) {
		s.use(uint32(g/layout.ExtentGrains), 1<<in(g))
		s.allocated++
		s.setOwner(x, g, t.vol)
		t.allocated++
		if s.discards.stale != nil { // nobody knows what of it an earlier life has written
			s.discards.stale[g/layout.ExtentGrains] |= 1 << (g % layout.ExtentGrains)
		}
	}
	s.setRefs(x, g, was, was+1)
}

// Uncount takes back what Recount has counted. Nobody hears of a grain that is free then: nothing of it is
// in use yet.
func (s *Space) Uncount(g uint64) {
	x := s.extent(g)
	was := s.refs(x, g)
	if was == 0 {
		panic(Miscount("a grain was uncounted more often than counted"))
	}
	if s.setRefs(x, g, was, was-1); was == 1 {
		s.vacate(x, g)
	}
}

// Owner returns the volume that has allocated a grain, or had it last.
func (s *Space) Owner(g uint64) uint32 {
	if x := s.known(int(g / layout.ExtentGrains)); x != nil {
		return s.ownerOf(x, g)
	}
	return 0
}

// SeveralOwners reports whether grains of an extent may have different owners.
func (s *Space) SeveralOwners(extent uint32) bool {
	x := s.known(int(extent))
	return x != nil && x.owners != 0
}

// noOwner is no volume: who has allocated a grain was gone when the account was read.
const noOwner = 1<<32 - 1

// Restore counts the references that a grain has by the account that is stored, at a start; it is free and owner is the
// volume that has allocated it. Preconditions: there is one at least.
func (s *Space) Restore(g uint64, refs, owner uint32) {
	x := s.extent(g)
	if s.tenants.of(owner) == nil { // it may get an account all the same, for what the cache has of it
		owner = noOwner
	}
	s.use(uint32(g/layout.ExtentGrains), 1<<in(g))
	s.allocated++
	s.setOwner(x, g, owner)
	if t := s.tenants.of(owner); t != nil {
		t.allocated++
	}
	if s.discards.stale != nil { // nobody knows what of it an earlier life has written
		s.discards.stale[g/layout.ExtentGrains] |= 1 << in(g)
	}
	s.setRefs(x, g, 0, 1)
	if refs > 1 {
		s.setRefs(x, g, 1, 2)
		s.setRefs(x, g, 2, refs)
	}
}
