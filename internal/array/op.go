package array

import (
	"bytes"

	"github.com/arraysim/arraysim/internal/block"
)

// op is a request that changes something, on its way. It waits in at most one
// queue; ops are recycled.
type op struct {
	a      *Array
	v      *Volume
	req    *block.Request
	origin block.Origin
	host   uint32 // whose budget it counts in
	prio   uint8  // of a copy: 0 goes first
	cur    uint64 // next sector
	stop   uint64
	src    cursor
	same   []byte // WRITE SAME: a piece full of the pattern
	buf    []byte // what a compare or a copy read
	locked bool   // holds an exclusive lock on req.Range
	// givenUp: who sent it does not want it any more, but it has started.
	givenUp bool
	since   int64 // when it began to wait for its partition, 0 if it does not
	braked  int64 // when it began to wait for its offload budget, 0 if it does not
	idle    int64 // since when nothing of it was committed because it waits, 0: it does not
	lacks   lack  // of what pools share, when it was last refused

	claim     int  // pages that are booked to its budget while it waits for room
	claimHost bool // and to its host's

	logEdits int // that it waits for room in the log for

	// A write that ends when the back end has it.
	through   bool  // what is committed next is
	reserve   bool  // and lies outside of its partition
	parked    int64 // since when all is committed and not all is settled, 0: that is not so
	unsettled int   // pages

	// A data copy.
	ref     *ref
	parent  *op    // of a piece
	moving  int64  // bytes of a piece
	from    uint64 // of a piece: the physical sector that it reads
	started uint64 // sectors of the Ref that were handed to pieces
	pieces  []*op  // that are under way
	copying bool   // copy is on the stack
	status  block.Status

	in         *opQueue
	prev, next *op
}

func (a *Array) newOp(v *Volume, r *block.Request) *op {
	o := a.freeOp
	if o == nil {
		o = &op{}
	} else {
		a.freeOp = o.next
	}
	same, pieces := o.same, o.pieces[:0]
	*o = op{a: a, v: v, req: r, same: same, pieces: pieces}
	v.ops++
	if r != nil {
		r.Priv = o
		o.origin, o.host, o.prio, o.cur, o.stop = r.Origin, r.Host, r.Priority, r.Range.Start, r.Range.End()
	}
	return o
}

// end completes an op and lets those go on that waited for its lock.
func (o *op) end(s block.Status) {
	o.answer(s)
	o.v.ops--
	a := o.a
	*o = op{same: o.same, pieces: o.pieces[:0], next: a.freeOp}
	a.freeOp = o
}

// answer tells whoever waits for the op that it has ended.
func (o *op) answer(s block.Status) {
	a, v := o.a, o.v
	if o.locked {
		o.locked = false
		v.unlock(o)
	}
	if o.req != nil {
		o.req.Priv = nil
		if v.changes != nil {
			v.changed(o.req, s)
		}
		a.finish(o.req, s)
		o.req = nil
	}
	if p := o.parent; p != nil {
		o.parent = nil
		v.pool.copying[primOf(o.origin)] -= o.moving
		a.copyOut -= o.moving
		a.putCopyBuf(o.buf)
		o.buf = nil
		p.pieceDone(o, s)
	}
}

func (o *op) start() {
	r := o.req
	switch r.Op {
	case block.OpWrite:
		o.src = cursor{vec: r.Data}
		o.write(false)
	case block.OpWriteSame:
		if len(r.Data) == 0 {
			o.edit()
			return
		}
		o.pattern()
		o.write(false)
	case block.OpUnmap:
		o.edit()
	case block.OpCompareWrite, block.OpOrWrite:
		o.lock()
	case block.OpPlace:
		o.place()
	}
}

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
			v.lockWait.push(o)
			return
		}
		switch a.admit(o, n, head) {
		case waitRoom:
			o.wait(first)
			return
		case waitLog:
			o.wait(first)
			return
		case waitBudget:
			o.brake()
			return
		}
		o.stopWaiting()
		o.idle = 0
		// Pools, and volumes that take turns, do so piece by piece.
		head = head && a.opt.Policy.Admission != AdmitFair && len(a.line.pools) <= 1
		if len(o.same) > 0 && o.req != nil && o.req.Op == block.OpWriteSame {
			// A piece begins at a multiple of the block, so the pattern is in phase.
			o.src = cursor{vec: [][]byte{o.same}}
		}
		if s := a.commit(o, n); s == block.NoSpace && a.scratch.wait {
			a.spaceWait.push(o)
			return
		} else if s != block.OK {
			o.abandon(s)
			return
		}
		o.cur += n
	}
	if o.unsettled > 0 {
		o.park()
		return
	}
	o.written()
}

