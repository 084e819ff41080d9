// The tree's measures: what a node has, and what its slots span.

package node

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Fanout is how many slots a node has.
const (
	FanoutBits = 8
	Fanout     = 1 << FanoutBits // of a leaf as well: window.LeafWindows
)

// MaxLevels is the height of the tree of the largest volume, 64 TiB.
const MaxLevels = 4

// LeafSectors is what a leaf spans.
const LeafSectors = Fanout * layout.WindowSectors

// SpanShift returns log2 of the sectors that one slot of a node at level spans.
func SpanShift(level uint8) uint { return layout.WindowShift + FanoutBits*uint(level) }

// LeafOf returns the index of the leaf that a sector is in.
func LeafOf(sector uint64) uint64 { return sector >> SpanShift(1) }

// LevelsFor returns the height of the tree of a volume of so many sectors.
func LevelsFor(sectors uint64) uint8 {
	l := uint8(1)
	for uint64(1)<<SpanShift(l) < sectors {
		l++
	}
	return l
}

// means reports whether a slot as it is written can stand in a node of a level.
func means(s window.Slot, level uint8) bool {
	switch s.Kind() {
	case window.KindUnmapped, window.KindZero, window.KindAnchored:
		return s.Uniform()
	case window.KindData, window.KindDetail:
		return level == 0
	}
	return s.Kind() == window.KindChild && level > 0
}
