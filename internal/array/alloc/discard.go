// Space that is free and that media still have room for. It is withheld while they discard it, so
// that nobody takes it meanwhile.

package alloc

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// discards is what a Space knows of the bytes of its grains beside who has them. A grain is stale
// when its mdisk may have bytes of it: those that were there at a start, and those that were written
// to since. What never got as far as its mdisk is not.
//
// Invariants: a withheld grain is free, and its bit in used is set all the same, so that Take passes
// it over and pays nothing for that. An extent with grains that are worth a discard is in the set of
// its mdisk; others may be, until somebody looks at them there.
type discards struct {
	stale     []uint64          // one bit a grain, one word an extent; nil: nobody asks
	withheld  map[uint32]uint64 // by extent: grains that are being discarded
	withholds int               // these
	mdisks    []mdiskDiscards
}

// mdiskDiscards is what of an mdisk is worth a discard.
type mdiskDiscards struct {
	unit    int    // grains that it gives back as a whole, a power of two up to those of an extent; 0: it gives nothing back
	worth   bitset // extents by their number on the mdisk
	becomes uint64 // how often grains have become worth it
}

// Track has the space remember from now on which grains are stale. units says for each mdisk how
// many grains it gives back as a whole, a power of two up to those of an extent; 0: it gives nothing
// back. It costs 8 bytes an extent. Preconditions: nothing is allocated.
func (s *Space) Track(units []int) {
	s.discards = discards{stale: make([]uint64, len(s.extents)), withheld: map[uint32]uint64{}, mdisks: make([]mdiskDiscards, len(units))}
	for i, unit := range units {
		s.discards.mdisks[i] = mdiskDiscards{unit: unit, worth: newBitset(s.counts[i])}
	}
}

// Extent returns the mdisk of an extent, and its byte offset there.
func (s *Space) Extent(extent uint32) (mdisk int, off uint64) {
	x := s.extents[extent]
	return int(x >> mdiskShift), uint64(x&extentMask) * layout.ExtentBytes
}

// Withheld returns the number of grains that are being discarded. They are free, but Take does not
// find them before that has ended.
func (s *Space) Withheld() int { return s.discards.withholds }

// Discardable returns the grains of an extent that are free and worth a discard: whole units of its
// mdisk, of which at least one grain is stale. Preconditions: Track.
func (s *Space) Discardable(extent uint32) (grains uint64) {
	unit := s.discards.mdisks[s.extents[extent]>>mdiskShift].unit
	free := ^s.used[extent]
	stale := s.discards.stale[extent] & free
	switch {
	case stale == 0 || unit == 0:
		return 0
	case unit == 1:
		return stale
	}
	for at := 0; at < layout.ExtentGrains; at += unit {
		if m := unitMask(at, unit); stale&m != 0 && free&m == m {
			grains |= m
		}
	}
	return grains
}

// unitMask returns the grains of the unit that a grain of an extent is in.
func unitMask(grain, unit int) uint64 {
	whole := uint64(1)<<unit - 1 // all of an extent's 64 where the shift leaves none: 0 - 1
	return whole << (grain &^ (unit - 1))
}

// HasDiscardable reports whether an extent of an mdisk may be worth a discard: NextDiscardable finds
// those that may. Preconditions: Track.
func (s *Space) HasDiscardable(mdisk int) bool { return !s.discards.mdisks[mdisk].worth.empty() }

// NextDiscardable returns the first extent of an mdisk, from the one with a number on, that may be
// worth a discard: the extent, its number on the mdisk, and what Discardable says of it. That may be
// nothing, where somebody has taken the grains again or the extent is withheld; the extent comes
// back then when some of it becomes worth a discard. false: there is no such extent. It reads a few
// words, however large the mdisk is. Preconditions: Track.
func (s *Space) NextDiscardable(mdisk int, from uint32) (extent, n uint32, grains uint64, ok bool) {
	worth := s.discards.mdisks[mdisk].worth
	if n, ok = worth.next(from); !ok {
		return 0, 0, 0, false
	}
	extent = s.number(mdisk, n)
	if s.Withholds(extent) == 0 {
		grains = s.Discardable(extent)
	}
	if grains == 0 {
		worth.remove(n)
	}
	return extent, n, grains, true
}

// BecameDiscardable returns how often grains of an mdisk have become worth a discard. Those that
// GiveBack brings do not count. Preconditions: Track.
func (s *Space) BecameDiscardable(mdisk int) uint64 { return s.discards.mdisks[mdisk].becomes }

