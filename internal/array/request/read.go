// Reads, of hosts and of the array itself: whom they are for (package reading carries them out).

package request

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/reading"
	"github.com/arraysim/arraysim/internal/block"
)

// read is a read on its way.
type read struct {
	reading.Read
	e    *Engine
	req  *block.Request
	done func(block.Status) // of an internal read
	v    *Volume
	next *read

	tell      *block.Request // is told where the data is bad; nil with what is not a range of a volume
	op        *op            // of an internal read: it, or a piece of it, is why this is read
	piece     block.Piece    // why this is read for another array
	cancelled bool
}

func (e *Engine) newRead(v *Volume) *read {
	r := e.freeRead
	if r == nil {
		r = &read{}
	} else {
		e.freeRead = r.next
	}
	r.e, r.v, r.next = e, v, nil // the rest is zero since it ended
	r.Begin(&e.from, r)
	v.ops++
	return r
}

// Unwanted reports whether nobody waits for what is read any more.
func (r *read) Unwanted() bool {
	o := r.op
	return r.cancelled || r.piece != nil && r.piece.Unwanted() || o != nil && (o.state == unwanted || o.parent != nil && o.parent.status != block.OK)
}

// startRead answers a host read.
func (e *Engine) startRead(v *Volume, req *block.Request) {
	r := e.newRead(v)
	r.req, r.tell, r.Reason = req, req, block.ReasonStage
	req.Priv = r
	dst := block.Cursor{Vec: req.Data}
	r.volume(v, req.Range, &dst)
	r.Release()
}

// readInto reads the range of an op's request for the array itself and calls done, perhaps at once.
func (e *Engine) readInto(o *op, buf []byte, done func(block.Status)) {
	v := o.v
	r := e.newRead(v)
	r.done, r.Reason, r.Origin = done, block.ReasonRMW, block.OriginCAW
	r.tell, r.op = o.req, o
	dst := block.Cursor{Vec: [][]byte{buf}}
	r.volume(v, o.req.Range, &dst)
	r.Release()
}

func (r *read) volume(v *Volume, rg block.Range, dst *block.Cursor) {
	v.Map.Walk(rg, func(x extent.Run) bool {
		r.Skew = x.Start - x.Phys
		return r.Run(v.Pool(), x, dst)
	})
}

// Ended implements reading.Owner.
func (r *read) Ended() {
	e := r.e
	r.v.ops--
	done, s := r.done, r.Status
	if bad, ok := r.Located(); ok && r.tell != nil {
		r.tell.Offset, r.tell.Located = (bad-r.tell.Range.Start)<<block.SectorShift, true
	}
	if r.req != nil {
		r.req.Priv = nil
		e.finishRead(r.v, r.req, r.req.Range, s)
	}
	*r = read{next: e.freeRead}
	e.freeRead = r
	if done != nil {
		done(s)
	}
}
