// An entry of the tree in eight bytes, and the sums of what is below it. Both are values.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// slot is an entry of the tree; the low three bits are its kind.
//
//	kind 0 unmapped | 1 zero | 2 anchored     all that the slot spans
//	kind 3 data       the rest is the physical sector of the window's first sector
//	kind 4 detail     the rest is an index into details (leaf slots only)
//	kind 5 child      the rest is an index into nodes
type slot uint64

const (
	kindUnmapped = slot(block.Unmapped)
	kindZero     = slot(block.Zero)
	kindAnchored = slot(block.Anchored)
	kindData     = slot(block.Data)
	kindDetail   = slot(4)
	kindChild    = slot(5)
	kindMask     = slot(7)
	kindBits     = 3
)

func (s slot) kind() slot      { return s & kindMask }
func (s slot) value() uint64   { return uint64(s >> kindBits) }
func (s slot) uniform() bool   { return s <= kindAnchored }
func dataSlot(p uint64) slot   { return slot(p)<<kindBits | kindData }
func childSlot(i uint32) slot  { return slot(i)<<kindBits | kindChild }
func detailSlot(i uint32) slot { return slot(i)<<kindBits | kindDetail }

const (
	fanoutBits = 8
	fanout     = 1 << fanoutBits
)

// maxLevels is the height of the tree of the largest volume, 64 TiB.
const maxLevels = 4

// spanShift returns log2 of the sectors that one slot of a node at level spans.
func spanShift(level uint8) uint { return layout.WindowShift + fanoutBits*uint(level) }

func levelsFor(sectors uint64) uint8 {
	l := uint8(1)
	for uint64(1)<<spanShift(l) < sectors {
		l++
	}
	return l
}

// Sums counts sectors by state; unmapped is the rest. Promised is the number of windows with an
// anchored sector.
type Sums struct{ Zero, Anchored, Data, Promised int64 }

func (s *Sums) add(o Sums) {
	s.Zero += o.Zero
	s.Anchored += o.Anchored
	s.Data += o.Data
	s.Promised += o.Promised
}

func (s Sums) sub(o Sums) Sums {
	return Sums{s.Zero - o.Zero, s.Anchored - o.Anchored, s.Data - o.Data, s.Promised - o.Promised}
}

func uniformSums(k slot, sectors int64) Sums {
	switch k {
	case kindZero:
		return Sums{Zero: sectors}
	case kindAnchored:
		return Sums{Anchored: sectors, Promised: sectors >> layout.WindowShift}
	case kindData:
		return Sums{Data: sectors}
	}
	return Sums{}
}
