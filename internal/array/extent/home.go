// Homes of windows that are promised their space, and taking grains for them and for others. What
// is owed is counted by the space's tenant, and changed together with the map.

package extent

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// Homes: where a write to a window may go in place, and what is taken for one that has nowhere to
// go. What a home is and what it has to do with reservations says alloc.Tenant. A grain lies in its
// place in a window when each sector of the window has the same place in it.

// Entitled reports whether a write to a window may not fail for lack of space.
func (m *Map) Entitled(w uint64) bool {
	s, _ := m.find(w)
	return m.entitled(s)
}

func (m *Map) entitled(s window.Slot) bool { return m.thick || m.anchored(s) }

// anchored reports whether a window has an anchored sector.
func (m *Map) anchored(s window.Slot) bool { return m.arena.windows.Anchored(s) }

// aligned calls fn for the grains that lie in their place in a window, with the sectors that it has
// there, until it returns false.
func (m *Map) aligned(s window.Slot, fn func(g uint64, has layout.Mask) bool) {
	m.arena.windows.Layers(s, func(base uint64, mask layout.Mask) bool {
		return !window.Aligned(base) || fn(base>>layout.WindowShift, mask)
	})
}

// home returns the home of a window, alloc.NoGrain if it has none.
func (m *Map) home(s window.Slot, w uint64) (home uint64) {
	home = alloc.NoGrain
	if s.Uniform() {
		return home
	}
	m.aligned(s, func(g uint64, _ layout.Mask) bool {
		if m.space.IsHome(g, m.vol, w) {
			home = g
		}
		return home == alloc.NoGrain
	})
	return home
}

// homeBefore returns the home of a window whose slot is about to be edited, for updateHome.
func (m *Map) homeBefore(s window.Slot, w uint64) uint64 {
	if m.arena.loading || m.tenant.Marked == 0 {
		return alloc.NoGrain
	}
	return m.home(s, w)
}

// updateHome brings the home of a window in line with an edit of its slot; was is what homeBefore
// has said.
func (m *Map) updateHome(s window.Slot, w, was uint64) {
	if m.arena.loading {
		return
	}
	entitled := m.entitled(s)
	if !entitled && m.tenant.Marked == 0 {
		return
	}
	now := m.home(s, w)
	if was != alloc.NoGrain && now != was && m.space.IsHome(was, m.vol, w) {
		m.space.ClearHome(was) // others share it, and the window has left it
	}
	switch {
	case now != alloc.NoGrain && !entitled:
		m.space.ClearHome(now)
	case now == alloc.NoGrain && entitled:
		m.adopt(s, w, true)
	}
}

// adopt makes a grain that lies in its place the home of an entitled window: one that only the
// window has, or any.
func (m *Map) adopt(s window.Slot, w uint64, own bool) (adopted bool) {
	m.aligned(s, func(g uint64, _ layout.Mask) bool {
		if m.space.Homeless(g) && (!own || m.space.MapRefs(g) == 1) {
			m.space.SetHome(g, m.tenant, w)
			adopted = true
		}
		return !adopted
	})
	return adopted
}

// InPlace returns where sectors [first, first+n) of a window can be written in place: in a grain
// that lies in its place and that neither another window nor a hold has. phys is that of the
// window's first sector; mapped says that the map has all of these sectors there already, so that a
// write does not change it.
func (m *Map) InPlace(w, first, n uint64) (phys uint64, mapped, ok bool) {
	s, _ := m.find(w)
	phys, has, ok := m.inPlace(s)
	if ok {
		m.ownHome(s, w)
		mapped = layout.MaskOf(first, n).AndNot(has).Empty()
	}
	return phys, mapped, ok
}

// WouldStay returns what InPlace returns as phys, and changes nothing.
func (m *Map) WouldStay(w uint64) (phys uint64, ok bool) {
	s, _ := m.find(w)
	phys, _, ok = m.inPlace(s)
	return phys, ok
}

// inPlace returns where a window that has a grain for itself begins in it, and the sectors that lie
// there.
func (m *Map) inPlace(s window.Slot) (phys uint64, has layout.Mask, ok bool) {
	m.aligned(s, func(g uint64, mask layout.Mask) bool {
		if ok = m.space.Sole(g); ok {
			phys, has = g<<layout.WindowShift, mask
		}
		return !ok
	})
	return phys, has, ok
}

