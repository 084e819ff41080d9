// The way through the leaves of maps, a few at a time while the maps change.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/window"
)

// tour is a way through the maps of a space, volume by volume and leaf by leaf. It keeps nothing of
// them: maps may be edited, made and removed between two of its steps. It unpacks no leaf.
type tour struct {
	arena *Arena
	space *alloc.Space
	vol   uint32 // where it is: at this volume,
	leaf  uint64 // and at the leaf with this index
}

// next returns the map in which the tour goes on, nil if it has been everywhere.
func (t *tour) next() *Map {
	for maps := t.arena.maps; int(t.vol) < len(maps); t.vol, t.leaf = t.vol+1, 0 {
		if m := maps[t.vol]; m != nil && m.space == t.space && t.leaf>>(fanoutBits*uint(m.levels-1)) == 0 {
			return m
		}
	}
	return nil
}

// visit calls see for the nodes that begin where the tour is, from the highest down to a leaf, or
// until it returns false, and goes on to the next leaf. Where there is a state instead, it goes on
// behind that. see gets the place that a node should be at, and nil for one that is not there. visit
// returns the number of slots that were looked at.
func (t *tour) visit(m *Map, see func(nd *node, at nodeKey) bool) (slots int) {
	s, height := m.root, m.levels
	shift := func() uint { return fanoutBits * uint(height-1) } // log2 of the leaves below s
	for s.Kind() == window.KindChild {
		nd, index := m.arena.nodes[s.Value()], t.leaf>>shift()
		if index<<shift() == t.leaf {
			slots += fanout
			if !see(nd, nodeKey{m.vol, height - 1, index}) {
				break
			}
		}
		if height == 1 {
			break
		}
		height--
		s = nd.slots[t.leaf>>shift()&(fanout-1)]
	}
	if s.Kind() == window.KindPacked {
		slots += fanout
		m.look(s, t.leaf, func(nd *node) { see(nd, nd.key()) })
	}
	t.leaf = (t.leaf>>shift() + 1) << shift()
	return slots + 1
}
