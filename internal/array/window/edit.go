// Setting a state, and setting data, in a part of a window. Invariant: each layer has a reference on
// every grain that it lies in, and no two have a sector.

package window

import "github.com/arraysim/arraysim/internal/array/layout"

// References hears of what layers refer to, while a window is edited. A layer begins at physical
// sector base for sector 0 of its window.
type References interface {
	// Take hears of a layer that had the sectors in had and gains add.
	Take(base uint64, add, had layout.Mask)
	// Give hears of a layer that gives up the sectors in lost and keeps left.
	Give(base uint64, lost, left layout.Mask)
}

// open turns any window into a chain that can be edited.
func (ws *Slab) open(s *Slot) uint32 {
	if s.Kind() == KindDetail {
		return uint32(s.Value())
	}
	id, d := ws.alloc()
	all := layout.MaskOf(0, layout.WindowSectors)
	switch s.Kind() {
	case KindZero:
		ws.setStates(d, states{zero: all})
	case KindAnchored:
		ws.setStates(d, states{anchored: all})
	case KindData:
		d.phys, d.mask = s.Value(), all
	}
	*s = detailOf(id)
	return id
}

// close folds a chain back into one slot where it can, and drops empty layers.
func (ws *Slab) close(s *Slot) {
	head := uint32(s.Value())
	h := ws.at(head)
	for at := head; ; {
		d := ws.at(at)
		next := d.next
		if next == 0 {
			break
		}
		if nd := ws.at(next); nd.mask.Empty() {
			d.next = nd.next
			ws.release(next)
			continue
		}
		at = next
	}
	if h.mask.Empty() && h.next != 0 { // an empty head takes over its successor
		n := h.next
		nd := ws.at(n)
		h.phys, h.mask, h.next = nd.phys, nd.mask, nd.next
		ws.release(n)
	}
	var to Slot
	st := ws.statesOf(h)
	switch {
	case h.next == 0 && h.mask.Full():
		to = Data(h.phys)
	case !h.mask.Empty() || h.next != 0:
		return
	case st.zero.Full():
		to = KindZero
	case st.anchored.Full():
		to = KindAnchored
	case st.empty():
		to = KindUnmapped
	default:
		return
	}
	ws.release(head)
	*s = to
}

// takeBits removes the sectors in mask from every layer and state of a chain,
// releasing what they referred to.
func (ws *Slab) takeBits(head uint32, mask layout.Mask, refs References) {
	if h := ws.at(head); h.states != 0 {
		st := ws.statesAt(h.states)
		ws.setStates(h, states{st.zero.AndNot(mask), st.anchored.AndNot(mask)})
	}
	for i := head; i != 0; {
		d := ws.at(i)
		if lost := d.mask.And(mask); !lost.Empty() {
			left := d.mask.AndNot(mask)
			refs.Give(d.phys, lost, left)
			d.mask = left
		}
		i = d.next
	}
}

// SetState makes sectors [first, first+n) of a window uniformly to, which is not data, and returns
// how the sums changed.
func (ws *Slab) SetState(s *Slot, first, n uint64, to Slot, refs References) Sums {
	before := ws.Sums(*s)
	head := ws.open(s)
	mask := layout.MaskOf(first, n)
	ws.takeBits(head, mask, refs)
	h := ws.at(head)
	st := ws.statesOf(h)
	switch to {
	case KindZero:
		st.zero = st.zero.Or(mask)
	case KindAnchored:
		st.anchored = st.anchored.Or(mask)
	}
	ws.setStates(h, st)
	ws.close(s)
	return ws.Sums(*s).Sub(before)
}

