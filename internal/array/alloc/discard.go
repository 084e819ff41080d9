// Space that is free and that media still have room for. It is withheld while they discard it, so
// that nobody takes it meanwhile.

package alloc

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// discards is what a Space knows of the bytes of its grains beside who has them. Free grains are
// stale when their mdisk may have bytes of them.
//
// Invariant: a withheld grain is free, and its bit in used is set all the same, so that Take passes
// it over and pays nothing for that.
type discards struct {
	stale     []uint64          // grains whose mdisk may have bytes of them, if they are free; nil: nobody asks
	withheld  map[uint32]uint64 // by extent: grains that are being discarded
	withholds int               // these
}

// Track has the space remember from now on which grains are stale. It costs 8 bytes an extent.
func (s *Space) Track() {
	s.discards = discards{stale: make([]uint64, len(s.extents)), withheld: map[uint32]uint64{}}
}

// Extents returns the number of extents. Extent reports where one lies.
func (s *Space) Extents() uint32 { return uint32(len(s.extents)) }

// Extent returns the mdisk of an extent, and its byte offset there.
func (s *Space) Extent(extent uint32) (mdisk int, off uint64) {
	x := s.extents[extent]
	return int(x >> mdiskShift), uint64(x&extentMask) * layout.ExtentBytes
}

// Withheld returns the number of grains that are being discarded. They are free, but Take does not
// find them before that has ended.
func (s *Space) Withheld() int { return s.discards.withholds }

// Discardable returns the grains of an extent that are free and worth a discard: whole units of so
// many grains, a power of two up to those of an extent, of which at least one is stale.
// Preconditions: Track.
func (s *Space) Discardable(extent uint32, unit int) (grains uint64) {
	free := ^s.used[extent]
	stale := s.discards.stale[extent] & free
	if stale == 0 || unit == 1 {
		return stale
	}
	whole := uint64(1)<<unit - 1 // all of an extent's 64 where the shift leaves none: 0 - 1
	for at := 0; at < layout.ExtentGrains; at += unit {
		if m := whole << at; stale&m != 0 && free&m == m {
			grains |= m
		}
	}
	return grains
}

// Withhold keeps grains of an extent from being taken until GiveBack. Preconditions: they are free,
// and none of the extent is withheld.
func (s *Space) Withhold(extent uint32, grains uint64) {
	s.used[extent] |= grains
	s.discards.withheld[extent] = grains
	s.discards.withholds += bits.OnesCount64(grains)
}

// Withholds returns the grains of an extent that are withheld.
func (s *Space) Withholds(extent uint32) (grains uint64) { return s.discards.withheld[extent] }

// GiveBack ends Withhold of an extent. discarded says that the mdisk has no bytes of the grains any
// more. Who waits for a grain hears of it by Events.Left.
func (s *Space) GiveBack(extent uint32, discarded bool) {
	grains := s.discards.withheld[extent]
	delete(s.discards.withheld, extent)
	s.used[extent] &^= grains
	if discarded {
		s.discards.stale[extent] &^= grains
	}
	s.discards.withholds -= bits.OnesCount64(grains)
	if s.events.Left != nil {
		s.events.Left()
	}
}

// MarkStale says that an mdisk has bytes in [start, end) of what it has of the space.
// Preconditions: Track; the range is not empty and lies in the mdisk.
func (s *Space) MarkStale(mdisk int, start, end uint64) {
	const grain = layout.ExtentBytes / layout.ExtentGrains
	for from := start; from < end; {
		n := from / layout.ExtentBytes
		to := min(end, (n+1)*layout.ExtentBytes)
		first, last := from%layout.ExtentBytes/grain, (to-1)%layout.ExtentBytes/grain
		s.discards.stale[s.number(mdisk, uint32(n))] |= ^uint64(0) >> (layout.ExtentGrains - 1 - last + first) << first
		from = to
	}
}

// number returns the number of an extent of an mdisk: addExtents goes round the mdisks.
func (s *Space) number(mdisk int, n uint32) (extent uint32) {
	for i, count := range s.counts {
		extent += min(uint32(count), n)
		if i < mdisk && uint32(count) > n {
			extent++
		}
	}
	return extent
}
