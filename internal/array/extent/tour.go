// The way through the leaves of maps, a few at a time while the maps change.

package extent

import (
	"errors"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// tour is a way through the maps of a space, volume by volume and leaf by leaf. It keeps nothing of
// them: maps may be edited, made and removed between two of its steps. It unpacks no leaf.
type tour struct {
	arena *Arena
	space *alloc.Space
	vol   uint32 // where it is: at this volume,
	leaf  uint64 // and at the leaf with this index
	// Wait has it wait for leaves that are absent, see Await; else they are read at once.
	Wait  bool
	waits *ticket.Queue // of the leaf that it waits for
	skip  bool          // that leaf cannot be read
}

// Await has fn called when the tour can go on, and reports whether it waits for a leaf. What Step has said
// before counts.
func (t *tour) Await(fn func()) bool {
	q := t.waits
	if t.waits = nil; q == nil {
		return false
	}
	t.arena.away.Call(q, func(err error) {
		if errors.Is(err, demand.ErrLate) { // nobody says that it is damaged
			t.waits = q
			t.Await(fn)
			return
		}
		t.skip = err != nil
		fn()
	})
	return true
}

// absent returns the slot of the leaf where the tour is, if that is absent.
func (t *tour) absent(m *Map) (s window.Slot, yes bool) {
	if t.arena.away.leaves > 0 {
		s, _ = m.leafSlot(t.leaf)
	}
	return s, s.Kind() == window.KindAbsent
}

// next returns the map in which the tour goes on, nil if it has been everywhere.
func (t *tour) next() *Map {
	for maps := t.arena.maps; int(t.vol) < len(maps); t.vol, t.leaf, t.skip = t.vol+1, 0, false {
		if m := maps[t.vol]; m != nil && m.space == t.space && t.leaf>>(node.FanoutBits*uint(m.levels-1)) == 0 {
			return m
		}
	}
	return nil
}

// visit calls see for the nodes that begin where the tour is, from the highest down to a leaf, or
// until it returns false, and goes on to the next leaf. Where there is a state instead, it goes on
// behind that. see gets the place that a node should be at, and nil for one that is not there. visit
// returns the number of slots that were looked at. Where it waits for a leaf it has looked at nothing.
func (t *tour) visit(m *Map, see func(nd *node.Node, at node.Key) bool) (slots int) {
	_, absent := t.absent(m)
	if absent && t.Wait && !t.skip {
		t.waits = m.Missing(block.Range{Start: t.leaf << node.SpanShift(1), Count: 1}, Look)
		return 0
	}
	s, height := m.root, m.levels
	shift := func() uint { return node.FanoutBits * uint(height-1) } // log2 of the leaves below s
	for s.Kind() == window.KindChild {
		nd, index := m.arena.nodes.At(uint32(s.Value())), t.leaf>>shift()
		if index<<shift() == t.leaf {
			slots += node.Fanout
			if !see(nd, node.KeyAt(m.vol, height-1, index)) {
				break
			}
		}
		if height == 1 {
			break
		}
		height--
		s = nd.Slots[t.leaf>>shift()&(node.Fanout-1)]
	}
	switch s.Kind() {
	case window.KindPacked:
		slots += node.Fanout
		m.arena.nodes.Look(s, node.LeafKey(m.vol, t.leaf), func(nd *node.Node) { see(nd, nd.Key()) })
	case window.KindAbsent:
		slots += node.Fanout
		if t.skip || m.lookAbsent(s, t.leaf, func(nd *node.Node) { see(nd, nd.Key()) }) != nil {
			see(nil, node.LeafKey(m.vol, t.leaf))
		}
	}
	t.skip = false
	t.leaf = (t.leaf>>shift() + 1) << shift()
	return slots + 1
}
