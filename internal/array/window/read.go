// Sums, layers and runs of a window. Nothing here changes one.

package window

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// Sums returns the sums of a window, or of a leaf that is packed or absent.
func (ws *Slab) Sums(w Slot) (s Sums) {
	switch w.Kind() {
	case KindPacked:
		return ws.packed.sumsAt(w)
	case KindAbsent:
		return w.absentSums()
	case KindDetail:
	default:
		return Uniform(w.Kind(), layout.WindowSectors)
	}
	head := uint32(w.Value())
	if h := ws.at(head); h.states != 0 {
		st := ws.statesAt(h.states)
		if s.Zero, s.Anchored = st.zero.Count(), st.anchored.Count(); s.Anchored > 0 {
			s.Promised = 1
		}
	}
	for i := head; i != 0; i = ws.at(i).next {
		s.Data += ws.at(i).mask.Count()
	}
	return s
}

// Anchored reports whether a window has an anchored sector.
func (ws *Slab) Anchored(w Slot) bool {
	if w.Kind() == KindDetail {
		h := ws.at(uint32(w.Value()))
		return h.states != 0 && !ws.statesAt(h.states).anchored.Empty()
	}
	return w == KindAnchored
}

// Layers calls fn for each layer of a window, or of all windows of a packed leaf, until it returns
// false: the sectors in mask lie at the physical sector base and their number in the window. base may
// wrap below zero.
func (ws *Slab) Layers(w Slot, fn func(base uint64, mask layout.Mask) bool) {
	switch w.Kind() {
	case KindData:
		fn(w.Value(), layout.MaskOf(0, layout.WindowSectors))
	case KindDetail:
		for i := uint32(w.Value()); i != 0; i = ws.at(i).next {
			if l := ws.at(i); !l.mask.Empty() && !fn(l.phys, l.mask) {
				return
			}
		}
	case KindPacked:
		u := unpacking{b: ws.packed.at(w)}
		u.layers(fn)
	}
}

// Run is a piece of one state; data is physically contiguous.
type Run struct {
	block.Range
	State block.State
	Phys  uint64 // of the first sector, for data
}

// Runs calls fn for the runs in sectors [from, to) of a window that is data or in pieces, until it
// returns false, which Runs then returns. start is the sector that the window begins at.
func (ws *Slab) Runs(w Slot, start, from, to uint64, fn func(Run) bool) bool {
	if w.Kind() == KindData {
		return fn(Run{block.Range{Start: start + from, Count: to - from}, block.Data, w.Value() + from})
	}
	head := uint32(w.Value())
	st := ws.statesOf(ws.at(head))
	for i := from; i < to; {
		next := Run{State: block.Unmapped}
		// The run ends where the membership of any set changes; look at the sets in turn.
		var in layout.Mask
		switch {
		case st.zero.Has(i):
			next.State, in = block.Zero, st.zero
		case st.anchored.Has(i):
			next.State, in = block.Anchored, st.anchored
		default:
			all := st.zero.Or(st.anchored)
			for l := head; l != 0; l = ws.at(l).next {
				x := ws.at(l)
				if x.mask.Has(i) {
					next.State, next.Phys, in = block.Data, x.phys+i, x.mask
					break
				}
				all = all.Or(x.mask)
			}
			if next.State == block.Unmapped {
				in = layout.Mask{^all[0], ^all[1]}
			}
		}
		end := min(to, in.Not().Next(i))
		next.Range = block.Range{Start: start + i, Count: end - i}
		if !fn(next) {
			return false
		}
		i = end
	}
	return true
}

// Check returns what is wrong with the form of a window, "" if nothing is.
func (ws *Slab) Check(w Slot) string {
	if w.Kind() != KindDetail {
		return ""
	}
	head := uint32(w.Value())
	for i := head; i != 0; i = ws.at(i).next {
		switch l := ws.at(i); {
		case l.states != 0 && (i != head || ws.statesOf(l).empty()):
			return "has states that it does not need"
		case l.mask.Empty() && (i != head || l.next != 0):
			return "has an empty layer"
		}
	}
	return ""
}

// Grains returns the grain that the first sectors of a layer lie in, which these are, and the
// grain of the others. In a layer that lies in its place all are the first.
func Grains(base uint64) (grain uint64, first layout.Mask, next uint64) {
	// phys may wrap below zero, so the next grain is not the first one and one.
	return base >> layout.WindowShift, layout.MaskOf(0, layout.WindowSectors-base&(layout.WindowSectors-1)),
		(base + layout.WindowSectors) >> layout.WindowShift
}

// EachGrain calls fn for each grain that the layers of a window, or of a packed leaf, lie in: one or two
// of each.
func (ws *Slab) EachGrain(s Slot, fn func(grain uint64)) {
	if s.Kind() == KindData && Aligned(s.Value()) { // nearly all are
		fn(s.Value() >> layout.WindowShift)
		return
	}
	ws.Layers(s, func(base uint64, mask layout.Mask) bool {
		if Aligned(base) {
			fn(base >> layout.WindowShift)
			return true
		}
		g, first, next := Grains(base)
		if !mask.And(first).Empty() {
			fn(g)
		}
		if !mask.AndNot(first).Empty() {
			fn(next)
		}
		return true
	})
}