// ownHome gives an entitled window that has lost its home the grain that it has for itself now.
func (m *Map) ownHome(s window.Slot, w uint64) {
	if m.tenant.Homes < m.tenant.Entitled && m.entitled(s) && m.home(s, w) == alloc.NoGrain {
		m.adopt(s, w, true)
	}
}

// Allocate takes a grain for a window that cannot be written in place: the one that is reserved for
// it, or one that is available, if need be after collecting a step of its space's garbage; false
// means out of space, unless the space has more garbage: then the caller asks again, after others
// had their turn. The map does not know of the grain before SetData; one that is not needed after
// all goes back by alloc.Space.Free.
func (m *Map) Allocate(w uint64) (grain uint64, ok bool) {
	s, _ := m.find(w)
	entitled, old := m.entitled(s), alloc.NoGrain
	if entitled {
		old = m.home(s, w)
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

// anchorSlots is how many slots AnchorCost looks at, in one step: some 10 ms of work.
const anchorSlots = 1 << 20

// AnchorCost returns the grains that anchoring ranges may take: one for each of their windows that
// is not entitled yet and has no grain of its own. Where there is too much to look at, it is one for each
// window of the rest: too much rather than too little. So it is for leaves that are absent: guessed says
// that there were some.
func (m *Map) AnchorCost(ranges []block.Range) (grains int64, guessed bool) {
	a, left := m.arena, anchorSlots
	a.away.guessed = false
	a.sorted = append(a.sorted[:0], ranges...)
	slices.SortFunc(a.sorted, func(x, y block.Range) int { return cmp.Compare(x.Start, y.Start) })
	next := uint64(0) // the first window that is not counted yet
	for _, x := range a.sorted {
		if x.Count == 0 {
			continue
		}
		end := (x.End()-1)>>layout.WindowShift + 1
		if next = max(next, x.Start>>layout.WindowShift); next < end {
			n, looked := m.anchorCost(m.root, m.levels, 0, next, end, left)
			grains, next, left = grains+n, end, left-looked
		}
	}
	return grains, a.away.guessed
}

// anchorCost is AnchorCost of windows [lo, hi) below a slot at the given height that begins at window
// base, and how many slots it has looked at: no more than most, or one. It goes below a node only where
// there is data.
func (m *Map) anchorCost(s window.Slot, height uint8, base, lo, hi uint64, most int) (grains int64, slots int) {
	span := uint64(1) << (fanoutBits * uint(height))
	if !s.Leads() {
		if m.anchored(s) || m.private(s) {
			return 0, 1
		}
		return int64(min(hi, base+span) - max(lo, base)), 1
	}
	sums := m.slotSums(s, height)
	if whole := lo <= base && hi >= base+span; whole && (sums.Data == 0 || sums.Promised == int64(span)) {
		return int64(span) - sums.Promised, 1
	}
	switch s.Kind() {
	case window.KindAbsent:
		m.arena.away.guessed = true
		return min(int64(min(hi, base+span)-max(lo, base)), int64(span)-sums.Promised), 1
	case window.KindPacked:
		m.look(s, base>>fanoutBits, func(nd *node) { grains, slots = m.anchorCostBelow(nd, height, base, lo, hi, most) })
		return grains, slots
	}
	return m.anchorCostBelow(m.arena.nodes[s.Value()], height, base, lo, hi, most)
}

// anchorCostBelow is anchorCost of the slots of a node that a slot at the given height leads to.
func (m *Map) anchorCostBelow(nd *node, height uint8, base, lo, hi uint64, most int) (grains int64, slots int) {
	span := uint64(1) << (fanoutBits * uint(height))
	shift := fanoutBits * uint(height-1)
	for i := (max(lo, base) - base) >> shift; i <= (min(hi, base+span)-1-base)>>shift; i++ {
		if slots >= most {
			return grains + int64(min(hi, base+span)-max(lo, base+i<<shift)), slots
		}
		g, k := m.anchorCost(nd.slots[i], height-1, base+i<<shift, lo, hi, most-slots)
		grains, slots = grains+g, slots+k
	}
	return grains, slots
}

// private reports whether a window has a grain in its place that no other window has.
func (m *Map) private(s window.Slot) (private bool) {
	m.aligned(s, func(g uint64, _ layout.Mask) bool {
		private = m.space.MapRefs(g) == 1
		return !private
	})
	return private
}
