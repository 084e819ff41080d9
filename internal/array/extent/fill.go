// Data in windows that have none, for volumes whose contents are there before anybody writes: by runs
// of windows, and not one by one.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Fill makes up to n windows from window w on data in grains that it takes, and returns how many it has
// done: as many as lie in one leaf and get grains of one extent. It does what Allocate and SetData of one
// after the other would. 0 says that the first is not its case, and for those two: it has data or is
// promised its space, somebody counts the references, a leaf is absent, or there is no room without
// more ado.
func (m *Map) Fill(w, n uint64) (done uint64) {
	if m.homes.Thick || m.tenant.Marked != 0 || m.arena.loading || len(m.arena.audits) > 0 || m.arena.away.leaves > 0 {
		return 0
	}
	if s, _ := m.find(w); !m.fills(s) || m.space.Available() <= 0 {
		return 0
	}
	done, delta := m.fillAt(&m.root, m.levels, 0, w, min(n, uint64(m.space.Available())))
	m.sum.Add(delta)
	return done
}

// fills reports whether Fill may make a window data.
func (m *Map) fills(s window.Slot) bool { return s.Uniform() && s != window.KindAnchored }

// fillAt applies Fill below a slot at the given height, 1 at the least, that begins at base, and returns
// how the sums changed.
func (m *Map) fillAt(s *window.Slot, height uint8, base, w, n uint64) (done uint64, delta Sums) {
	if !s.Leads() {
		m.rootDirty = true
	}
	id, nd := m.child(s, height-1, base)
	if i := w >> (node.FanoutBits * uint(height-1)) & (node.Fanout - 1); height > 1 {
		done, delta = m.fillAt(&nd.Slots[i], height-1, base+i<<node.SpanShift(height-1), w, n)
	} else {
		m.noting(nd)
		done, delta = m.fillSlots(nd.Slots[i:min(node.Fanout, i+n)])
	}
	m.collapse(s, id, nd, delta)
	return done, delta
}

// fillSlots applies Fill to the first of the windows of a leaf.
func (m *Map) fillSlots(slots []window.Slot) (done uint64, delta Sums) {
	n := 0
	for n < len(slots) && m.fills(slots[n]) {
		n++
	}
	first, grains := m.space.TakeRun(m.tenant, n)
	for i := range slots[:grains] {
		delta = delta.Sub(window.Uniform(slots[i], layout.WindowSectors))
		slots[i] = window.Data((first + uint64(i)) << layout.WindowShift)
		if m.notes != nil {
			m.arena.acct.Take(m.notes, first+uint64(i))
		}
	}
	delta.Add(window.Uniform(window.KindData, int64(grains)*layout.WindowSectors))
	return uint64(grains), delta
}
