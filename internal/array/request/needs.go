// What of a map a request needs next, and how it waits for leaves that are absent (package extent).
//
// A request asks for them before its first effect, before it has room or a lock, and again whenever it
// resumes. Whoever waits for anything keeps the leaves that it needs then: so what was read for somebody
// is there when his turn comes.

package request

import (
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// needs is what an op needs of leaves.
type needs struct {
	pins  demand.Pins // those that it needs next, while it waits
	exact bool        // of an edit that anchors: there is not enough for what its leaves might take
	hopes bool        // the leaf that it waits for is of the garbage
}

// mostExact is how many leaves of a range are read to know what anchoring it takes.
const mostExact = 4096

// leafSectors is what a leaf spans.
const leafSectors = node.LeafSectors

// eachNeed calls fn for each range that the op looks at or changes next, until it returns false.
func (o *op) eachNeed(fn func(g block.Range, use extent.Use) bool) {
	v, r := o.v, o.req
	switch o.kind {
	case KindEdit:
		for _, g := range v.EditOf(r, &o.e.one, o.started).Ranges {
			if !fn(g, extent.SetState) {
				return
			}
			if g.Count = min(g.Count, mostExact*leafSectors); o.needs.exact && !fn(g, extent.Look) {
				return
			}
		}
	case KindClone:
		fn(block.Range{Start: r.Range.Start + o.started, Count: min(r.Range.Count-o.started, partSectors)}, extent.SetData)
	case KindMove:
		if x := o.nextRun(); o.started < o.stop && x.State != block.Data {
			fn(block.Range{Start: r.Range.Start + o.started, Count: x.Count}, extent.SetState)
		}
	case KindCompare:
		if !v.holds(o) {
			fn(r.Range, extent.SetData)
			return
		}
		fallthrough
	case KindWrite, KindPiece:
		fn(block.Range{Start: o.cur, Count: o.pieceLen()}, extent.SetData)
	}
}

// missing returns the queue of a leaf that the op needs next and that is absent, nil if none is.
func (o *op) missing() (q *ticket.Queue) {
	if o.e.arena.Absent() > 0 {
		o.eachNeed(func(g block.Range, use extent.Use) bool {
			q = o.v.Map.Missing(g, use)
			return q == nil
		})
	}
	return q
}

// fails reports whether the op ends because of what is wrong with the leaf that it waited for. Where that is of the garbage,
// the space that it refers to comes back without it if it is damaged, and not at all as long as it does not come.
func (o *op) fails(err error) bool {
	return err != nil && (!o.needs.hopes || errors.Is(err, demand.ErrLate))
}

// keepLeaves keeps the leaves that the op needs next.
func (o *op) keepLeaves() {
	if o.e.arena.Bounded() && o.needs.pins.Empty() {
		o.eachNeed(func(g block.Range, use extent.Use) bool {
			o.v.Map.Keep(&o.needs.pins, g, use)
			return true
		})
	}
}

// pieceLen returns the sectors from o.cur to the end of its 256 KiB, or all of an atomic write.
func (o *op) pieceLen() uint64 {
	if r := o.req; r != nil && (r.Flags&block.Atomic != 0 || r.Op == block.OpCompareWrite) && o.stop-o.cur <= layout.PieceSectors {
		return o.stop - o.cur
	}
	return min(o.stop-o.cur, layout.PieceSectors-o.cur%layout.PieceSectors)
}

// nextRun returns the first run of what is left to place.
func (o *op) nextRun() (x extent.Run) {
	o.ref.Runs(o.req.RefOffset+o.started, o.stop-o.started, func(first extent.Run) bool { x = first; return false })
	return x
}

// holds reports whether an op has a lock.
func (v *Volume) holds(o *op) bool { return slices.Contains(v.locks, o) }
