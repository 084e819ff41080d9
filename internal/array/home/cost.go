package home

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// AnchorSlots is how many slots Of looks at, in one step: some 10 ms of work.
const AnchorSlots = 1 << 20

// Cost says what it costs to anchor windows. It has memory that is used again.
type Cost struct {
	Nodes *node.Slab
	Slots int // that Of has looked at last

	homes   *Homes
	guessed bool // it has come by a leaf that is absent
	sorted  []block.Range
}

// Of returns the grains that anchoring ranges of a map may take, which has so many levels below a root: one for
// each of their windows that is not entitled yet and has no grain of its own. Where there is too much to look
// at, it is one for each window of the rest: too much rather than too little. So it is for leaves that are
// absent: guessed says that there were some.
func (c *Cost) Of(homes *Homes, root window.Slot, levels uint8, ranges []block.Range) (grains int64, guessed bool) {
	left := AnchorSlots
	c.homes, c.guessed = homes, false
	c.sorted = append(c.sorted[:0], ranges...)
	slices.SortFunc(c.sorted, func(x, y block.Range) int { return cmp.Compare(x.Start, y.Start) })
	next := uint64(0) // the first window that is not counted yet
	for _, x := range c.sorted {
		if x.Count == 0 {
			continue
		}
		end := (x.End()-1)>>layout.WindowShift + 1
		if next = max(next, x.Start>>layout.WindowShift); next < end {
			n, looked := c.of(root, levels, 0, next, end, left)
			grains, next, left = grains+n, end, left-looked
		}
	}
	c.Slots = AnchorSlots - left
	return grains, c.guessed
}

// of is Of for windows [lo, hi) below a slot at the given height that begins at window base, and how many slots
// it has looked at: no more than most, or one. It goes below a node only where there is data.
func (c *Cost) of(s window.Slot, height uint8, base, lo, hi uint64, most int) (grains int64, slots int) {
	span := uint64(1) << (node.FanoutBits * uint(height))
	if !s.Leads() {
		if c.homes.Anchored(s) || c.homes.Private(s) {
			return 0, 1
		}
		return int64(min(hi, base+span) - max(lo, base)), 1
	}
	sums := c.Nodes.Sums(s, height)
	if whole := lo <= base && hi >= base+span; whole && (sums.Data == 0 || sums.Promised == int64(span)) {
		return int64(span) - sums.Promised, 1
	}
	switch s.Kind() {
	case window.KindAbsent:
		c.guessed = true
		return min(int64(min(hi, base+span)-max(lo, base)), int64(span)-sums.Promised), 1
	case window.KindPacked:
		c.Nodes.Look(s, node.LeafKey(c.homes.Vol, base>>node.FanoutBits), func(nd *node.Node) { grains, slots = c.below(nd, height, base, lo, hi, most) })
		return grains, slots
	}
	return c.below(c.Nodes.At(uint32(s.Value())), height, base, lo, hi, most)
}

// below is of for the slots of a node that a slot at the given height leads to.
func (c *Cost) below(nd *node.Node, height uint8, base, lo, hi uint64, most int) (grains int64, slots int) {
	span := uint64(1) << (node.FanoutBits * uint(height))
	shift := node.FanoutBits * uint(height-1)
	for i := (max(lo, base) - base) >> shift; i <= (min(hi, base+span)-1-base)>>shift; i++ {
		if slots >= most {
			return grains + int64(min(hi, base+span)-max(lo, base+i<<shift)), slots
		}
		g, k := c.of(nd.Slots[i], height-1, base+i<<shift, lo, hi, most-slots)
		grains, slots = grains+g, slots+k
	}
	return grains, slots
}
