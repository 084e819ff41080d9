// Where volumes have physical sectors: a map does not lead back.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
)

// Search looks for a few physical sectors in the maps of a space. It changes nothing, and maps may
// change between two of its steps.
type Search struct {
	tour
	places []Place
	left   int // of these that were not found yet
}

// Place is where a volume has a physical sector.
type Place struct {
	Phys   uint64
	Found  bool
	Volume uint32 // the first that has it
	LBA    uint64 // the first sector of that volume which it is
}

// NewSearch begins to look for physical sectors.
func (a *Arena) NewSearch(space *alloc.Space, phys []uint64) *Search {
	s := &Search{tour: tour{arena: a, space: space}, left: len(phys)}
	for _, p := range phys {
		s.places = append(s.places, Place{Phys: p})
	}
	return s
}

// Places returns the sectors in the order in which NewSearch had them, with what was found.
func (s *Search) Places() []Place { return s.places }

// Step looks at n slots, and those of one leaf and the nodes above it more, and reports whether there
// is anything left to be found, be it that it waits; see Await.
func (s *Search) Step(n int) (more bool) {
	m := s.next()
	for ; m != nil && s.left > 0 && n > 0 && s.waits == nil; m = s.next() {
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
	return m != nil && s.left > 0
}

// leafOf looks for the sectors in a leaf.
func (s *Search) leafOf(m *Map, nd *node.Node) {
	for i, w := range &nd.Slots {
		if w.Uniform() {
			continue
		}
		start := (nd.Index<<node.FanoutBits | uint64(i)) << layout.WindowShift
		m.arena.nodes.Windows.Layers(w, func(base uint64, mask layout.Mask) bool {
			s.layer(m.vol, start, base, mask)
			return true
		})
	}
}

// layer looks for them in a layer of the window of a volume that begins at sector start.
func (s *Search) layer(vol uint32, start, base uint64, mask layout.Mask) {
	for i := range s.places {
		p := &s.places[i]
		in := p.Phys - base
		if in >= layout.WindowSectors || !mask.Has(in) {
			continue
		}
		switch lba := start + in; {
		case !p.Found:
			p.Found, p.Volume, p.LBA = true, vol, lba
			s.left--
		case p.Volume == vol:
			p.LBA = min(p.LBA, lba) // another layer of the same window
		}
	}
}
