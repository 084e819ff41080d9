// Leaves that are not in memory: which of them somebody needs, and how they come back.
//
// Invariants:
//
//   - An absent leaf is in the store as it was here, under its key, durably, for as long as it is absent.
//   - At most one absent leaf has a key, be it in a map or among the garbage, and a map has no present
//     one with the key of one that is absent among the garbage: see Missing. So a checkpoint never
//     needs an absent leaf, and overwrites none.
//   - Leaves leave only in Evict, which is called by itself: what Missing has found to be present stays
//     so until whoever asked returns to the executor, and for as long as it is kept.

package extent

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// away is what an arena knows of leaves that are absent.
type away struct {
	demand.Table
	most    uint64                // bytes that leaves may take in memory; 0: none leaves
	leaves  int                   // that are absent, garbage included
	lost    map[node.Key]struct{} // leaves of the garbage that cannot be read, and will not be collected
	passed  int                   // such leaves that were passed over: what they refer to stays taken
	rest    bool                  // no leaf of the garbage is read any more
	err     error                 // of the first that could not be read while maps were loaded
	inCalls int                   // leaves that were read within a call of a running array

	// Where Evict goes on, and how often it has been everywhere in vain.
	vol    uint32
	leaf   uint64
	vain   int
	struck bool // since it was at the beginning it has found something
}

// Bound has leaves leave memory where all of them take more than so many bytes, and be read again when they
// are needed. Name and Put of the hooks are the arena's. It is called before there are maps.
func (a *Arena) Bound(bytes uint64, from demand.Source, hooks demand.Hooks) {
	hooks.Name, hooks.Put = func(k demand.Key) []byte { return leafKey(k).Bytes() }, a.put
	a.away.most, a.away.From, a.away.Hooks, a.away.lost = bytes, from, hooks, map[node.Key]struct{}{}
}

func leafKey(k demand.Key) node.Key  { return node.LeafKey(k.Volume, k.Leaf) }
func demandOf(k node.Key) demand.Key { return demand.Key{Volume: k.Vol, Leaf: k.Index} }

// Demand returns what is wanted of leaves that are absent.
func (a *Arena) Demand() *demand.Table { return &a.away.Table }

// Bounded reports whether leaves may leave memory.
func (a *Arena) Bounded() bool { return a.away.most > 0 }

// Absent returns how many leaves are absent.
func (a *Arena) Absent() int { return a.away.leaves }

// PassedOver returns how many leaves of the garbage could not be read: what they refer to stays taken until the next start.
func (a *Arena) PassedOver() int { return a.away.passed }

// Rest has no more leaves read for garbage, which is left to the next start.
func (a *Arena) Rest() { a.away.rest = true }

// ReadInCalls returns how many leaves were read within a call of a running array, by somebody who should
// have waited for them: for tests.
func (a *Arena) ReadInCalls() int { return a.away.inCalls }

// Use is what somebody is about to do with a range of a map.
type Use uint8

const (
	Look     Use = iota // look at its windows
	States              // ask for the states at its beginning; see WalkStates
	SetData             // make it data
	SetState            // make it one state, which is not data
)

// Missing returns the queue of a leaf that is absent and that a use of a range needs, and has it read; nil
// if there is none. See demand.Table.Read.
func (m *Map) Missing(r block.Range, use Use) *ticket.Queue {
	if k, ok := m.missing(r, use); ok {
		return m.arena.away.Read(demandOf(k))
	}
	return nil
}

// missing returns the key of the first leaf that a use of a range needs and that is absent.
func (m *Map) missing(r block.Range, use Use) (k node.Key, ok bool) {
	if m.arena.away.leaves == 0 || r.Count == 0 {
		return k, false
	}
	first, last := node.LeafOf(r.Start), node.LeafOf(r.End()-1)
	switch use {
	case SetState: // leaves that it covers are cut off
		if s, _ := m.leafSlot(first); r.Start%node.LeafSectors != 0 && m.lacks(s, first, use) {
			return node.LeafKey(m.vol, first), true
		}
		s, _ := m.leafSlot(last)
		return node.LeafKey(m.vol, last), r.End()%node.LeafSectors != 0 && m.lacks(s, last, use)
	case States:
		last = first
	}
	for leaf := first; leaf <= last; {
		s, n := m.leafSlot(leaf)
		if m.lacks(s, leaf, use) {
			return node.LeafKey(m.vol, leaf), true
		}
		if use == SetData {
			n = 1 // each that is not there is made
		}
		leaf += n
	}
	return k, false
}

