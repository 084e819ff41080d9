// The tree's measures: what a node has, and what its slots span.

package extent

import "github.com/arraysim/arraysim/internal/array/layout"

const (
	fanoutBits = 8
	fanout     = 1 << fanoutBits // of a leaf as well: window.LeafWindows
)

// maxLevels is the height of the tree of the largest volume, 64 TiB.
const maxLevels = 4

// spanShift returns log2 of the sectors that one slot of a node at level spans.
func spanShift(level uint8) uint { return layout.WindowShift + fanoutBits*uint(level) }

// LeafSectors is what a leaf spans.
const LeafSectors = fanout * layout.WindowSectors

// leafOf returns the index of the leaf that a sector is in.
func leafOf(sector uint64) uint64 { return sector >> spanShift(1) }

func levelsFor(sectors uint64) uint8 {
	l := uint8(1)
	for uint64(1)<<spanShift(l) < sectors {
		l++
	}
	return l
}