// SetData makes sectors [first, first+n) of a window data at physical sector phys (of sector
// first), and returns how the sums changed.
func (ws *Slab) SetData(s *Slot, first, n, phys uint64, refs References) Sums {
	base := phys - first
	switch {
	case s.Uniform():
		return ws.firstData(s, first, n, base, refs)
	case s.Kind() == KindDetail:
		if h := ws.at(uint32(s.Value())); h.next == 0 && h.phys == base && h.states == 0 {
			return ws.moreData(s, h, layout.MaskOf(first, n), refs)
		}
	case s.Value() == base:
		return Sums{}
	}
	before := ws.Sums(*s)
	head := ws.open(s)
	// Sectors that already lie there stay untouched: neither their references nor
	// what is dirty of them may go.
	mask := layout.MaskOf(first, n).AndNot(ws.layer(head, base))
	ws.takeBits(head, mask, refs)
	ws.addLayer(head, base, mask, refs)
	ws.close(s)
	return ws.Sums(*s).Sub(before)
}

// firstData is SetData of a window that has none: there is nothing to give back.
func (ws *Slab) firstData(s *Slot, first, n, base uint64, refs References) Sums {
	was, mask := *s, layout.MaskOf(first, n)
	refs.Take(base, mask, layout.Mask{})
	if n == layout.WindowSectors {
		*s = Data(base)
		return Uniform(KindData, layout.WindowSectors).Sub(Uniform(was, layout.WindowSectors))
	}
	id, d := ws.alloc()
	d.phys, d.mask = base, mask
	*s = detailOf(id)
	delta := Sums{Data: int64(n)}
	switch was {
	case KindZero:
		ws.setStates(d, states{zero: mask.Not()})
		delta.Zero = -int64(n)
	case KindAnchored: // some of it stays
		ws.setStates(d, states{anchored: mask.Not()})
		delta.Anchored = -int64(n)
	}
	return delta
}

// moreData is SetData of a window that has nothing but one layer, which h describes, in that layer:
// sectors that already lie there stay untouched.
func (ws *Slab) moreData(s *Slot, h *detail, mask layout.Mask, refs References) Sums {
	mask = mask.AndNot(h.mask)
	refs.Take(h.phys, mask, h.mask)
	if h.mask = h.mask.Or(mask); h.mask.Full() {
		id := uint32(s.Value())
		*s = Data(h.phys)
		ws.release(id)
	}
	return Sums{Data: mask.Count()}
}

// layer returns the sectors of the chain's layer with this base.
func (ws *Slab) layer(head uint32, base uint64) layout.Mask {
	for i := head; i != 0; i = ws.at(i).next {
		if d := ws.at(i); d.phys == base && !d.mask.Empty() {
			return d.mask
		}
	}
	return layout.Mask{}
}

func (ws *Slab) addLayer(head uint32, base uint64, mask layout.Mask, refs References) {
	if mask.Empty() {
		return
	}
	empty := uint32(0)
	for i := head; i != 0; i = ws.at(i).next {
		d := ws.at(i)
		if d.mask.Empty() {
			if empty == 0 {
				empty = i
			}
			continue
		}
		if d.phys == base {
			refs.Take(base, mask, d.mask)
			d.mask = d.mask.Or(mask)
			return
		}
	}
	refs.Take(base, mask, layout.Mask{})
	if empty != 0 {
		d := ws.at(empty)
		d.phys, d.mask = base, mask
		return
	}
	id, d := ws.alloc()
	d.phys, d.mask = base, mask
	h := ws.at(head)
	d.next, h.next = h.next, id
}

// Drop gives back all that a window refers to, and its memory. The slot means nothing any more.
func (ws *Slab) Drop(s Slot, refs References) {
	ws.Layers(s, func(base uint64, mask layout.Mask) bool {
		refs.Give(base, mask, layout.Mask{})
		return true
	})
	ws.forget(s)
}

// forget gives back the memory of a window, not its references.
func (ws *Slab) forget(s Slot) {
	if s.Kind() != KindDetail {
		return
	}
	for i := uint32(s.Value()); i != 0; {
		next := ws.at(i).next
		ws.release(i)
		i = next
	}
}
