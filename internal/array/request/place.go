// Copies of what a reference to a point in time holds: by reference, as edits of the map, or as a
// move of the data, which copy.go does.

package request

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

// partSectors is the longest part of a copy by reference: 256 MiB, 4,096 windows.
const partSectors = 256 << 20 >> block.SectorShift

// place makes a range what a Ref holds: a map edit inside one pool, a copy through
// the cache otherwise or where the pool's array moves data.
//
// A map edit of up to nvlog.MaxEdits runs and partSectors is atomic: a segment of EXTENDED COPY is no
// longer than these. One of more is done in such parts, each atomic; others have their turn between
// two of them, as SPC-4 allows.
func (o *op) place() {
	e, v, r := o.e, o.v, o.req
	h := e.sourceOf(r.Ref)
	own, _ := h.(*ref)
	barred := o.barred()
	switch {
	case h == nil:
		o.end(block.Unsupported)
		return
	case r.RefOffset+r.Range.Count > h.Sectors():
		o.end(block.OutOfRange)
		return
	case barred != block.OK:
		o.end(barred)
		return
	case h.Lost():
		o.end(block.NoSpace)
		return
	case v.conflict(o, r.Range):
		o.await(&v.lockWait)
		return
	case own == nil || !own.in(v.Pool()) || v.Moves(r.Range.Bytes()-o.started*block.SectorSize):
		o.placeData(h)
		return
	}
	o.placeEdits(own)
}

// placeEdits places as many runs as one record takes. Where there is no space for what they keep
// (pool.Loan), the data moves.
func (o *op) placeEdits(h *ref) {
	e, v, r := o.e, o.v, o.req
	if o.lacksLeaf() {
		return
	}
	if e.owes() {
		o.letCollect()
		return
	}
	e.edits = e.edits[:0]
	from, to, loan := o.started, o.started, v.Pool().NewLoan()
	h.Runs(r.RefOffset+from, min(r.Range.Count-from, partSectors), func(x extent.Run) bool {
		if len(e.edits) == nvlog.MaxEdits {
			return false
		}
		if x.State == block.Data {
			loan.Add(x.Phys, x.Count)
		}
		e.edits = append(e.edits, nvlog.Edit{Volume: v.ID(), State: v.CopyState(x.State),
			Range: block.Range{Start: r.Range.Start + from + x.Start, Count: x.Count}, Phys: x.Phys})
		to = from + x.Start + x.Count
		return true
	})
	room, ok := e.link.Claim(len(e.edits))
	has, more := loan.Granted()
	switch {
	case !ok:
		o.waitForLog(len(e.edits))
		return
	case more:
		o.again()
		return
	case !has:
		o.placeData(h)
		return
	case !e.applyEdits(v, &room):
		o.end(block.Hardware)
		return
	}
	o.needs.pins.Release()
	if o.started = to; to < r.Range.Count {
		e.yield(o)
		return
	}
	v.CountOffload(pool.PrimOf(o.origin), pool.PathMetadata, h.from(), r.Range.Bytes())
	o.end(block.OK)
}

// placeData moves the data of what is left to place.
func (o *op) placeData(h source) {
	o.kind, o.ref, o.stop = KindMove, h, o.req.Range.Count
	o.needs.pins.Release()
	o.copy()
}
