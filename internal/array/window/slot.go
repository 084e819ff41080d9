// A window in eight bytes, and sums of sectors by state. Both are values.

package window

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// Slot is an entry of a map's tree; the low three bits are its kind.
//
//	kind 0 unmapped | 1 zero | 2 anchored     all that the slot spans
//	kind 3 data       the rest is the physical sector of the window's first sector
//	kind 4 detail     the window is not of one piece; the rest leads into a Slab
//	kind 5 child      a node of the tree; the rest is its number
//	kind 6 packed     a leaf of the tree, which is packed; the rest leads into a Slab
//	kind 7 absent     a leaf of the tree, which is not in memory; the rest is its sums
//
// Windows are of the kinds up to detail. A child is what the tree makes of it.
type Slot uint64

// The kinds of slots. Those of one state are slots as they are.
const (
	KindUnmapped = Slot(block.Unmapped)
	KindZero     = Slot(block.Zero)
	KindAnchored = Slot(block.Anchored)
	KindData     = Slot(block.Data)
	KindDetail   = Slot(4)
	KindChild    = Slot(5)
	KindPacked   = Slot(6)
	KindAbsent   = Slot(7)
)

// Kinds is how many kinds there may be.
const Kinds = 1 << kindBits

const kindBits = 3

// Kind returns the kind of a slot.
func (s Slot) Kind() Slot { return s & (Kinds - 1) }

// Value returns what a slot says beside its kind.
func (s Slot) Value() uint64 { return uint64(s >> kindBits) }

// Uniform reports whether all that a slot spans is of one state, which is not data.
func (s Slot) Uniform() bool { return s <= KindAnchored }

// Leads reports whether a slot leads to a node, be it packed or absent.
func (s Slot) Leads() bool { return s.Kind() >= KindChild }

// Data returns the slot of a window of data that begins at a physical sector.
func Data(phys uint64) Slot { return Slot(phys)<<kindBits | KindData }

// Child returns the slot that leads to a node.
func Child(node uint32) Slot { return Slot(node)<<kindBits | KindChild }

// sumBits hold sectors of a leaf of one state, of which it has 32,768 at most.
const sumBits = 16

// Absent returns the slot of a leaf that is not in memory, and has these sums.
func Absent(s Sums) Slot {
	v := uint64(s.Promised)
	for _, n := range [...]int64{s.Data, s.Anchored, s.Zero} {
		v = v<<sumBits | uint64(n)
	}
	return Slot(v)<<kindBits | KindAbsent
}

// absentSums returns the sums of a leaf that is absent.
func (s Slot) absentSums() Sums {
	v := s.Value()
	next := func() int64 {
		n := v & (1<<sumBits - 1)
		v >>= sumBits
		return int64(n)
	}
	return Sums{Zero: next(), Anchored: next(), Data: next(), Promised: int64(v)}
}

func detailOf(i uint32) Slot { return Slot(i)<<kindBits | KindDetail }

// Sums counts sectors by state; unmapped is the rest. Promised is the number of windows with an
// anchored sector.
type Sums struct{ Zero, Anchored, Data, Promised int64 }

// Add adds other sums.
func (s *Sums) Add(o Sums) {
	s.Zero += o.Zero
	s.Anchored += o.Anchored
	s.Data += o.Data
	s.Promised += o.Promised
}

// Sub returns the sums without others.
func (s Sums) Sub(o Sums) Sums {
	return Sums{s.Zero - o.Zero, s.Anchored - o.Anchored, s.Data - o.Data, s.Promised - o.Promised}
}

// Uniform returns the sums of sectors of one kind, which fill windows.
func Uniform(kind Slot, sectors int64) Sums {
	switch kind {
	case KindZero:
		return Sums{Zero: sectors}
	case KindAnchored:
		return Sums{Anchored: sectors, Promised: sectors >> layout.WindowShift}
	case KindData:
		return Sums{Data: sectors}
	}
	return Sums{}
}

// Aligned reports whether a layer that begins at a physical sector lies in its place: sector i of
// its window is sector i of a grain.
func Aligned(base uint64) bool { return base&(layout.WindowSectors-1) == 0 }
