// Package home is the homes of windows that are promised their space: where a write to one may go in place.
// What a home is and what it has to do with reservations says alloc.Tenant. A grain lies in its place in a window
// when each sector of the window has the same place in it.
package home

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Homes is what a volume's windows are looked at with. It keeps nothing: homes are in the space. Windows are given
// as their slot and, where others might have the same one, their number.
type Homes struct {
	Space   *alloc.Space
	Tenant  *alloc.Tenant // the volume's account with the space; nil where nobody edits
	Windows *window.Slab
	Vol     uint32
	Thick   bool // every window is entitled to its space
}

// Entitled reports whether a write to a window may not fail for lack of space.
func (h *Homes) Entitled(s window.Slot) bool { return h.Thick || h.Anchored(s) }

// Anchored reports whether a window has an anchored sector.
func (h *Homes) Anchored(s window.Slot) bool { return h.Windows.Anchored(s) }

// aligned calls fn for the grains that lie in their place in a window, with the sectors that it has
// there, until it returns false.
func (h *Homes) aligned(s window.Slot, fn func(g uint64, has layout.Mask) bool) {
	h.Windows.Layers(s, func(base uint64, mask layout.Mask) bool {
		return !window.Aligned(base) || fn(base>>layout.WindowShift, mask)
	})
}

// Of returns the home of a window, alloc.NoGrain if it has none.
func (h *Homes) Of(s window.Slot, w uint64) (home uint64) {
	home = alloc.NoGrain
	if s.Uniform() {
		return home
	}
	h.aligned(s, func(g uint64, _ layout.Mask) bool {
		if h.Space.IsHome(g, h.Vol, w) {
			home = g
		}
		return home == alloc.NoGrain
	})
	return home
}

// Update brings the home of a window in line with an edit of its slot; was is what Of has said
// before.
func (h *Homes) Update(s window.Slot, w, was uint64) {
	entitled := h.Entitled(s)
	if !entitled && h.Tenant.Marked == 0 {
		return
	}
	now := h.Of(s, w)
	if was != alloc.NoGrain && now != was && h.Space.IsHome(was, h.Vol, w) {
		h.Space.ClearHome(was) // others share it, and the window has left it
	}
	switch {
	case now != alloc.NoGrain && !entitled:
		h.Space.ClearHome(now)
	case now == alloc.NoGrain && entitled:
		h.Adopt(s, w, true)
	}
}

// Adopt makes a grain that lies in its place the home of an entitled window: one that only the
// window has, or any: then it panics if that counts as free.
func (h *Homes) Adopt(s window.Slot, w uint64, own bool) (adopted bool) {
	h.aligned(s, func(g uint64, _ layout.Mask) bool {
		if !own && h.Space.MapRefs(g) == 0 {
			panic(alloc.Miscount("a grain that a map refers to is free"))
		}
		if h.Space.Homeless(g) && (!own || h.Space.MapRefs(g) == 1) {
			h.Space.SetHome(g, h.Tenant, w)
			adopted = true
		}
		return !adopted
	})
	return adopted
}

// Find gives a window a home that is entitled to one and has none, a grain that nobody shares first.
func (h *Homes) Find(w uint64, s window.Slot) {
	if h.Entitled(s) && !h.Adopt(s, w, true) {
		h.Adopt(s, w, false)
	}
}

// InPlace returns where a window that has a grain for itself begins in it, and the sectors that lie
// there.
func (h *Homes) InPlace(s window.Slot) (phys uint64, has layout.Mask, ok bool) {
	h.aligned(s, func(g uint64, mask layout.Mask) bool {
		if ok = h.Space.Sole(g); ok {
			phys, has = g<<layout.WindowShift, mask
		}
		return !ok
	})
	return phys, has, ok
}

// Own gives an entitled window that has lost its home the grain that it has for itself now. How many homes the
// tenant has does not say that no window lacks one: those of the garbage count, too.
func (h *Homes) Own(s window.Slot, w uint64) {
	if h.Tenant.Entitled > 0 && h.Entitled(s) && h.Of(s, w) == alloc.NoGrain {
		h.Adopt(s, w, true)
	}
}

// Private reports whether a window has a grain in its place that no other window has.
func (h *Homes) Private(s window.Slot) (private bool) {
	h.aligned(s, func(g uint64, _ layout.Mask) bool {
		private = h.Space.MapRefs(g) == 1
		return !private
	})
	return private
}
