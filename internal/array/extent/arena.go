// The nodes of all maps of an array, in slabs, and which map has which number. A node without
// changes is in the store as it is here.

package extent

import (
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// node is one page of a map. It holds no pointer, so that the garbage collector
// never looks inside; its key in a checkpoint is (volume, level, index).
type node struct {
	slots     [fanout]window.Slot
	sums      Sums
	index     uint64 // first sector / sectors spanned
	vol       uint32
	level     uint8 // 0: slots are windows
	dirty     bool  // differs from the checkpoint
	persisted bool  // the checkpoint has this key
	used      bool  // somebody has looked at it since trim came by; leaves only
}

// Arena holds the nodes and details of the maps of many volumes, and what is common to them: their
// garbage, their references to points in time, and what the next checkpoint has to write.
//
// The executor of its owner serialises all calls of an Arena, its Maps and its Refs.
type Arena struct {
	// LeafBytes is what leaves may take that are not packed. Those that the next checkpoint writes count,
	// and are not packed before that. Whoever changes it does so before there are maps.
	LeafBytes uint64

	nodes     []*node
	freeNodes []uint32
	liveNodes int // packed and absent ones, too
	windows   window.Slab

	loose   int  // leaves that are not packed
	crowded bool // these take more than LeafBytes
	hand    int  // where trim has looked last
	held    int  // what nobody may pack is being looked at
	spares  []*node

	away away // leaves that are absent

	dirty []uint32 // nodes whose dirty flag is set
	maps  []*Map   // by volume; nil: none

	garbage   []garbage // of the spaces that have any
	collected Map       // what is being collected was a part of one like it
	turn      int       // whose was collected last
	debt      int       // nodes that were made since there is any, without those that were collected
	onGarbage func()

	refs []*Ref // that hold something, or were given up and not released

	audits []*Audit // under way

	// loading: references are not counted, they are taken from the finished map.
	loading bool

	sorted []block.Range // of AnchorCost

	ckpt Checkpoint
	// For the next checkpoint: keys of nodes that are no more, and volumes whose roots are no more.
	deadKeys  map[nodeKey]struct{}
	deadRoots []uint32
}

// NewArena returns an arena without maps. It calls onGarbage whenever an edit has left something
// for Collect; not while it loads.
func NewArena(onGarbage func()) *Arena {
	a := &Arena{LeafBytes: DefaultLeafBytes, onGarbage: onGarbage, deadKeys: map[nodeKey]struct{}{}}
	a.ckpt.arena = a
	return a
}

// StartLoading begins the time in which maps are loaded and what the log says is done again:
// nothing counts references, and no garbage is announced. Before EndLoading all garbage has to be
// collected; after it, CountReferences of each map derives the references.
func (a *Arena) StartLoading() { a.loading = true }

// EndLoading ends what StartLoading began.
func (a *Arena) EndLoading() { a.loading = false }

// Nodes returns the number of nodes that all maps have, garbage and absent ones included.
func (a *Arena) Nodes() int { return a.liveNodes }

// Bytes returns the memory that nodes and details take, packed or not.
func (a *Arena) Bytes() uint64 {
	n := uint64(a.liveNodes-a.windows.Packed()-a.away.leaves)*uint64(unsafe.Sizeof(node{})) + a.windows.Bytes()
	return n + uint64(cap(a.nodes))*8 + uint64(cap(a.dirty)+cap(a.freeNodes))*4
}

func (a *Arena) newNode(vol uint32, level uint8, index uint64, fill window.Slot) (uint32, *node) {
	id, n := a.place(vol, level, index)
	if fill != 0 {
		for i := range n.slots {
			n.slots[i] = fill
		}
		n.sums = window.Uniform(fill.Kind(), int64(fanout)<<spanShift(level))
	}
	a.liveNodes++
	a.debt++
	a.noteDirty(id, n)
	return id, n
}

// place makes an empty node and gives it a number.
func (a *Arena) place(vol uint32, level uint8, index uint64) (uint32, *node) {
	var id uint32
	if n := len(a.freeNodes); n > 0 {
		id = a.freeNodes[n-1]
		a.freeNodes = a.freeNodes[:n-1]
	} else {
		id = uint32(len(a.nodes))
		a.nodes = append(a.nodes, nil)
	}
	var n *node
	if last := len(a.spares) - 1; last >= 0 {
		n = a.spares[last]
		a.spares = a.spares[:last]
	} else {
		n = new(node)
	}
	*n = node{vol: vol, level: level, index: index}
	a.nodes[id] = n
	if level == 0 {
		a.loose++
	}
	return id, n
}

// noteDirty notes that a node differs from the checkpoint.
func (a *Arena) noteDirty(id uint32, n *node) {
	if !n.dirty {
		n.dirty = true
		a.dirty = append(a.dirty, id)
	}
}

// freeNode takes a node back that nothing leads to any more and whose slots are empty.
func (a *Arena) freeNode(id uint32, nd *node) {
	a.ckpt.freed(nd)
	if nd.persisted {
		a.deadKeys[nd.key()] = struct{}{}
	}
	a.nodes[id] = nil
	a.freeNodes = append(a.freeNodes, id)
	if nd.level == 0 {
		a.loose--
	}
	a.liveNodes--
	a.debt = max(0, a.debt-1)
}

func (a *Arena) mapOf(vol uint32) *Map {
	if int(vol) < len(a.maps) {
		return a.maps[vol]
	}
	return nil
}

// slotAt returns the slot that leads to the node of a key, if there is one, nil if the map has no
// slot there.
func (a *Arena) slotAt(k nodeKey) *window.Slot {
	m := a.mapOf(k.vol)
	if m == nil || k.level >= m.levels || k.index>>(fanoutBits*uint(m.levels-1-k.level)) != 0 {
		return nil
	}
	s := &m.root
	for level := m.levels - 1; level > k.level; level-- {
		if s.Kind() != window.KindChild {
			return nil
		}
		s = &a.nodes[s.Value()].slots[k.index>>(fanoutBits*uint(level-1-k.level))&(fanout-1)]
	}
	return s
}

// at returns the node that the maps have at a key now. One that is packed or absent is as the checkpoint
// has it, and has no number.
func (a *Arena) at(k nodeKey) (id uint32, ok, stored bool) {
	s := a.slotAt(k)
	if s == nil {
		return 0, false, false
	}
	return uint32(s.Value()), s.Kind() == window.KindChild, s.Kind() == window.KindPacked || s.Kind() == window.KindAbsent
}
