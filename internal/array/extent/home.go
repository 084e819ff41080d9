// Homes of windows that are promised their space, and taking grains for them and for others. What
// is owed is counted by the space's tenant, and changed together with the map. See package home.

package extent

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
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
	span := uint64(1) << (node.FanoutBits * uint(height))
	if !s.Leads() {
		if m.homes.Anchored(s) || m.homes.Private(s) {
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
		m.arena.nodes.Look(s, node.LeafKey(m.vol, base>>node.FanoutBits), func(nd *node.Node) { grains, slots = m.anchorCostBelow(nd, height, base, lo, hi, most) })
		return grains, slots
	}
	return m.anchorCostBelow(m.arena.nodes.At(uint32(s.Value())), height, base, lo, hi, most)
}

// anchorCostBelow is anchorCost of the slots of a node that a slot at the given height leads to.
func (m *Map) anchorCostBelow(nd *node.Node, height uint8, base, lo, hi uint64, most int) (grains int64, slots int) {
	span := uint64(1) << (node.FanoutBits * uint(height))
	shift := node.FanoutBits * uint(height-1)
	for i := (max(lo, base) - base) >> shift; i <= (min(hi, base+span)-1-base)>>shift; i++ {
		if slots >= most {
			return grains + int64(min(hi, base+span)-max(lo, base+i<<shift)), slots
		}
		g, k := m.anchorCost(nd.Slots[i], height-1, base+i<<shift, lo, hi, most-slots)
		grains, slots = grains+g, slots+k
	}
	return grains, slots
}