// written ends a write whose data is where it must be.
func (o *op) written() {
	a, v := o.a, o.v
	if o.status != block.OK {
		o.end(o.status)
		return
	}
	if o.req != nil && o.req.Op == block.OpWriteSame {
		v.countOffload(primWriteSame, pathCopy, v.pool, o.req.Range.Bytes())
	}
	if o.req != nil && o.req.Flags&block.FUA != 0 {
		a.flush(o)
		return
	}
	o.end(block.OK)
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
		o.park()
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
	a.yielded.push(o)
	if a.yielded.head == o {
		a.exec.At(a.exec.Now(), a.resumeFn)
	}
}

func (a *Array) resumeYielded() {
	batch := a.yielded
	a.yielded = opQueue{}
	for o := batch.head; o != nil; {
		next := o.next
		o.in, o.prev, o.next = nil, nil, nil
		if o.req != nil && o.req.Op == block.OpPlace {
			o.resume()
		} else {
			o.write(false)
		}
		o = next
	}
	a.endStep()
}

// resume goes on with a map edit or a copy that waited for its turn, for the log or for a range lock.
func (o *op) resume() {
	switch {
	case o.ref != nil:
		o.copy()
	case o.req.Op == block.OpPlace:
		o.place()
	default:
		o.edit()
	}
}

// flush makes all that was acknowledged survive power loss and then ends the op.
func (a *Array) flush(o *op) {
	a.flusher.After(func(err error) {
		s := block.OK
		if err != nil {
			s = block.Hardware
		}
		o.end(s)
	})
}

// Range locks: COMPARE AND WRITE and ORWRITE read, decide and write as one.

func (v *Volume) conflict(o *op, r block.Range) bool {
	for _, l := range v.locks {
		if l != o && l.req.Range.Overlaps(r) {
			return true
		}
	}
	return false
}

// lock takes the exclusive lock of a compare-and-write and goes on with its read.
func (o *op) lock() {
	v := o.v
	if v.conflict(o, o.req.Range) {
		v.lockWait.push(o)
		return
	}
	v.locks = append(v.locks, o)
	o.locked = true
	n := int(o.req.Range.Bytes())
	if cap(o.buf) < n {
		o.buf = make([]byte, n)
	}
	o.buf = o.buf[:n]
	o.a.readInto(o, o.buf, o.modify)
}

// modify compares or combines what was read and writes the result under the lock.
func (o *op) modify(s block.Status) {
	r := o.req
	if s == block.OK && o.givenUp {
		s = block.Cancelled
	}
	if s != block.OK {
		o.end(s)
		return
	}
	if o.a.payload {
		switch r.Op {
		case block.OpCompareWrite:
			at := 0
			for _, want := range r.Compare {
				if i := mismatch(o.buf[at:at+len(want)], want); i >= 0 {
					r.Offset = uint64(at + i)
					o.end(block.Miscompare)
					return
				}
				at += len(want)
			}
			o.src = cursor{vec: r.Data}
		case block.OpOrWrite:
			at := 0
			for _, b := range r.Data {
				for i := range b {
					o.buf[at+i] |= b[i]
				}
				at += len(b)
			}
			o.src = cursor{vec: [][]byte{o.buf}}
		}
	}
	a := o.a // o may be gone when write returns
	o.write(false)
	a.endStep()
}

// mismatch returns the index of the first difference, -1 if there is none.
func mismatch(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range b {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func (v *Volume) unlock(o *op) {
	for i, l := range v.locks {
		if l == o {
			v.locks = append(v.locks[:i], v.locks[i+1:]...)
			break
		}
	}
	waiting := v.lockWait
	v.lockWait = opQueue{}
	for w := waiting.head; w != nil; {
		next := w.next
		w.in, w.prev, w.next = nil, nil, nil
		switch {
		case w.req != nil && (w.req.Op == block.OpCompareWrite || w.req.Op == block.OpOrWrite) && !w.locked:
			w.lock()
		case w.req == nil || w.req.Op == block.OpWrite || w.req.Op == block.OpWriteSame && len(w.req.Data) > 0 || w.locked:
			w.write(false)
		default:
			w.resume()
		}
		w = next
	}
}
