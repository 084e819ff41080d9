// A write on its way into the cache, piece by piece: each waits until no lock is in its way, is
// admitted, and is committed. A piece of a copy, and a compare-and-write, take the same way when
// they have their data. What writes through ends when the back end has it: a page says to the cache
// whether somebody waits for it, and the array who; the write counts its pages.

package request

import (
	"cmp"

	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// write admits and commits pieces until all is done or the op must wait. head
// says that the op stood first in its partition's queue.
func (o *op) write(head bool) {
	e, v := o.e, o.v
	first := head
	filled := o.fill.Take(o.pieceLen())
	for pieces := 0; o.cur < o.stop; pieces++ {
		n := o.pieceLen()
		// Who was next in line, and has its piece's room, writes that first.
		if pieces == StepPieces || !head && o.cur+n < o.stop && !e.wakes.turns.Take(e.exec.Now()) {
			o.stopWaiting()
			e.yield(o)
			return
		}
		if s := o.barred(); s != block.OK {
			o.stopWaiting()
			o.abandon(s)
			return
		}
		if o.lacksLeaf() {
			o.stopWaiting()
			return
		}
		if v.conflict(o, block.Range{Start: o.cur, Count: n}) {
			o.stopWaiting()
			o.await(&v.lockWait)
			return
		}
		switch o.admitted(n, head, filled) {
		case admission.NoRoom, admission.NoLog:
			o.wait(first)
			return
		case admission.NoBudget:
			o.throttle()
			return
		}
		o.stopWaiting()
		if !filled && o.fillsAside(n) {
			o.beginFill(n, head)
			return
		}
		// Pools, and volumes that take turns, do so piece by piece.
		head = head && e.link.InOrder() && e.link.Alone()
		if o.req != nil && o.req.Op == block.OpWriteSame && e.payload {
			// A piece begins at a multiple of the block, so the pattern is in phase.
			o.src = block.Cursor{Vec: e.same.Of(o.req.Data, layout.PieceSectors*block.SectorSize)}
		}
		s := e.commit(o, n)
		o.fill.Forget()
		filled = false
		if s == block.NoSpace && e.scratch.again {
			o.again()
			return
		} else if s == block.NoSpace && e.scratch.wait {
			o.Since = cmp.Or(o.Since, max(1, e.exec.Now())) // else it was woken, and others were faster
			o.await(&v.Pool().SpaceWait)
			e.watchFn() // what keeps the space may be stuck
			return
		} else if s != block.OK {
			o.abandon(s)
			return
		}
		o.cur, o.Since = o.cur+n, 0
		o.needs.pins.Release()
	}
	if o.unsettled > 0 {
		o.settle()
		return
	}
	o.written()
}

// beginFill has a piece of n sectors filled.
func (o *op) beginFill(n uint64, head bool) {
	if o.fns.fill == nil {
		o.fns.fill, o.fns.filled = o.fill.Copy, o.filled
	}
	o.fill.Head = head
	o.keepLeaves()
	o.to(filling)
	o.e.filling++
	o.e.link.Fill(&o.fill, o.v.Cached, o.cur, o.cur+n, o.src)
	o.e.aside.Aside(n*block.SectorSize, o.fns.fill, o.fns.filled)
}

// filled goes on with a piece that has its data in its pages.
func (o *op) filled() {
	e, was := o.e, o.state
	o.to(running)
	e.filling--
	o.fill.End()
	e.GaveRoom() // if it is not committed after all
	if was == unwanted {
		o.abandon(block.Cancelled)
	} else {
		o.write(o.fill.Head)
	}
	e.EndStep()
}

// barred says why an op that may have waited changes nothing more, OK if nothing bars it: its volume
// has become smaller, or nobody knows what the next start finds of the objects. What a change in
// doubt had reserved is free again here, and may be somebody's there.
func (o *op) barred() block.Status {
	switch {
	case o.e.doubt != "":
		return block.Hardware
	case o.req != nil:
		return o.v.CheckRange(o.req)
	case o.stop > o.v.Limit:
		return block.OutOfRange
	}
	return block.OK
}

// written ends a write whose data is where it must be.
func (o *op) written() {
	v, r := o.v, o.req
	switch {
	case o.status != block.OK:
		o.end(o.status)
		return
	case r != nil && r.Op == block.OpWriteSame:
		v.CountOffload(pool.PrimWriteSame, pool.PathCopy, v.Pool().ID(), r.Range.Bytes())
	}
	if r != nil && r.Flags&block.FUA != 0 {
		o.flush()
		return
	}
	o.end(block.OK)
}

// flush makes all that was acknowledged survive power loss and then ends the op.
func (o *op) flush() {
	o.to(flushing)
	if o.fns.flushed == nil {
		o.fns.flushed = o.flushed
	}
	o.e.link.Flushed(o.fns.flushed)
}

func (o *op) flushed(err error) {
	s := block.OK
	if err != nil {
		s = block.Hardware
	}
	o.end(s)
}

// withdraw takes an op out of the queue that it waits in and ends it.
func (o *op) withdraw(s block.Status) {
	o.unqueue()
	o.stopWaiting()
	o.abandon(s)
}

// abandon ends a write before its end, but not before what it has committed is settled.
func (o *op) abandon(s block.Status) {
	if o.unsettled > 0 {
		o.status = s
		o.settle()
		if s == block.Cancelled {
			o.answer(s) // what was committed stays, and settles without the host
		}
		return
	}
	o.end(s)
}

// settlement is the writes that wait for the back end.
type settlement struct {
	pages   map[uint32]*op // the write that waits for a page
	waiting ticket.Queue   // writes whose pages are not all settled
	ended   []*op          // writes whose pages are, until the end of the step
}

// settle makes an op wait until the back end has what it has committed.
func (o *op) settle() {
	o.Since = max(1, o.e.exec.Now())
	o.await(&o.e.settling.waiting)
	o.e.watchFn() // the back end may be stuck
}

// Settled books that a page's data is on the back end, or that nobody needs it there
// any more, to the write that waits for it.
func (e *Engine) Settled(i uint32) {
	o := e.settling.pages[i]
	delete(e.settling.pages, i)
	// Whoever waits goes on at the end of the step: a list may be half walked now.
	if o.unsettled--; o.unsettled == 0 && o.In(&e.settling.waiting) {
		o.Leave()
		e.settling.ended = append(e.settling.ended, o)
	}
}

// endSettled ends the writes whose last page has settled.
func (e *Engine) endSettled() {
	for len(e.settling.ended) > 0 {
		n := len(e.settling.ended) - 1
		o := e.settling.ended[n]
		e.settling.ended = e.settling.ended[:n]
		o.Waiter().Resume()
	}
}
