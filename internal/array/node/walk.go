// What lies below a slot: leaves, windows with data, and the grains that these lie in.

package node

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Find returns the slot that leads to the node of a level and an index, of the tree of so many levels below a root, or
// that has one state for it, and the height of that slot: level+1 for one at the node's place.
func (s *Slab) Find(root *window.Slot, levels, level uint8, index uint64) (slot *window.Slot, height uint8) {
	slot, height = root, levels
	for height > level+1 && slot.Kind() == window.KindChild {
		height--
		slot = &s.list[slot.Value()].Slots[index>>(FanoutBits*uint(height-1-level))&(Fanout-1)]
	}
	return slot, height
}

// LeafBelow returns the slot that leads to the leaf of an index and that is below a slot that leads to the node of an index
// at, or is it; nil if there is none, or if it is among the first slots of that node, before next.
func (s *Slab) LeafBelow(slot *window.Slot, at uint64, next int, index uint64) *window.Slot {
	level := uint8(0)
	if slot.Kind() == window.KindChild {
		level = s.list[slot.Value()].Level
	}
	if index>>(FanoutBits*uint(level)) != at {
		return nil
	}
	if level > 0 {
		i := index >> (FanoutBits * uint(level-1)) & (Fanout - 1)
		if int(i) < next {
			return nil
		}
		if slot, level = s.Find(&s.list[slot.Value()].Slots[i], level, 0, index); level > 1 {
			return nil
		}
	}
	if !slot.Leads() {
		return nil
	}
	return slot
}

// NextLeaf returns the slot of the first leaf at or behind an index, which becomes that leaf's, of the tree of so many
// levels below a root; nil if there is none among the next slots: then the index is where to go on. It takes the slots
// that it looks at from n.
func (s *Slab) NextLeaf(root *window.Slot, levels uint8, leaf *uint64, n *int) *window.Slot {
	for end := uint64(1) << (FanoutBits * uint(levels-1)); *leaf < end && *n > 0; *n-- {
		slot, height := s.Find(root, levels, 0, *leaf)
		if slot.Leads() {
			*n--
			return slot
		}
		shift := FanoutBits * uint(height-1)
		*leaf = (*leaf>>shift + 1) << shift
	}
	return nil
}

// Absent returns how many absent leaves there are below a slot.
func (s *Slab) Absent(slot window.Slot) (n int) {
	switch slot.Kind() {
	case window.KindAbsent:
		return 1
	case window.KindChild:
		if nd := s.list[slot.Value()]; nd.Level > 0 {
			for _, t := range &nd.Slots {
				n += s.Absent(t)
			}
		}
	}
	return n
}

// EachGrain calls fn for each grain that the layers below a slot lie in, those of absent leaves left out. It
// unpacks no leaf.
func (s *Slab) EachGrain(slot window.Slot, fn func(grain uint64)) {
	if slot.Kind() != window.KindChild {
		s.Windows.EachGrain(slot, fn)
		return
	}
	for _, t := range &s.list[slot.Value()].Slots {
		switch base := t.Value(); {
		case t.Uniform():
		case t.Kind() == window.KindData && window.Aligned(base): // nearly all are
			fn(base >> layout.WindowShift)
		default:
			s.EachGrain(t, fn)
		}
	}
}

// EachGrainOf calls fn for each grain that the layers of a leaf lie in.
func (s *Slab) EachGrainOf(nd *Node, fn func(grain uint64)) {
	for _, t := range &nd.Slots {
		if !t.Uniform() {
			s.Windows.EachGrain(t, fn)
		}
	}
}

// EachWindow calls fn for every window with data below a slot of a volume's map, which leads to the node of an
// index, those of absent leaves left out. fn looks at nothing that is packed.
func (s *Slab) EachWindow(slot window.Slot, vol uint32, index uint64, fn func(w uint64, s window.Slot)) {
	switch slot.Kind() {
	case window.KindChild:
		s.EachWindowOf(s.list[slot.Value()], fn)
	case window.KindPacked:
		s.Look(slot, LeafKey(vol, index), func(nd *Node) { s.EachWindowOf(nd, fn) })
	}
}

// EachWindowOf is EachWindow of the windows below a node.
func (s *Slab) EachWindowOf(nd *Node, fn func(w uint64, s window.Slot)) {
	for i, t := range nd.Slots {
		switch t.Kind() {
		case window.KindData, window.KindDetail:
			fn(nd.Index<<FanoutBits|uint64(i), t)
		case window.KindChild, window.KindPacked:
			s.EachWindow(t, nd.Vol, nd.Index<<FanoutBits|uint64(i), fn)
		}
	}
}

// Uniform returns the state that all below the node is of, if it is of one.
func (nd *Node) Uniform() (state window.Slot, yes bool) {
	span := int64(Fanout) << SpanShift(nd.Level)
	switch {
	case nd.Sums == window.Sums{}:
		return window.KindUnmapped, true
	case nd.Sums.Zero == span:
		return window.KindZero, true
	case nd.Sums.Anchored == span:
		return window.KindAnchored, true
	}
	return 0, false
}

// Fill makes all below a new node of one state.
func (nd *Node) Fill(state window.Slot) {
	for i := range nd.Slots {
		nd.Slots[i] = state
	}
	nd.Sums = window.Uniform(state.Kind(), int64(Fanout)<<SpanShift(nd.Level))
}
