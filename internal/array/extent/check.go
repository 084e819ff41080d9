// The tree held against its sums, its references and its account. It changes nothing.

package extent

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
)

// AddReferences adds the references that the map has to counts, for alloc.Space.Check, and returns
// the number of windows with data or with several states.
func (m *Map) AddReferences(to alloc.Counts) (windows int) {
	m.eachWindow(m.root, 0, func(_ uint64, s window.Slot) {
		windows++
		if base := s.Value(); s.Kind() == window.KindData && window.Aligned(base) { // nearly all are
			to.Add(base >> layout.WindowShift)
			return
		}
		m.eachGrain(s, to.Add)
	})
	return windows
}

// Holds reports whether there are Refs that were not released.
func (a *Arena) Holds() bool { return len(a.refs) > 0 }

// CheckTree verifies that the tree is a tree of this map, and the sums in it. It returns what is
// wrong, a line each.
func (m *Map) CheckTree() (problems []string) {
	if got := m.checkSlot(m.root, m.levels, 0, &problems); got != m.sum {
		problems = append(problems, fmt.Sprintf("the root says %+v, its tree has %+v", m.sum, got))
	}
	return problems
}

// checkSlot compares the sums that nodes keep with what they hold, and returns what the slot has that
// leads to the node of an index, if it leads to one.
func (m *Map) checkSlot(s window.Slot, height uint8, index uint64, problems *[]string) (got Sums) {
	switch s.Kind() {
	case window.KindPacked:
		m.look(s, index, func(nd *node) { got = m.checkNode(nd, height, problems) })
		return got
	case window.KindChild:
		nd := m.arena.nodes[s.Value()]
		if nd == nil || nd.level != height-1 || nd.vol != m.vol || nd.index != index {
			*problems = append(*problems, fmt.Sprintf("an entry of height %d leads to a page that is not its", height))
			return Sums{}
		}
		return m.checkNode(nd, height, problems)
	}
	return m.slotSums(s, height)
}

// checkNode is checkSlot of a node that a slot at the given height leads to.
func (m *Map) checkNode(nd *node, height uint8, problems *[]string) (got Sums) {
	var windows [window.Kinds]int64 // of one piece, by kind
	for i, t := range nd.slots {
		if height == 1 && t.Kind() <= window.KindData {
			windows[t.Kind()]++
			continue
		}
		got.Add(m.checkSlot(t, height-1, nd.index<<fanoutBits|uint64(i), problems))
	}
	for kind, n := range windows {
		got.Add(window.Uniform(window.Slot(kind), n*layout.WindowSectors))
	}
	if got != nd.sums {
		*problems = append(*problems, fmt.Sprintf("page %d of level %d says %+v, it holds %+v", nd.index, nd.level, nd.sums, got))
	}
	return got
}

// CheckAccount compares the volume's account with the space, where it is entitled to so many
// windows, with the homes that the map has. Preconditions: there is no garbage, and the space has
// been checked.
func (m *Map) CheckAccount(entitled int64) (problems []string) {
	want := alloc.Account{Entitled: entitled}
	if m.tenant.Account == want {
		return nil // where no grain is marked as a home, which the space has verified, there is none to be found
	}
	m.eachWindow(m.root, 0, func(w uint64, s window.Slot) {
		g := m.home(s, w)
		if g == alloc.NoGrain {
			return
		}
		if want.Marked++; m.space.MapRefs(g) == 1 {
			want.Homes++
		}
		if !m.entitled(s) {
			problems = append(problems, fmt.Sprintf("window %d has a home and is not entitled to one", w))
		}
	})
	if m.tenant.Account != want {
		problems = append(problems, fmt.Sprintf("its account says %+v, its map %+v", m.tenant.Account, want))
	}
	return problems
}
