// Homes of windows that are promised their space, and taking grains for them and for others. What
// is owed is counted by the space's tenant, and changed together with the map. See package home.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// Entitled reports whether a write to a window may not fail for lack of space.
func (m *Map) Entitled(w uint64) bool {
	s, _ := m.find(w)
	return m.homes.Entitled(s)
}

// homeBefore returns the home of a window whose slot is about to be edited, for updateHome.
func (m *Map) homeBefore(s window.Slot, w uint64) uint64 {
	if m.arena.loading || m.tenant.Marked == 0 {
		return alloc.NoGrain
	}
	return m.homes.Of(s, w)
}

// updateHome brings the home of a window in line with an edit of its slot; was is what homeBefore
// has said.
func (m *Map) updateHome(s window.Slot, w, was uint64) {
	if !m.arena.loading {
		m.homes.Update(s, w, was)
	}
}

// InPlace returns where sectors [first, first+n) of a window can be written in place: in a grain
// that lies in its place and that neither another window nor a hold has. phys is that of the
// window's first sector; mapped says that the map has all of these sectors there already, so that a
// write does not change it.
func (m *Map) InPlace(w, first, n uint64) (phys uint64, mapped, ok bool) {
	s, _ := m.find(w)
	phys, has, ok := m.homes.InPlace(s)
	if ok {
		m.homes.Own(s, w)
		mapped = layout.MaskOf(first, n).AndNot(has).Empty()
	}
	return phys, mapped, ok
}

// WouldStay returns what InPlace returns as phys, and changes nothing.
func (m *Map) WouldStay(w uint64) (phys uint64, ok bool) {
	s, _ := m.find(w)
	phys, _, ok = m.homes.InPlace(s)
	return phys, ok
}

// Allocate takes a grain for a window that cannot be written in place: the one that is reserved for
// it, or one that is available, if need be after collecting a step of its space's garbage; false
// means out of space, unless the space has more garbage: then the caller asks again, after others
// had their turn. The map does not know of the grain before SetData; one that is not needed after
// all goes back by alloc.Space.Free.
func (m *Map) Allocate(w uint64) (grain uint64, ok bool) {
	s, _ := m.find(w)
	entitled, old := m.homes.Entitled(s), alloc.NoGrain
	if entitled {
		old = m.homes.Of(s, w)
	}
	// Nothing is reserved for a window whose home only a copy holds: it goes in place if it must.
	reserved := entitled && (old == alloc.NoGrain || m.space.MapRefs(old) > 1)
	for collected := false; ; collected = true {
		if reserved || m.space.Available() > 0 {
			if g, ok := m.space.Take(m.tenant); ok {
				if entitled {
					if old != alloc.NoGrain {
						m.space.ClearHome(old)
					}
					m.space.SetHome(g, m.tenant, w)
				}
				return g, true
			}
		}
		if collected || !m.arena.HasGarbageOf(m.space) {
			return 0, false
		}
		m.arena.CollectOf(m.space, GarbageStep)
	}
}

// TryAvailable reports whether so many grains of a space are available, if need be after collecting a
// step of its garbage. more says that there are not enough, and that there is more garbage.
func (a *Arena) TryAvailable(space *alloc.Space, grains int64) (ok, more bool) {
	if space.Available() < grains {
		more = a.CollectOf(space, GarbageStep)
	}
	ok = space.Available() >= grains
	return ok, more && !ok
}

// AnchorCost returns the grains that anchoring ranges may take; see home.Cost.Of.
func (m *Map) AnchorCost(ranges []block.Range) (grains int64, guessed bool) {
	return m.arena.cost.Of(&m.homes, m.root, m.levels, ranges)
}
