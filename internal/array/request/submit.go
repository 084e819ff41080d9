// The way in: requests begin here, each of its kind, and are withdrawn.

package request

import (
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// Submit starts requests; see block.Device.
func (v *Volume) Submit(reqs []*block.Request) {
	e := v.e
	for _, r := range reqs {
		v.submit(r)
	}
	e.EndStep()
}

func (v *Volume) submit(r *block.Request) {
	e := v.e
	if v.Deleted || e.stopped {
		e.finish(r, block.Gone)
		return
	}
	if v.Ending {
		e.finish(r, block.Resources)
		return
	}
	if s := v.CheckRange(r); s != block.OK {
		e.finish(r, s)
		return
	}
	switch r.Op {
	case block.OpRead, block.OpStatus, block.OpHold:
		e.look(v, r)
	case block.OpFlush:
		e.newOp(KindFlush, v, r).flush()
	case block.OpWrite, block.OpWriteSame, block.OpUnmap, block.OpCompareWrite, block.OpOrWrite, block.OpPlace:
		if e.Broken() != "" {
			e.finish(r, block.Hardware)
			return
		}
		e.begin(v, r)
	default:
		e.finish(r, block.Unsupported)
	}
}

// begin carries out a request that changes something, as far as it goes now.
func (e *Engine) begin(v *Volume, r *block.Request) {
	switch r.Op {
	case block.OpWrite:
		o := e.newOp(KindWrite, v, r)
		o.src = block.Cursor{Vec: r.Data}
		o.write(false)
	case block.OpWriteSame:
		if len(r.Data) == 0 {
			e.newOp(KindEdit, v, r).edit()
			return
		}
		e.newOp(KindWrite, v, r).write(false)
	case block.OpUnmap:
		e.newOp(KindEdit, v, r).edit()
	case block.OpCompareWrite, block.OpOrWrite:
		e.newOp(KindCompare, v, r).lock()
	case block.OpPlace:
		e.newOp(KindClone, v, r).place()
	}
}

// Resume goes on with a request that was given what it waited for.
func (o *op) Resume() {
	had := o.For()
	o.to(running)
	switch {
	case had == ticket.BackEnd:
		o.written()
	case had == ticket.Map && o.fails(o.e.arena.Demand().Failing()):
		o.unreadable()
	case o.kind == KindEdit:
		o.edit()
	case o.kind == KindClone:
		o.place()
	case o.kind == KindMove:
		o.copy()
	case had == ticket.CopyRead:
		o.readSource()
	case (had == ticket.Lock || had == ticket.Map) && o.kind == KindCompare && !o.v.holds(o):
		o.lock()
	default:
		o.write(had == ticket.Room)
	}
}

// unreadable ends an op as far as it goes that needs a leaf which cannot be read.
func (o *op) unreadable() {
	switch {
	case o.kind == KindMove:
		if o.status == block.OK {
			o.status = block.MediumWrite
		}
		o.copy()
	case o.kind == KindCompare && !o.v.holds(o):
		o.end(block.MediumRead)
	case o.kind == KindEdit, o.kind == KindClone:
		o.end(block.MediumWrite)
	default:
		o.stopWaiting()
		o.abandon(block.MediumWrite)
	}
}

// Cancel withdraws a request that waits for room in its partition, in the log, for a range lock, for a leaf of a map, or
// until the back end has what it wrote. A data copy stops after the pieces that have begun to move.
// What an mdisk is reading for it is waited for, but not as long as with others (backend.AbortPatience),
// and so is the copy of its data into NVRAM.
func (v *Volume) Cancel(r *block.Request) {
	switch o := r.Priv.(type) {
	case *looking:
		o.cancel()
	case *read:
		if o.req == r {
			o.cancelled = true
		}
	case *op:
		if o.req == r {
			o.cancel()
		}
	}
}

func (o *op) cancel() {
	switch {
	case o.kind == KindMove:
		o.stopCopy(block.Cancelled)
	case o.state == waiting:
		o.withdraw(block.Cancelled)
	case o.state == settling:
		o.answer(block.Cancelled)
	case o.state == fetching, o.state == filling:
		o.to(unwanted)
	}
	o.e.EndStep()
}
