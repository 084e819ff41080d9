// Windows that are not of one piece: layers of sectors that lie in several grains. Invariant: each
// layer has a reference on every grain that it lies in, and no two have a sector.

package extent

import "github.com/arraysim/arraysim/internal/array/layout"

// openWindow turns any window slot into a detail chain that can be edited.
func (m *Map) openWindow(s *slot) uint32 {
	if s.kind() == kindDetail {
		return uint32(s.value())
	}
	id, d := m.arena.details.alloc()
	all := layout.MaskOf(0, layout.WindowSectors)
	switch s.kind() {
	case kindZero:
		m.arena.details.setStates(d, states{zero: all})
	case kindAnchored:
		m.arena.details.setStates(d, states{anchored: all})
	case kindData:
		d.phys, d.mask = s.value(), all
	}
	*s = detailSlot(id)
	return id
}

// closeWindow folds a chain back into one slot where it can, and drops empty layers.
func (m *Map) closeWindow(s *slot) {
	ds := &m.arena.details
	head := uint32(s.value())
	h := ds.at(head)
	for at := head; ; {
		d := ds.at(at)
		next := d.next
		if next == 0 {
			break
		}
		if nd := ds.at(next); nd.mask.Empty() {
			d.next = nd.next
			ds.release(next)
			continue
		}
		at = next
	}
	if h.mask.Empty() && h.next != 0 { // an empty head takes over its successor
		n := h.next
		nd := ds.at(n)
		h.phys, h.mask, h.next = nd.phys, nd.mask, nd.next
		ds.release(n)
	}
	var to slot
	st := ds.statesOf(h)
	switch {
	case h.next == 0 && h.mask.Full():
		to = dataSlot(h.phys)
	case !h.mask.Empty() || h.next != 0:
		return
	case st.zero.Full():
		to = kindZero
	case st.anchored.Full():
		to = kindAnchored
	case st.empty():
		to = kindUnmapped
	default:
		return
	}
	ds.release(head)
	*s = to
}

// takeBits removes the sectors in mask from every layer and state of a chain,
// releasing what they referred to.
func (m *Map) takeBits(head uint32, mask layout.Mask) {
	ds := &m.arena.details
	if h := ds.at(head); h.states != 0 {
		st := ds.statesAt(h.states)
		ds.setStates(h, states{st.zero.AndNot(mask), st.anchored.AndNot(mask)})
	}
	for i := head; i != 0; {
		d := ds.at(i)
		if lost := d.mask.And(mask); !lost.Empty() {
			left := d.mask.AndNot(mask)
			m.unref(d.phys, lost, left)
			d.mask = left
		}
		i = d.next
	}
}

// clearWindow makes sectors [first, first+n) of one window uniformly to, not data.
func (m *Map) clearWindow(s *slot, first, n uint64, to slot) Sums {
	before := m.slotSums(*s, 0)
	head := m.openWindow(s)
	mask := layout.MaskOf(first, n)
	m.takeBits(head, mask)
	ds := &m.arena.details
	h := ds.at(head)
	st := ds.statesOf(h)
	switch to {
	case kindZero:
		st.zero = st.zero.Or(mask)
	case kindAnchored:
		st.anchored = st.anchored.Or(mask)
	}
	ds.setStates(h, st)
	m.closeWindow(s)
	return m.slotSums(*s, 0).sub(before)
}

// setData makes sectors [first, first+n) of one window data at physical sector
// phys (of sector first).
func (m *Map) setData(s *slot, first, n, phys uint64) Sums {
	base := phys - first
	switch {
	case s.uniform():
		return m.firstData(s, first, n, base)
	case s.kind() == kindDetail:
		if h := m.arena.details.at(uint32(s.value())); h.next == 0 && h.phys == base && h.states == 0 {
			return m.moreData(s, h, layout.MaskOf(first, n))
		}
	case s.value() == base:
		return Sums{}
	}
	before := m.slotSums(*s, 0)
	head := m.openWindow(s)
	// Sectors that already lie there stay untouched: neither their references nor
	// what is dirty of them may go.
	mask := layout.MaskOf(first, n).AndNot(m.layer(head, base))
	m.takeBits(head, mask)
	m.addLayer(head, base, mask)
	m.closeWindow(s)
	return m.slotSums(*s, 0).sub(before)
}

// firstData is setData of a window that has none: there is nothing to give back.
func (m *Map) firstData(s *slot, first, n, base uint64) Sums {
	was, mask := *s, layout.MaskOf(first, n)
	m.ref(base, mask, layout.Mask{})
	if n == layout.WindowSectors {
		*s = dataSlot(base)
		return uniformSums(kindData, layout.WindowSectors).sub(uniformSums(was, layout.WindowSectors))
	}
	id, d := m.arena.details.alloc()
	d.phys, d.mask = base, mask
	*s = detailSlot(id)
	delta := Sums{Data: int64(n)}
	switch was {
	case kindZero:
		m.arena.details.setStates(d, states{zero: mask.Not()})
		delta.Zero = -int64(n)
	case kindAnchored: // some of it stays
		m.arena.details.setStates(d, states{anchored: mask.Not()})
		delta.Anchored = -int64(n)
	}
	return delta
}

