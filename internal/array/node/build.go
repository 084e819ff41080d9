// The tree of a map from its leaves up, as its nodes come.

package node

import "github.com/arraysim/arraysim/internal/array/window"

// Built is a node that nothing leads to yet, and the slot that will.
type Built struct {
	Index uint64
	Slot  window.Slot
}

// Builder puts the nodes of a map together, which come level by level from the leaves up, and by index. It keeps eight
// bytes, and the index, for each node of two levels.
type Builder struct {
	// Orphan hears of nodes that nothing leads to. The list is the Builder's.
	Orphan func(list []Built)

	level uint8
	below []Built // nodes of the level below that nothing leads to yet
	here  []Built // nodes of this level
}

// Rise goes on with nodes of a level: what lies below the one under it has no node above it.
func (b *Builder) Rise(level uint8) {
	for ; b.level < level; b.level++ {
		b.Orphan(b.below)
		b.below, b.here = b.here, b.below[:0]
	}
}

// Attach puts the nodes that a new one leads to below it, and sums up what it has. One that has not come was cut
// off while the checkpoint was written; the log has the rest.
func (b *Builder) Attach(s *Slab, nd *Node) {
	for i, slot := range nd.Slots {
		if slot.Kind() == window.KindChild {
			index, n := nd.Index<<FanoutBits|uint64(i), 0
			for n < len(b.below) && b.below[n].Index < index {
				n++
			}
			b.Orphan(b.below[:n])
			b.below = b.below[n:]
			nd.Slots[i] = window.KindUnmapped
			if len(b.below) > 0 && b.below[0].Index == index {
				nd.Slots[i] = b.below[0].Slot
				b.below = b.below[1:]
			}
		}
		nd.Sums.Add(s.Sums(nd.Slots[i], nd.Level))
	}
}

// Add adds a node of the level, and returns the slot that will lead to it.
func (b *Builder) Add(index uint64, slot window.Slot) *window.Slot {
	b.here = append(b.here, Built{index, slot})
	return &b.here[len(b.here)-1].Slot
}

// Root ends a tree of so many levels, and returns what its root leads to; false: there is no such node.
func (b *Builder) Root(levels uint8) (root window.Slot, ok bool) {
	b.Rise(levels)
	if len(b.below) > 0 && b.below[0].Index == 0 {
		root, ok = b.below[0].Slot, true
		b.below = b.below[1:]
	}
	b.Orphan(b.below)
	b.level, b.below, b.here = 0, b.below[:0], b.here[:0]
	return root, ok
}
