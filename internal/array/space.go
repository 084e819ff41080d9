package array

import (
	"math/bits"
	"slices"
)

// space is the physical space of a pool: which grains are allocated, by whom, and
// how many window layers and held references point at each.
//
// A grain whose last reference goes while a transfer still reads it (a pin) or while a held
// reference has it is freed when that ends.
//
// It is the one owner of the account of space as well: see tenant. The law is
//
//	free + allocated + reserved = grains, none of them negative
//
// where grains that nothing but a hold, a pin or the garbage keeps count as free.
type space struct {
	extents []uint32      // extent -> mdisk<<20 | number of the extent on it
	used    []uint64      // allocated grains, one bit each, one word an extent
	info    []*extentInfo // per extent, made when first used

	down      []bool // by mdisk: it is offline, nothing new goes there
	anyDown   bool
	infos     int    // entries of info that were made
	allocated int64  // grains
	reserved  int64  // grains promised to thick volumes and anchored ranges
	leaving   int    // grains that only transfers keep
	left      bool   // one of these was freed since the array looked last
	cursor    uint32 // extent where the search for an empty one goes on
	// tenant returns the account of a volume.
	tenant func(vol uint32) *tenant
	// owned books grains that a volume has allocated, or has as homes.
	owned func(vol uint32, n int64)
	// vacated hears that no grain is marked as a home of a volume any more.
	vacated func(vol uint32)
	// freed hears of a grain that is free again.
	freed func(grain uint64)
}

type extentInfo [extentGrains]grainInfo

type grainInfo struct {
	refs  uint32 // from the maps
	owner uint32 // volume that allocated it, or has it as a home
	pins  uint32
	held  uint32 // references from holds
	home  uint32 // 1 + the window of its owner that it is the home of, 0: none
}

const (
	mdiskShift    = 20
	maxMdiskExt   = 1<<mdiskShift - 1 // 4 TiB an mdisk at 4 MiB extents
	noExtent      = ^uint32(0)
	allocatedFull = ^uint64(0)
)

func (s *space) grains() int64 { return int64(len(s.extents)) * extentGrains }

// addExtents appends the extents of new mdisks in rotation, so that neighbours lie
// on different mdisks. counts[i] is the number of extents of mdisk first+i.
func (s *space) addExtents(first int, counts []int) {
	sum := 0
	for _, c := range counts {
		sum += c
	}
	s.extents = slices.Grow(s.extents, sum)
	s.used, s.info = slices.Grow(s.used, sum), slices.Grow(s.info, sum)
	for n := 0; ; n++ {
		any := false
		for i, c := range counts {
			if n < c {
				any = true
				s.extents = append(s.extents, uint32(first+i)<<mdiskShift|uint32(n))
			}
		}
		if !any {
			break
		}
	}
	s.used = s.used[:len(s.extents)]
	s.info = s.info[:len(s.extents)]
}

func (s *space) grain(g uint64) *grainInfo {
	e := g / extentGrains
	if s.info[e] == nil {
		s.info[e] = new(extentInfo)
		s.infos++
	}
	return &s.info[e][g%extentGrains]
}

// allocator is a volume's place in a pool: it takes the grains of one extent after
// another, so that what a volume writes in sequence lies in sequence.
type allocator struct{ extent uint32 }

// alloc takes a grain without references for vol; false means that none is free.
func (s *space) alloc(a *allocator, vol uint32) (uint64, bool) {
	if a.extent == noExtent || s.used[a.extent] == allocatedFull || s.anyDown && s.isDown(a.extent) {
		e, ok := s.pickExtent()
		if !ok {
			return 0, false
		}
		a.extent = e
	}
	bit := bits.TrailingZeros64(^s.used[a.extent])
	s.used[a.extent] |= 1 << bit
	g := uint64(a.extent)*extentGrains + uint64(bit)
	*s.grain(g) = grainInfo{owner: vol}
	s.allocated++
	return g, true
}

// pickExtent finds an extent with room, an empty one where there is one.
func (s *space) pickExtent() (uint32, bool) {
	n := uint32(len(s.used))
	partial := noExtent
	for i := uint32(0); i < n; i++ {
		e := s.cursor + i
		if e >= n {
			e -= n
		}
		if s.anyDown && s.isDown(e) {
			continue
		}
		if s.used[e] == 0 {
			s.cursor = e + 1
			if s.cursor >= n {
				s.cursor = 0
			}
			return e, true
		}
		if partial == noExtent && s.used[e] != allocatedFull {
			partial = e
		}
	}
	return partial, partial != noExtent
}

func (s *space) isDown(extent uint32) bool { return s.down[s.extents[extent]>>mdiskShift] }

// refs returns how many have a grain: as long as it is one, a write may replace what is in it.
func (s *space) refs(g uint64) uint32 {
	gi := s.grain(g)
	return gi.refs + gi.held
}

// retain and release count references from the maps.
func (s *space) retain(g uint64) {
	gi := s.grain(g)
	if gi.refs++; gi.refs == 2 && gi.home != 0 {
		s.housed(gi, -1)
	}
}

func (s *space) release(g uint64) {
	gi := s.grain(g)
	if gi.refs == 0 {
		panic("array: a grain was released more often than retained")
	}
	switch gi.refs--; {
	case gi.refs == 1 && gi.home != 0:
		s.housed(gi, 1)
	case gi.refs == 0:
		s.clearHome(gi)
		s.freeUnused(g)
	}
}

// hold and unhold count references of copies. They do not count in the account of space: where there
// is none left for what is promised, they are given up.
func (s *space) hold(g uint64) { s.grain(g).held++ }

func (s *space) unhold(g uint64) {
	s.grain(g).held--
	s.freeUnused(g)
}

func (s *space) freeUnused(g uint64) {
	switch gi := s.grain(g); {
	case gi.refs+gi.held > 0:
	case gi.pins > 0:
		s.leaving++
	default:
		s.free(g)
	}
}

// free returns a grain without references. Only the functions here and a write that could not be
// finished call it.
func (s *space) free(g uint64) {
	s.clearHome(s.grain(g))
	s.freed(g)
	s.used[g/extentGrains] &^= 1 << (g % extentGrains)
	s.allocated--
}

// pinRange keeps physical sectors [p, p+n) from being freed and used anew.
func (s *space) pinRange(p, n uint64) {
	for g := p >> windowShift; g <= (p+n-1)>>windowShift; g++ {
		s.grain(g).pins++
	}
}

func (s *space) unpinRange(p, n uint64) {
	for g := p >> windowShift; g <= (p+n-1)>>windowShift; g++ {
		gi := s.grain(g)
		if gi.pins--; gi.pins == 0 && gi.refs+gi.held == 0 {
			s.leaving--
			s.left = true
			s.free(g)
		}
	}
}

// locate returns the mdisk and the byte offset on it of a physical sector, and how
// many sectors follow on the same mdisk without a break.
func (s *space) locate(p uint64) (mdisk int, off, n uint64) {
	x := s.extents[p/extentSectors]
	in := p % extentSectors
	return int(x >> mdiskShift), uint64(x&maxMdiskExt)*extentBytes + in*512, extentSectors - in
}
