// References to ranges at a point in time: a copy's source. Each holds the grains of its runs until
// it is released, or given up where promised space runs out.

package extent

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// Ref is a reference to ranges of a volume at a point in time: their runs, with a
// hold on every grain that they lie in. Who writes to the volume meanwhile writes elsewhere.
type Ref struct {
	arena   *Arena
	space   *alloc.Space
	runs    []Run // Start counts from the beginning of what is held
	size    int   // runs that it was made of
	sectors uint64
	lost    bool // it was given up for want of space
}

// Hold makes a Ref of ranges as they are now, nil if it would have more runs than that. It is the
// caller's to Release.
func (m *Map) Hold(ranges []block.Range, most int) *Ref {
	h := &Ref{arena: m.arena, space: m.space}
	tooMany := false
	for _, rg := range ranges {
		m.Walk(rg, func(x Run) bool {
			if tooMany = len(h.runs) >= most; tooMany {
				return false
			}
			x.Start = h.sectors + x.Start - rg.Start
			h.runs = append(h.runs, x)
			return true
		})
		if tooMany {
			return nil
		}
		h.sectors += rg.Count
	}
	h.size = len(h.runs)
	m.arena.refs = append(m.arena.refs, h)
	h.eachGrain(m.space.Hold)
	return h
}

// View returns the runs of a Ref for others to read, whatever becomes of the Ref: it holds nothing, and is not to be
// released.
func (r *Ref) View() *Ref { return &Ref{runs: r.runs, sectors: r.sectors} }

// Size returns the number of runs that the Ref was made of.
func (r *Ref) Size() int { return r.size }

// Sectors returns the length of what is held.
func (r *Ref) Sectors() uint64 { return r.sectors }

// Lost reports whether the Ref was given up for want of space: it has no runs any more.
func (r *Ref) Lost() bool { return r.lost }

// Release gives the holds back and forgets the Ref.
func (r *Ref) Release() {
	r.unhold()
	i := slices.Index(r.arena.refs, r)
	r.arena.refs = slices.Delete(r.arena.refs, i, i+1)
}

// Holds reports whether there are Refs that were not released.
func (a *Arena) Holds() bool { return len(a.refs) > 0 }

// GiveUp gives up what is held of a space, and reports whether anything was: what is promised to
// hosts comes first.
func (a *Arena) GiveUp(space *alloc.Space) (any bool) {
	for _, r := range a.refs {
		if r.space == space && !r.lost {
			r.lost, any = true, true
			r.unhold()
		}
	}
	return any
}

// Runs calls fn for the runs of [off, off+n) of a Ref, with Start counted from off, until it
// returns false.
func (r *Ref) Runs(off, n uint64, fn func(Run) bool) {
	lo, hi := 0, len(r.runs)
	for lo < hi { // first run that ends behind off
		if mid := (lo + hi) / 2; r.runs[mid].End() <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for _, x := range r.runs[lo:] {
		if x.Start >= off+n {
			return
		}
		if cut := max(x.Start, off) - x.Start; cut > 0 {
			x.Start, x.Count, x.Phys = x.Start+cut, x.Count-cut, x.Phys+cut
		}
		x.Count = min(x.Count, off+n-x.Start)
		x.Start -= off
		if !fn(x) {
			return
		}
	}
}

// eachGrain calls fn for the grains of each run of data.
func (r *Ref) eachGrain(fn func(g uint64)) {
	for _, x := range r.runs {
		if x.State == block.Data {
			for g := x.Phys >> layout.WindowShift; g <= (x.Phys+x.Count-1)>>layout.WindowShift; g++ {
				fn(g)
			}
		}
	}
}

func (r *Ref) unhold() {
	r.eachGrain(r.space.Unhold)
	r.runs = nil
}
