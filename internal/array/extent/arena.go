// The maps of an array, their nodes, and which map has which number. A node without
// changes is in the store as it is here.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/hold"
	"github.com/arraysim/arraysim/internal/array/home"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Arena holds the nodes and details of the maps of many volumes, and what is common to them: their
// garbage, their references to points in time, and what the next checkpoint has to write.
//
// The executor of its owner serialises all calls of an Arena, its Maps and its Refs.
type Arena struct {
	nodes     node.Slab
	liveNodes int // packed and absent ones, too

	away away // leaves that are absent

	dirty []uint32 // nodes whose dirty flag is set
	maps  []*Map   // by volume; nil: none

	garbage   []garbage // of the spaces that have any
	collected Map       // what is being collected was a part of one like it
	turn      int       // whose was collected last
	debt      int       // nodes that were made since there is any, without those that were collected
	onGarbage func()

	// Refs are the references to points in time.
	Refs hold.List

	audits []*Audit // under way

	// loading: the space counts what the store has, and edits only note by what they differ from that.
	loading bool

	cost home.Cost

	acct account.Account // what the store has

	ckpt Checkpoint
	// For the next checkpoint: volumes whose roots are no more; acct has the keys of nodes.
	deadRoots []uint32
}

// NewArena returns an arena without maps. It calls onGarbage whenever an edit has left something
// for Collect; not while it loads.
func NewArena(onGarbage func()) *Arena {
	a := &Arena{onGarbage: onGarbage}
	a.nodes.LeafBytes, a.nodes.SlotOf = node.DefaultLeafBytes, a.slotAt
	a.ckpt.arena = a
	a.cost.Nodes = &a.nodes
	a.acct.Nodes, a.acct.Dead, a.acct.Doomed = &a.nodes, account.Dead{}, account.Dead{}
	return a
}

// Nodes returns the number of nodes that all maps have, garbage and absent ones included.
func (a *Arena) Nodes() int { return a.liveNodes }

// Bytes returns the memory that nodes and details take, packed or not.
func (a *Arena) Bytes() uint64 {
	return a.nodes.Bytes(a.liveNodes-a.away.leaves) + uint64(cap(a.dirty))*4 + a.acct.Bytes()
}

// PackAbove has leaves packed where those that are not take more than so many bytes. It is called before there
// are maps.
func (a *Arena) PackAbove(bytes uint64) { a.nodes.LeafBytes = bytes }

func (a *Arena) newNode(k node.Key, fill window.Slot) (uint32, *node.Node) {
	id, n := a.nodes.Place(k)
	if fill != 0 {
		n.Fill(fill)
	}
	a.liveNodes++
	a.debt++
	a.noteDirty(id, n)
	return id, n
}

// noteDirty notes that a node differs from the checkpoint.
func (a *Arena) noteDirty(id uint32, n *node.Node) {
	if !n.Dirty {
		n.Dirty = true
		a.dirty = append(a.dirty, id)
	}
}

// freeNode takes a node back that nothing leads to any more and whose slots are empty.
func (a *Arena) freeNode(id uint32, nd *node.Node) {
	a.ckpt.freed(nd)
	a.acct.Freed(nd)
	a.nodes.Free(id)
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
func (a *Arena) slotAt(k node.Key) *window.Slot {
	m := a.mapOf(k.Vol)
	if m == nil || k.Level >= m.levels || k.Index>>(node.FanoutBits*uint(m.levels-1-k.Level)) != 0 {
		return nil
	}
	s, height := a.nodes.Find(&m.root, m.levels, k.Level, k.Index)
	if height > k.Level+1 {
		return nil
	}
	return s
}

// at returns the node that the maps have at a key now. One that is packed or absent is as the checkpoint
// has it, and has no number.
func (a *Arena) at(k node.Key) (id uint32, ok, stored bool) {
	s := a.slotAt(k)
	if s == nil {
		return 0, false, false
	}
	return uint32(s.Value()), s.Kind() == window.KindChild, s.Kind() == window.KindPacked || s.Kind() == window.KindAbsent
}
