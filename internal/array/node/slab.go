// Nodes by number, and their memory. Nodes are used again.

package node

import (
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/window"
)

// Node is one page of a map. It holds no pointer, so that the garbage collector
// never looks inside; its key in a checkpoint is (volume, level, index).
type Node struct {
	Slots     [Fanout]window.Slot
	Sums      window.Sums
	Index     uint64 // first sector / sectors spanned
	Vol       uint32
	Notes     uint32 // by what its references differ from those of its page, see package account; leaves only
	Level     uint8  // 0: slots are windows
	Dirty     bool   // differs from the checkpoint
	Persisted bool   // the checkpoint has this key
	Used      bool   // somebody has looked at it since Trim came by; leaves only
}

// Key returns the node's key.
func (nd *Node) Key() Key { return Key{nd.Vol, nd.Level, nd.Index} }

// Slab is the memory of nodes, and of all that windows and packed leaves take.
type Slab struct {
	// LeafBytes is what leaves may take that are not packed. Those that the next checkpoint writes count,
	// and are not packed before that. Whoever changes it does so before there are nodes.
	LeafBytes uint64
	// SlotOf returns the slot of a map that leads to the node of a key, nil if none may.
	SlotOf func(Key) *window.Slot

	Windows window.Slab

	list   []*Node
	free   []uint32 // numbers that no node has
	spares []*Node  // for those that come next

	loose   int  // leaves that are not packed
	crowded bool // these take more than LeafBytes
	hand    int  // where Trim has looked last
	held    int  // what nobody may pack is being looked at
	looked  Node // one that is packed or absent, and is only looked at
}

// At returns the node with a number.
func (s *Slab) At(id uint32) *Node { return s.list[id] }

// Crowded reports whether leaves that are not packed take more than they may, so that Node.Used counts.
func (s *Slab) Crowded() bool { return s.crowded }

// Loose returns how many leaves are not packed.
func (s *Slab) Loose() int { return s.loose }

// Bytes returns the memory that so many nodes in memory take, with their windows, packed or not.
func (s *Slab) Bytes(nodes int) uint64 {
	return uint64(nodes-s.Windows.Packed())*uint64(unsafe.Sizeof(Node{})) + s.Windows.Bytes() +
		uint64(cap(s.list))*8 + uint64(cap(s.free))*4
}

// LooseBytes returns what the leaves take that are not packed, with their windows.
func (s *Slab) LooseBytes() uint64 {
	return uint64(s.loose)*uint64(unsafe.Sizeof(Node{})) + s.Windows.LooseBytes()
}

// Place makes an empty node and gives it a number.
func (s *Slab) Place(k Key) (uint32, *Node) {
	var id uint32
	if n := len(s.free); n > 0 {
		id = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		id = uint32(len(s.list))
		s.list = append(s.list, nil)
	}
	var nd *Node
	if last := len(s.spares) - 1; last >= 0 {
		nd = s.spares[last]
		s.spares = s.spares[:last]
	} else {
		nd = new(Node)
	}
	*nd = Node{Vol: k.Vol, Level: k.Level, Index: k.Index}
	s.list[id] = nd
	if k.Level == 0 {
		s.loose++
	}
	return id, nd
}

// maxSpares is how many nodes of leaves that left are kept for those that come next.
const maxSpares = 8

// Free takes a node back that nothing leads to any more and whose windows have no memory.
func (s *Slab) Free(id uint32) {
	nd := s.list[id]
	s.list[id] = nil
	s.free = append(s.free, id)
	if nd.Level == 0 {
		s.loose--
	}
	if len(s.spares) < maxSpares {
		s.spares = append(s.spares, nd)
	}
}

// Sums returns the sums of what a slot at a height spans; height 0 is a window.
func (s *Slab) Sums(slot window.Slot, height uint8) window.Sums {
	switch slot.Kind() {
	case window.KindChild:
		return s.list[slot.Value()].Sums
	case window.KindDetail, window.KindPacked, window.KindAbsent:
		return s.Windows.Sums(slot)
	}
	return window.Uniform(slot.Kind(), int64(1)<<SpanShift(height))
}
