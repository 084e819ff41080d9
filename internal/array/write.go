// A write on its way into the cache, piece by piece: each waits until no lock is in its way, is
// admitted, and is committed. A piece of a copy, and a compare-and-write, take the same way when
// they have their data. What writes through ends when the back end has it.

package array

import (
	"github.com/arraysim/arraysim/internal/block"
)

// pattern fills a piece with the block of a WRITE SAME.
func (o *op) pattern() {
	o.same = o.same[:0]
	for len(o.same) < pieceSectors*block.SectorSize {
		for _, b := range o.req.Data {
			o.same = append(o.same, b...)
		}
	}
}

// pieceLen returns the sectors from o.cur to the end of its 256 KiB; an atomic
// write is one piece wherever it lies.
func (o *op) pieceLen() uint64 {
	if o.req != nil && o.req.Flags&block.Atomic != 0 && o.stop-o.cur <= pieceSectors {
		return o.stop - o.cur
	}
	return min(o.stop-o.cur, pieceSectors-o.cur%pieceSectors)
}

// write admits and commits pieces until all is done or the op must wait. head
// says that the op stood first in its partition's queue.
func (o *op) write(head bool) {
	a, v := o.a, o.v
	first := head
	for pieces := 0; o.cur < o.stop; pieces++ {
		if pieces == stepPieces {
			o.stopWaiting()
			a.yield(o)
			return
		}
		n := o.pieceLen()
		if o.stop > v.limit { // the volume has become smaller
			o.stopWaiting()
			o.abandon(block.OutOfRange)
			return
		}
		if v.conflict(o, block.Range{Start: o.cur, Count: n}) {
			o.stopWaiting()
			o.await(&v.lockWait)
			return
		}
		switch a.admit(o, n, head) {
		case waitRoom, waitLog:
			o.wait(first)
			return
		case waitBudget:
			o.brake()
			return
		}
		o.stopWaiting()
		o.Since = 0
		// Pools, and volumes that take turns, do so piece by piece.
		head = head && a.opt.Policy.Admission != AdmitFair && len(a.line.pools) <= 1
		if len(o.same) > 0 && o.req != nil && o.req.Op == block.OpWriteSame {
			// A piece begins at a multiple of the block, so the pattern is in phase.
			o.src = cursor{vec: [][]byte{o.same}}
		}
		if s := a.commit(o, n); s == block.NoSpace && a.scratch.wait {
			o.await(&v.pool.spaceWait)
			return
		} else if s != block.OK {
			o.abandon(s)
			return
		}
		o.cur += n
	}
	if o.unsettled > 0 {
		o.settle()
		return
	}
	o.written()
}

// settle makes an op wait until the back end has what it has committed.
func (o *op) settle() {
	o.Since = max(1, o.a.exec.Now())
	o.await(&o.a.settling)
	o.a.watch() // the back end may be stuck
}

// settled books that a page's data is on the back end, or that nobody needs it there
// any more, to the write that waits for it.
func (a *Array) settled(i uint32) {
	if a.cache.pages[i].flags&flagThrough == 0 {
		return
	}
	a.cache.pages[i].flags &^= flagThrough
	o := a.through[i]
	delete(a.through, i)
	// Whoever waits goes on at the end of the step: a list may be half walked now.
	if o.unsettled--; o.unsettled == 0 && o.In(&a.settling) {
		o.Leave()
		a.settledOps = append(a.settledOps, o)
	}
}

// endSettled ends the writes whose last page has settled.
func (a *Array) endSettled() {
	for len(a.settledOps) > 0 {
		n := len(a.settledOps) - 1
		o := a.settledOps[n]
		a.settledOps = a.settledOps[:n]
		o.Resume()
	}
}

// written ends a write whose data is where it must be.
func (o *op) written() {
	v, r := o.v, o.req
	switch {
	case o.status != block.OK:
		o.end(o.status)
		return
	case r != nil && r.Op == block.OpWriteSame:
		v.countOffload(primWriteSame, pathCopy, v.pool, r.Range.Bytes())
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
	o.a.flusher.After(o.flushedFn)
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

// stepPieces is the number of pieces that one op commits before it lets others into
// the executor: a long WRITE SAME or copy must not hold everybody up.
const stepPieces = 16

// yield lets an op go on after others had their turn.
func (a *Array) yield(o *op) {
	o.await(&a.yielded)
	if headOf(&a.yielded) == o {
		a.exec.At(a.exec.Now(), a.resumeFn)
	}
}

func (a *Array) resumeYielded() {
	a.yielded.WakeAll()
	a.endStep()
}
