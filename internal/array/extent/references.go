// The references of a map's layers, as its space counts them. Invariant: each layer has a reference
// on every grain that it lies in.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
)

// references counts and notes what the windows of a map refer to while they are edited. While the arena
// loads nothing is counted.
type references Map

// Take takes references for a layer that had the sectors in had and gains add.
func (m *references) Take(base uint64, add, had layout.Mask) {
	if window.Aligned(base) {
		if !add.Empty() && had.Empty() {
			m.retain(base >> layout.WindowShift)
		}
		return
	}
	g, first, next := window.Grains(base)
	if !add.And(first).Empty() && had.And(first).Empty() {
		m.retain(g)
	}
	if !add.AndNot(first).Empty() && had.AndNot(first).Empty() {
		m.retain(next)
	}
}

// Give gives back what a layer that keeps left no longer needs; lost are the sectors that it gave up.
func (m *references) Give(base uint64, lost, left layout.Mask) {
	if window.Aligned(base) {
		m.giveGrain(base>>layout.WindowShift, base, lost, left)
		return
	}
	g, first, next := window.Grains(base)
	m.giveGrain(g, base, lost.And(first), left.And(first))
	m.giveGrain(next, base, lost.AndNot(first), left.AndNot(first))
}

// giveGrain is Give of the sectors of a layer that lie in one grain.
func (m *references) giveGrain(g, base uint64, lost, left layout.Mask) {
	switch {
	case lost.Empty():
	case left.Empty():
		m.release(g)
	case !m.arena.loading && m.space.Sole(g):
		// Nobody else can see these sectors: what is dirty of them need not be destaged.
		m.drop(base, lost)
	}
}

func (m *references) retain(g uint64) {
	if m.notes != nil {
		m.arena.acct.Take(m.notes, g)
	}
	if m.arena.loading {
		return
	}
	m.space.Retain(g)
	for _, u := range m.arena.audits {
		u.retained((*Map)(m), g)
	}
}

func (m *references) release(g uint64) {
	if m.notes != nil {
		m.arena.acct.Give(m.notes, g)
	}
	if m.arena.loading {
		return
	}
	m.space.Release(g)
	for _, u := range m.arena.audits {
		u.released((*Map)(m), g)
	}
}

// dropWindow releases all that a window refers to.
func (m *Map) dropWindow(s window.Slot) { m.arena.nodes.Windows.Drop(s, (*references)(m)) }