// moreData is setData of a window that has nothing but one layer, which h describes, in that layer:
// sectors that already lie there stay untouched.
func (m *Map) moreData(s *slot, h *detail, mask layout.Mask) Sums {
	mask = mask.AndNot(h.mask)
	m.ref(h.phys, mask, h.mask)
	if h.mask = h.mask.Or(mask); h.mask.Full() {
		id := uint32(s.value())
		*s = dataSlot(h.phys)
		m.arena.details.release(id)
	}
	return Sums{Data: mask.Count()}
}

// layer returns the sectors of the chain's layer with this base.
func (m *Map) layer(head uint32, base uint64) layout.Mask {
	ds := &m.arena.details
	for i := head; i != 0; i = ds.at(i).next {
		if d := ds.at(i); d.phys == base && !d.mask.Empty() {
			return d.mask
		}
	}
	return layout.Mask{}
}

func (m *Map) addLayer(head uint32, base uint64, mask layout.Mask) {
	if mask.Empty() {
		return
	}
	ds := &m.arena.details
	empty := uint32(0)
	for i := head; i != 0; i = ds.at(i).next {
		d := ds.at(i)
		if d.mask.Empty() {
			if empty == 0 {
				empty = i
			}
			continue
		}
		if d.phys == base {
			m.ref(base, mask, d.mask)
			d.mask = d.mask.Or(mask)
			return
		}
	}
	m.ref(base, mask, layout.Mask{})
	if empty != 0 {
		d := ds.at(empty)
		d.phys, d.mask = base, mask
		return
	}
	id, d := ds.alloc()
	d.phys, d.mask = base, mask
	h := ds.at(head)
	d.next, h.next = h.next, id
}

// isAligned reports whether a layer lies in its place: sector i of its window is sector i of a
// grain.
func isAligned(base uint64) bool { return base&(layout.WindowSectors-1) == 0 }

// grainsOf returns the grain that the first sectors of a layer lie in, which these are, and the
// grain of the others. In a layer that lies in its place all are the first.
func grainsOf(base uint64) (grain uint64, first layout.Mask, next uint64) {
	// phys may wrap below zero, so the next grain is not the first one and one.
	return base >> layout.WindowShift, layout.MaskOf(0, layout.WindowSectors-base&(layout.WindowSectors-1)),
		(base + layout.WindowSectors) >> layout.WindowShift
}

// eachGrain calls fn for each grain (one or two) that the sectors of a layer lie in.
func eachGrain(base uint64, mask layout.Mask, fn func(grain uint64)) {
	g, first, next := grainsOf(base)
	if !mask.And(first).Empty() {
		fn(g)
	}
	if !mask.AndNot(first).Empty() {
		fn(next)
	}
}

// ref takes references for a layer that had the sectors in had and gains add.
func (m *Map) ref(base uint64, add, had layout.Mask) {
	if m.arena.loading {
		return
	}
	if isAligned(base) {
		if !add.Empty() && had.Empty() {
			m.space.Retain(base >> layout.WindowShift)
		}
		return
	}
	g, first, next := grainsOf(base)
	if !add.And(first).Empty() && had.And(first).Empty() {
		m.space.Retain(g)
	}
	if !add.AndNot(first).Empty() && had.AndNot(first).Empty() {
		m.space.Retain(next)
	}
}

// unref gives back what a layer that keeps left no longer needs; lost are the
// sectors that it gave up.
func (m *Map) unref(base uint64, lost, left layout.Mask) {
	if m.arena.loading {
		return
	}
	if isAligned(base) {
		m.unrefGrain(base>>layout.WindowShift, base, lost, left)
		return
	}
	g, first, next := grainsOf(base)
	m.unrefGrain(g, base, lost.And(first), left.And(first))
	m.unrefGrain(next, base, lost.AndNot(first), left.AndNot(first))
}

// unrefGrain is unref of the sectors of a layer that lie in one grain.
func (m *Map) unrefGrain(g, base uint64, lost, left layout.Mask) {
	switch {
	case lost.Empty():
	case left.Empty():
		m.space.Release(g)
	case m.space.Sole(g):
		// Nobody else can see these sectors: what is dirty of them need not be destaged.
		m.drop(base, lost)
	}
}

// dropWindow releases all that a window slot refers to.
func (m *Map) dropWindow(s slot) {
	switch s.kind() {
	case kindData:
		m.unref(s.value(), layout.MaskOf(0, layout.WindowSectors), layout.Mask{})
	case kindDetail:
		ds := &m.arena.details
		for i := uint32(s.value()); i != 0; {
			d := ds.at(i)
			next := d.next
			if !d.mask.Empty() {
				m.unref(d.phys, d.mask, layout.Mask{})
			}
			ds.release(i)
			i = next
		}
	}
}