// lacks reports whether a use of the leaf that a slot leads to, or stands for, has to wait for one.
func (m *Map) lacks(s window.Slot, leaf uint64, use Use) bool {
	switch {
	case s.Kind() == window.KindAbsent:
		return use != States || m.arena.nodes.Windows.Sums(s).Data != node.LeafSectors
	case s.Leads() || use < SetData:
		return false
	}
	// A leaf is made there. One with its key that is among the garbage has to be here before that.
	return m.arena.garbageLacks(node.LeafKey(m.vol, leaf))
}

// Present returns the number of sectors of a range before the first leaf of it that is absent.
func (m *Map) Present(r block.Range) uint64 {
	k, ok := m.missing(r, Look)
	if !ok {
		return r.Count
	}
	return max(r.Start, k.Index*node.LeafSectors) - r.Start
}

// Keep keeps the leaves of a range in memory that a use of it needs. Where no leaf ever leaves it does nothing.
func (m *Map) Keep(p *demand.Pins, r block.Range, use Use) {
	if m.arena.away.most == 0 || r.Count == 0 {
		return
	}
	first, last := node.LeafOf(r.Start), node.LeafOf(r.End()-1)
	switch {
	case use == States:
		last = first
	case use == SetState && last > first+1:
		m.arena.away.Keep(p, m.vol, first, first)
		first = last
	}
	m.arena.away.Keep(p, m.vol, first, last)
}

// Fetch has fn called when a leaf that a use of a range needs has come, or could not be read, and reports
// whether there is one to wait for.
func (m *Map) Fetch(r block.Range, use Use, fn func(error)) (waits bool) {
	q := m.Missing(r, use)
	if q != nil {
		m.arena.away.Call(q, fn)
	}
	return q != nil
}

// leafSlot returns the slot that leads to a leaf, or that has one state for it and for the n-1 leaves behind
// it.
func (m *Map) leafSlot(leaf uint64) (s window.Slot, n uint64) {
	at, height := m.arena.nodes.Find(&m.root, m.levels, 0, leaf)
	n = uint64(1) << (node.FanoutBits * uint(height-1))
	return *at, n - leaf&(n-1)
}

// put puts a leaf that was read where it belongs, be that in a map or among the garbage.
func (a *Arena) put(at demand.Key, page []byte, err error) error {
	k := leafKey(at)
	s, garbage := a.slotAt(k), false
	if s == nil || s.Kind() != window.KindAbsent {
		s, garbage = a.garbageSlot(k), true
	}
	if s == nil { // nobody needs it any more
		return err
	}
	if err == nil {
		_, _, err = a.bringIn(s, k, page)
	}
	if delete(a.away.lost, k); err != nil && garbage {
		a.away.lost[k] = struct{}{}
	}
	return err
}

// bringIn makes the absent leaf that a slot stands for a node again, as its page says.
func (a *Arena) bringIn(s *window.Slot, k node.Key, page []byte) (id uint32, nd *node.Node, err error) {
	if id, nd, err = a.acct.Restore(s, k, page); err == nil {
		a.away.leaves--
		a.away.vain = 0
		delete(a.away.lost, k) // it could not be read before
	}
	return id, nd, err
}

// readAt makes the absent leaf that a slot stands for a node again, within the call: while maps are
// loaded, when nobody is served. A running array has waited for it before (Missing).
func (m *Map) readAt(s *window.Slot, index uint64) (id uint32, nd *node.Node) {
	a, k := m.arena, node.LeafKey(m.vol, index)
	if !a.loading {
		a.away.inCalls++
	}
	page, err := a.away.ReadNow(demandOf(k))
	if err == nil {
		id, nd, err = a.bringIn(s, k, page)
	}
	switch {
	case err == nil:
		return id, nd
	case !a.loading:
		panic(fmt.Sprintf("extent: internal error: volume %d, leaf %d is needed at once, and cannot be read: %v", m.vol, index, err))
	case a.away.err == nil:
		a.away.err = fmt.Errorf("a map page of volume %d: %w", m.vol, err)
	}
	id, nd = a.nodes.Place(k) // what becomes of it does not matter any more
	nd.Persisted = true
	*s = window.Child(id)
	a.away.leaves--
	return id, nd
}

// lookAbsent calls fn with an absent leaf as a node, which nothing leads to and which is gone behind it. It
// waits for the store.
func (m *Map) lookAbsent(s window.Slot, index uint64, fn func(nd *node.Node)) error {
	page, err := m.arena.away.ReadNow(demand.Key{Volume: m.vol, Leaf: index})
	if err != nil {
		return err
	}
	return m.arena.acct.LookPage(s, node.LeafKey(m.vol, index), page, fn)
}
