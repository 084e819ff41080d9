// Walking over the runs of equal state of a range. It changes nothing.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/hold"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// Run is a piece of a volume of one state; data is physically contiguous.
type Run = window.Run

// Walk calls fn for the maximal runs of r in address order until it returns false.
func (m *Map) Walk(r block.Range, fn func(Run) bool) {
	// Nearly every read of a host is one run of one window.
	if in := r.Start & (layout.WindowSectors - 1); r.Count > 0 && r.Count <= layout.WindowSectors-in {
		if s, _ := m.find(r.Start >> layout.WindowShift); s.Kind() == window.KindData {
			fn(Run{Range: r, State: block.Data, Phys: s.Value() + in})
			return
		}
	}
	var cur Run
	emit := func(next Run) bool {
		if cur.Count != 0 && cur.State == next.State && (cur.State != block.Data || cur.Phys+cur.Count == next.Phys) {
			cur.Count += next.Count
			return true
		}
		if cur.Count != 0 && !fn(cur) {
			return false
		}
		cur = next
		return true
	}
	for at, end := r.Start, r.End(); at < end; {
		w := at >> layout.WindowShift
		s, n := m.find(w)
		if s.Uniform() {
			to := min(end, (w+n)<<layout.WindowShift)
			if !emit(Run{Range: block.Range{Start: at, Count: to - at}, State: block.State(s)}) {
				return
			}
			at = to
			continue
		}
		base := w << layout.WindowShift
		to := min(end, base+layout.WindowSectors)
		if !m.runs(s, base, at-base, to-base, emit) {
			return
		}
		at = to
	}
	if cur.Count != 0 {
		fn(cur)
	}
}

// WalkStates is Walk for who asks for states alone: Phys says nothing, runs beside each other may be
// of one state, and it ends when it has looked at so many slots, or before a leaf that is absent and not
// all data. What lies below a node and is all data counts as one.
func (m *Map) WalkStates(r block.Range, slots int, fn func(Run) bool) {
	for at, end := r.Start, r.End(); at < end && slots > 0; slots-- {
		w := at >> layout.WindowShift
		s, n := m.findState(w)
		if s.Kind() == window.KindAbsent {
			return
		}
		base, to := w<<layout.WindowShift, min(end, (w+n)<<layout.WindowShift)
		if s.Kind() == window.KindDetail {
			if !m.runs(s, base, at-base, to-base, fn) {
				return
			}
		} else if !fn(Run{Range: block.Range{Start: at, Count: to - at}, State: block.State(s.Kind())}) {
			return
		}
		at = to
	}
}

// runs calls fn for the runs of sectors [from, to) of a window that is not packed meanwhile, until it returns false.
func (m *Map) runs(s window.Slot, base, from, to uint64, fn func(Run) bool) bool {
	return m.arena.nodes.Hold(func() bool { return m.arena.nodes.Windows.Runs(s, base, from, to, fn) })
}

// findState is find, but ends at a node below which all is data, and returns a slot of that kind, or at
// a leaf that is absent.
func (m *Map) findState(w uint64) (window.Slot, uint64) {
	s, height := m.root, m.levels
	for s.Leads() {
		if m.slotSums(s, height).Data == int64(1)<<node.SpanShift(height) {
			s = window.KindData
			break
		}
		switch s.Kind() {
		case window.KindPacked:
			return m.find(w)
		case window.KindAbsent:
			return s, 1
		}
		height--
		s = m.arena.nodes.At(uint32(s.Value())).Slots[w>>(node.FanoutBits*uint(height))&(node.Fanout-1)]
	}
	span := uint64(1) << (node.FanoutBits * uint(height))
	return s, span - w&(span-1)
}

// SumsOf returns the sums of the first n sectors, all of the volume; what is promised is that of
// the whole map. What the map was widened by behind the volume's end is of the state of its last
// sector.
func (m *Map) SumsOf(n uint64) Sums {
	s := m.sum
	beyond := int64(m.Span()) - int64(n)
	if beyond <= 0 {
		return s
	}
	// A window that the volume's end cuts shares its slot with what lies behind.
	w := n >> layout.WindowShift
	last, _ := m.find(w)
	if !last.Uniform() {
		tail := (w+1)<<layout.WindowShift - n
		s = s.Sub(m.windowSums(n, tail))
		if beyond -= int64(tail); beyond > 0 {
			last, _ = m.find(w + 1)
		}
	}
	if beyond > 0 && last.Uniform() {
		s = s.Sub(window.Uniform(last, beyond))
	}
	return s
}

// windowSums returns the sums of n sectors from at on, all of one window. It leaves out what is
// promised.
func (m *Map) windowSums(at, n uint64) (s Sums) {
	m.Walk(block.Range{Start: at, Count: n}, func(x Run) bool {
		switch x.State {
		case block.Data:
			s.Data += int64(x.Count)
		case block.Zero:
			s.Zero += int64(x.Count)
		case block.Anchored:
			s.Anchored += int64(x.Count)
		}
		return true
	})
	return s
}

// Hold makes a reference to ranges as they are now, nil if it would have more runs than that. It is the caller's
// to Release.
func (m *Map) Hold(ranges []block.Range, most int) *hold.Ref {
	var runs []Run
	sectors, tooMany := uint64(0), false
	for _, rg := range ranges {
		m.Walk(rg, func(x Run) bool {
			if tooMany = len(runs) >= most; tooMany {
				return false
			}
			x.Start = sectors + x.Start - rg.Start
			runs = append(runs, x)
			return true
		})
		if tooMany {
			return nil
		}
		sectors += rg.Count
	}
	return m.arena.Refs.Add(m.space, runs, sectors)
}
