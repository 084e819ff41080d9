package array

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// ref is a point-in-time reference to ranges of a volume.
type ref struct {
	*extent.Ref
	pool *Pool
}

// Release gives the references back.
func (r *ref) Release() {
	r.Ref.Release()
	r.pool.a.endStep()
}

// place makes a range what a Ref holds: a map edit inside one pool, a copy through
// the cache otherwise or where the pool's array moves data.
//
// A map edit of up to nvlog.MaxEdits runs is atomic. One of more is done in parts of that many, each
// atomic; others have their turn between two parts, as SPC-4 allows of EXTENDED COPY.
func (o *op) place() {
	a, v, r := o.a, o.v, o.req
	h, ok := r.Ref.(*ref)
	switch {
	case !ok || h.pool.a != a:
		o.end(block.Unsupported)
		return
	case r.RefOffset+r.Range.Count > h.Sectors():
		o.end(block.OutOfRange)
		return
	case v.checkRange(r) != block.OK: // it waited, and the volume has become smaller
		o.end(block.OutOfRange)
		return
	case h.Lost():
		o.end(block.NoSpace)
		return
	case v.conflict(o, r.Range):
		v.lockWait.push(o)
		return
	case h.pool != v.pool || v.pool.copyData:
		o.placeData(h)
		return
	}
	o.placeEdits(h)
}

// placeEdits places as many runs as one record takes. What shares a home of a thick volume has to leave it
// the space for another one, and what nothing but the copy keeps, which counts as free, takes space again.
// Where there is none, the data moves.
func (o *op) placeEdits(h *ref) {
	a, v, r := o.a, o.v, o.req
	a.edits = a.edits[:0]
	from, to, shared, last, kept := o.started, o.started, int64(0), alloc.NoGrain, false
	h.Runs(r.RefOffset+from, r.Range.Count-from, func(x extent.Run) bool {
		if len(a.edits) == nvlog.MaxEdits {
			return false
		}
		if x.State == block.Data {
			for g := x.Phys >> windowShift; g <= (x.Phys+x.Count-1)>>windowShift; g++ {
				if v.pool.space.SoleHome(g) && g != last {
					shared++
				}
				kept = kept || v.pool.space.MapRefs(g) == 0
				last = g
			}
		}
		a.edits = append(a.edits, nvlog.Edit{Volume: v.id, State: v.copyState(x.State),
			Range: block.Range{Start: r.Range.Start + from + x.Start, Count: x.Count}, Phys: x.Phys})
		to = from + x.Start + x.Count
		return true
	})
	room, ok := a.log.Claim(len(a.edits))
	switch {
	case !ok:
		o.waitForLog(len(a.edits))
		return
	case (shared > 0 || kept) && !v.pool.has(shared):
		o.placeData(h)
		return
	case !a.applyEdits(v, &room):
		o.end(block.Hardware)
		return
	}
	if o.started = to; to < r.Range.Count {
		a.yield(o)
		return
	}
	v.countOffload(primOf(o.origin), pathMetadata, h.pool, r.Range.Bytes())
	o.end(block.OK)
}

// placeData moves the data of what is left to place.
func (o *op) placeData(h *ref) {
	o.ref, o.status, o.stop = h, block.OK, o.req.Range.Count
	o.copy()
}

func primOf(g block.Origin) int {
	if g == block.OriginODX {
		return primODX
	}
	return primXCopy
}

// copyState is what a copy makes of a state: a thick volume has nothing unmapped, and on a thin one only
// its hosts anchor anything.
func (v *Volume) copyState(s block.State) block.State {
	switch {
	case s == block.Unmapped && !v.spec.Thin:
		return block.Anchored
	case s == block.Anchored && v.spec.Thin:
		return block.Unmapped
	}
	return s
}

// copy starts pieces of a data copy while the limit of pieces allows, and ends the
// copy behind the last one: runs of data are read and admitted like any write, what is
// not data is a map edit.
func (o *op) copy() {
	if o.copying || o.queued() { // a piece that ended inside the loop below, or while the copy yields
		return
	}
	a := o.a
	if o.ref.Lost() && o.status == block.OK {
		o.status = block.NoSpace
	}
	if o.status == block.OK && o.v.checkRange(o.req) != block.OK { // the volume has become smaller
		o.status = block.OutOfRange
	}
	o.copying = true
	var blocked blockedBy
	for n := 0; o.started < o.stop && o.status == block.OK && len(o.pieces) < a.opt.Policy.CopyPieces && blocked == blockedNot; n++ {
		if !a.copyRoom() {
			o.copying = false
			a.copyWait.pushByPriority(o)
			return
		}
		if n == stepPieces {
			o.copying = false
			if !o.queued() {
				a.yield(o)
			}
			return
		}
		var x extent.Run
		o.ref.Runs(o.req.RefOffset+o.started, o.stop-o.started, func(first extent.Run) bool { x = first; return false })
		if x.State == block.Data {
			o.copyPiece(x)
		} else {
			blocked = o.copyState(x)
		}
	}
	o.copying = false
	if len(o.pieces) > 0 {
		return
	}
	switch blocked { // no piece will bring it back
	case blockedByLog:
		o.waitForLog(1)
		return
	case blockedByLock:
		o.v.lockWait.push(o)
		return
	}
	if o.status == block.OK {
		o.v.countOffload(primOf(o.origin), pathCopy, o.ref.pool, o.stop*block.SectorSize)
	}
	o.end(o.status)
}