// noteFree notes that a grain is free, or stale, that was not, in the set of its mdisk.
func (s *Space) noteFree(g uint64) {
	e := g / layout.ExtentGrains
	x := s.extents[e]
	d := &s.discards.mdisks[x>>mdiskShift]
	if d.unit == 0 {
		return
	}
	if m := unitMask(int(g%layout.ExtentGrains), d.unit); s.discards.stale[e]&m != 0 && s.used[e]&m == 0 {
		d.worth.add(x & extentMask)
		d.becomes++
	}
}

// Withhold keeps grains of an extent from being taken until GiveBack. Preconditions: they are free,
// and none of the extent is withheld.
func (s *Space) Withhold(extent uint32, grains uint64) {
	s.use(extent, grains)
	s.discards.withheld[extent] = grains
	s.discards.withholds += bits.OnesCount64(grains)
	x := s.extents[extent]
	s.discards.mdisks[x>>mdiskShift].worth.remove(x & extentMask)
}

// Withholds returns the grains of an extent that are withheld.
func (s *Space) Withholds(extent uint32) (grains uint64) { return s.discards.withheld[extent] }

// GiveBack ends Withhold of an extent. discarded says that the mdisk has no bytes of the grains any
// more. Who waits for a grain hears of it by Events.Left.
func (s *Space) GiveBack(extent uint32, discarded bool) {
	grains := s.discards.withheld[extent]
	delete(s.discards.withheld, extent)
	s.unuse(extent, grains)
	if discarded {
		s.discards.stale[extent] &^= grains
	}
	s.discards.withholds -= bits.OnesCount64(grains)
	if s.Discardable(extent) != 0 {
		x := s.extents[extent]
		s.discards.mdisks[x>>mdiskShift].worth.add(x & extentMask)
	}
	s.more()
}

// Written says that physical sectors [phys, phys+n) are on their way to their mdisk: their grains
// are stale from now on. Preconditions: Track; the grains are not withheld.
func (s *Space) Written(phys, n uint64) {
	for g := phys >> layout.WindowShift; g <= (phys+n-1)>>layout.WindowShift; g++ {
		s.discards.stale[g/layout.ExtentGrains] |= 1 << (g % layout.ExtentGrains)
		if s.isFree(g) {
			s.noteFree(g)
		}
	}
}

// MarkStale says that an mdisk has bytes in [start, end) of what it has of the space.
// Preconditions: Track; the range is not empty and lies in the mdisk.
func (s *Space) MarkStale(mdisk int, start, end uint64) {
	const grain = layout.ExtentBytes / layout.ExtentGrains
	d := &s.discards.mdisks[mdisk]
	for from := start; from < end; {
		n := uint32(from / layout.ExtentBytes)
		to := min(end, uint64(n+1)*layout.ExtentBytes)
		first, last := from%layout.ExtentBytes/grain, (to-1)%layout.ExtentBytes/grain
		e := s.number(mdisk, n)
		s.discards.stale[e] |= ^uint64(0) >> (layout.ExtentGrains - 1 - last + first) << first
		if s.Discardable(e) != 0 {
			d.worth.add(n)
			d.becomes++
		}
		from = to
	}
}

// number returns the number of an extent of an mdisk: addExtents goes round the mdisks.
func (s *Space) number(mdisk int, n uint32) (extent uint32) {
	if n < s.least {
		return n*uint32(len(s.counts)) + uint32(mdisk)
	}
	for i, count := range s.counts {
		extent += min(uint32(count), n)
		if i < mdisk && uint32(count) > n {
			extent++
		}
	}
	return extent
}

// overlooked reports whether an extent is worth a discard, and not in the set of its mdisk.
func (s *Space) overlooked(extent uint32) bool {
	if s.discards.stale == nil || s.Withholds(extent) != 0 || s.Discardable(extent) == 0 {
		return false
	}
	x := s.extents[extent]
	return !s.discards.mdisks[x>>mdiskShift].worth.has(x & extentMask)
}

// discardBytes returns the memory that the tables of discards take.
func (s *Space) discardBytes() uint64 {
	n := uint64(len(s.discards.stale)) * 8
	for i := range s.discards.mdisks {
		n += s.discards.mdisks[i].worth.bytes()
	}
	return n
}
