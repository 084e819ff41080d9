// Where volumes have physical sectors: a map does not lead back.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Search looks for a few physical sectors in the maps of a space. It changes nothing, and maps may
// change between two of its steps.
type Search struct {
	tour
	sought window.Sought
}

// Place is where a volume has a physical sector.
type Place = window.Place

// NewSearch begins to look for physical sectors.
func (a *Arena) NewSearch(space *alloc.Space, phys []uint64) *Search {
	return &Search{tour: tour{arena: a, space: space}, sought: window.NewSought(phys)}
}

// Places returns the sectors in the order in which NewSearch had them, with what was found.
func (s *Search) Places() []Place { return s.sought.Places }

// Step looks at n slots, and those of one leaf and the nodes above it more, and reports whether there
// is anything left to be found, be it that it waits; see Await.
func (s *Search) Step(n int) (more bool) {
	m := s.next()
	for ; m != nil && s.sought.Left > 0 && n > 0 && s.waits == nil; m = s.next() {
		if m.abandoned {
			s.vol, s.leaf = s.vol+1, 0
			continue
		}
		n -= s.visit(m, func(nd *node.Node, at node.Key) bool {
			if nd != nil && at.Level == 0 {
				s.leafOf(m, nd)
			}
			return nd != nil
		})
	}
	return m != nil && s.sought.Left > 0
}

// leafOf looks for the sectors in a leaf.
func (s *Search) leafOf(m *Map, nd *node.Node) {
	for i, w := range &nd.Slots {
		if w.Uniform() {
			continue
		}
		start := (nd.Index<<node.FanoutBits | uint64(i)) << layout.WindowShift
		m.arena.nodes.Windows.Layers(w, func(base uint64, mask layout.Mask) bool {
			s.sought.Layer(m.vol, start, base, mask)
			return true
		})
	}
}