// blockedBy says what a copy has to wait for.
type blockedBy uint8

const (
	blockedNot    blockedBy = iota
	blockedByLog            // room in the log
	blockedByLock           // a range lock
)

// copyState copies a run without data, unless it has to wait.
func (o *op) copyState(x extent.Run) blockedBy {
	a, v := o.a, o.v
	to := block.Range{Start: o.req.Range.Start + o.started, Count: x.Count}
	if v.conflict(o, to) {
		return blockedByLock
	}
	room, ok := a.log.Claim(1)
	if !ok {
		return blockedByLog
	}
	a.edits = append(a.edits[:0], nvlog.Edit{Volume: v.id, State: v.copyState(x.State), Range: to})
	if !a.applyEdits(v, &room) {
		o.status = block.Hardware
	}
	o.started += x.Count
	return blockedNot
}

// copyPiece reads the first piece of a run and writes it.
func (o *op) copyPiece(x extent.Run) {
	a, v := o.a, o.v
	at := o.req.Range.Start + o.started
	n := min(x.Count, pieceSectors-at%pieceSectors)
	o.started += n
	c := a.newOp(v, nil)
	o.pieces = append(o.pieces, c)
	c.parent, c.origin, c.host, c.prio, c.cur, c.stop, c.from = o, o.origin, o.host, o.prio, at, at+n, x.Phys
	c.buf = a.getCopyBuf(int(n) * block.SectorSize)
	c.src = cursor{vec: [][]byte{c.buf}}
	c.moving = int64(n) * block.SectorSize
	v.pool.copying[primOf(o.origin)] += c.moving
	a.copyOut += c.moving
	if !a.readRoom() {
		a.readWait.pushByPriority(c)
		return
	}
	c.readSource()
}

// readSource reads what a piece copies and goes on with its write.
func (o *op) readSource() {
	a := o.a
	if o.parent.ref.Lost() {
		o.end(block.NoSpace)
		return
	}
	rd := a.newReading(o.v)
	o.v.ops++
	a.copyReading++
	rd.reason, rd.origin, rd.op = block.ReasonCopyRead, o.origin, o
	rd.done = func(s block.Status) {
		a.copyReading--
		if s == block.OK {
			o.write(false)
		} else {
			o.end(s)
		}
		a.endStep()
	}
	dst := o.src
	rd.physical(o.parent.ref.pool, o.from, o.stop-o.cur, &dst)
	rd.release()
}

// copyRoom tells whether the copy engine takes another piece.
func (a *Array) copyRoom() bool {
	n := a.opt.Policy.CopyBytes
	return n == 0 || a.copyOut == 0 || a.copyOut+pieceSectors*block.SectorSize <= n
}

// readRoom tells whether the copy engine may read another source.
func (a *Array) readRoom() bool {
	n := a.opt.Policy.CopyReads
	return n == 0 || a.copyReading < n
}

func (a *Array) copiesCanGo() bool {
	return !a.copyWait.empty() && a.copyRoom() || !a.readWait.empty() && a.readRoom()
}

// pumpCopies lets copies go on that the copy engine had no room for.
func (a *Array) pumpCopies() {
	for !a.readWait.empty() && a.readRoom() {
		o := a.readWait.head
		o.unqueue()
		o.readSource()
	}
	for !a.copyWait.empty() && a.copyRoom() {
		o := a.copyWait.head
		o.unqueue()
		o.copy()
	}
}

// pieceDone books a piece and goes on.
func (o *op) pieceDone(c *op, s block.Status) {
	if s != block.OK && o.status == block.OK {
		o.status = s
	}
	i := slices.Index(o.pieces, c)
	o.pieces = slices.Delete(o.pieces, i, i+1)
	o.copy()
}

// stopCopy ends a data copy early. Pieces that wait for room, for a budget or for the
// copy engine end with it: nothing may ever make room for them.
func (o *op) stopCopy(s block.Status) {
	if o.status == block.OK {
		o.status = s
	}
	if o.queued() {
		o.unqueue()
	}
	o.copying = true // nothing ends before all pieces were told
	for _, c := range slices.Clone(o.pieces) {
		switch {
		case c.queued():
			c.withdraw(s)
		case c.parked != 0:
			c.answer(s)
		}
	}
	o.copying = false
	o.copy()
}

func (a *Array) getCopyBuf(n int) []byte {
	if !a.payload {
		return nil
	}
	if k := len(a.copyBufs); k > 0 {
		b := a.copyBufs[k-1]
		a.copyBufs = a.copyBufs[:k-1]
		return b[:n]
	}
	return make([]byte, n, pieceSectors*block.SectorSize)
}

func (a *Array) putCopyBuf(b []byte) {
	if cap(b) >= pieceSectors*block.SectorSize {
		a.copyBufs = append(a.copyBufs, b)
	}
}
