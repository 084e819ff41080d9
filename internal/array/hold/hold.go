// Package hold is references to ranges of volumes at a point in time: a copy's source. Each holds the grains of its
// runs until it is released, or given up where promised space runs out. It knows no map: only runs, and the spaces
// that they lie in.
//
// # Ownership
//
// A [List] and its Refs belong to one executor. Whoever has a [Ref] releases it.
package hold

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// List is the references that hold something, or were given up and not released. Its zero value is empty.
type List struct{ refs []*Ref }

// Ref is a reference to ranges of a volume at a point in time: their runs, with a
// hold on every grain that they lie in. Who writes to the volume meanwhile writes elsewhere.
type Ref struct {
	list    *List
	space   *alloc.Space
	runs    []window.Run // Start counts from the beginning of what is held
	size    int          // runs that it was made of
	sectors uint64
	lost    bool // it was given up for want of space
}

// Add makes a Ref of runs, which follow each other from 0 to sectors, and holds the grains that they lie in. It is the
// caller's to Release.
func (l *List) Add(space *alloc.Space, runs []window.Run, sectors uint64) *Ref {
	r := &Ref{list: l, space: space, runs: runs, size: len(runs), sectors: sectors}
	l.refs = append(l.refs, r)
	r.eachGrain(space.Hold)
	return r
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
	i := slices.Index(r.list.refs, r)
	r.list.refs = slices.Delete(r.list.refs, i, i+1)
}

// Any reports whether there are Refs that were not released.
func (l *List) Any() bool { return len(l.refs) > 0 }

// GiveUp gives up what is held of a space, and reports whether anything was: what is promised to
// hosts comes first.
func (l *List) GiveUp(space *alloc.Space) (any bool) {
	for _, r := range l.refs {
		if r.space == space && !r.lost {
			r.lost, any = true, true
			r.unhold()
		}
	}
	return any
}

// Runs calls fn for the runs of [off, off+n) of a Ref, with Start counted from off, until it
// returns false.
func (r *Ref) Runs(off, n uint64, fn func(window.Run) bool) {
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
