// A move reads the runs of data that its reference holds, piece by piece, and writes them like a
// host's; what is not data is an edit of the map.

package request

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// copy starts pieces of a data copy while the limit allows, and ends the copy behind the last one:
// data is read and admitted like any write, what is not data is a map edit.
func (o *op) copy() {
	e := o.e
	if o.ref.Lost() && o.status == block.OK {
		o.status = block.NoSpace
	}
	if o.status == block.OK {
		o.status = o.barred()
	}
	blocked := ticket.Nothing
	for n := 0; o.started < o.stop && o.status == block.OK && len(o.pieces) < e.copies.Limits.Pieces && blocked == ticket.Nothing; n++ {
		if !e.copies.Room() {
			o.lack(ticket.CopyEngine)
			e.copies.Moves.PushRanked(&o.Ticket)
			return
		}
		if p := len(o.pieces); p > 0 && e.payload && !e.copies.Spare(p) {
			break // the end of any of them comes back here
		}
		// Each begins one piece at once, which the engine's limits bound. The turn is for what comes after it.
		if n == StepPieces || n > 0 && !e.wakes.turns.Take(e.exec.Now()) {
			e.yield(o)
			return
		}
		if x := o.nextRun(); x.State == block.Data {
			o.copyPiece(x)
		} else {
			blocked = o.copyState(x)
		}
	}
	if len(o.pieces) > 0 {
		o.to(moving)
		return
	}
	switch blocked { // no piece will bring it back
	case ticket.Log:
		o.waitForLog(1)
		return
	case ticket.Lock:
		o.await(&o.v.lockWait)
		return
	case ticket.Turn:
		o.letCollect()
		return
	case ticket.Map:
		o.lacksLeaf()
		return
	}
	if o.status == block.OK {
		o.v.CountOffload(pool.PrimOf(o.origin), pool.PathCopy, o.ref.from(), o.stop*block.SectorSize)
	}
	o.end(o.status)
}

// copyState copies a run without data, or returns what it has to wait for.
func (o *op) copyState(x extent.Run) ticket.Resource {
	e, v := o.e, o.v
	to := block.Range{Start: o.req.Range.Start + o.started, Count: x.Count}
	if o.missing() != nil {
		return ticket.Map
	}
	if v.conflict(o, to) {
		return ticket.Lock
	}
	if e.owes() {
		return ticket.Turn
	}
	room, ok := e.link.Claim(1)
	if !ok {
		return ticket.Log
	}
	e.edits = append(e.edits[:0], nvlog.Edit{Volume: v.ID(), State: v.CopyState(x.State), Range: to})
	if !e.applyEdits(v, &room) {
		o.status = block.Hardware
	}
	o.started += x.Count
	o.needs.pins.Release()
	return ticket.Nothing
}

// copyPiece reads the first piece of a run and writes it.
func (o *op) copyPiece(x extent.Run) {
	e, v := o.e, o.v
	at := o.req.Range.Start + o.started
	n := min(x.Count, layout.PieceSectors-at%layout.PieceSectors)
	o.started += n
	c := e.newOp(KindPiece, v, nil)
	o.pieces = append(o.pieces, c)
	c.parent, c.origin, c.host, c.Rank, c.cur, c.stop, c.from = o, o.origin, o.host, o.Rank, at, at+n, x.Phys
	c.bytes = int64(n) * block.SectorSize
	v.Pool().Copying(o.origin, c.bytes)
	e.copies.Out += c.bytes
	if !e.copies.ReadRoom() {
		c.lack(ticket.CopyRead)
		e.copies.Reads.PushRanked(&c.Ticket)
		return
	}
	c.readSource()
}

// readSource reads what a piece copies, into a buffer that it has from here on, and then writes it.
func (o *op) readSource() {
	e := o.e
	if o.parent.ref.Lost() {
		o.end(block.NoSpace)
		return
	}
	if e.payload {
		o.buf = e.copies.Buf(int(o.stop-o.cur) * block.SectorSize)
	}
	o.src = block.Cursor{Vec: [][]byte{o.buf}}
	e.copies.Reading++
	if o.fns.moved == nil {
		o.fns.moved, o.fns.fetched = o.moved, o.fetched
	}
	o.to(fetching)
	o.parent.ref.read(o)
}

// moved goes on with a piece that has read its source.
func (o *op) moved(s block.Status) {
	defer o.e.EndStep()
	o.readEnded(s)
}

// fetched is moved with the buffer that another array had, nil where that has it still.
func (o *op) fetched(buf []byte, s block.Status) {
	o.buf = buf
	o.moved(s)
}

// readEnded is moved within a step.
func (o *op) readEnded(s block.Status) {
	e := o.e
	e.copies.Reading--
	if !e.copies.Reads.Empty() {
		e.gave(ticket.CopyRead)
	}
	o.to(running)
	if p := o.parent; s == block.OK && p.status != block.OK {
		s = p.status // nothing may ever make room for a piece of a copy that has ended
	} else if s == block.OK && p.ref.Lost() {
		s = block.NoSpace // what was read may be newer than what the reference had
	}
	if s != block.OK {
		o.end(s)
		return
	}
	o.write(false)
}

// stopCopy ends a data copy early. Pieces that wait for room, for a budget or for the
// copy engine end with it: nothing may ever make room for them.
func (o *op) stopCopy(s block.Status) {
	if o.status == block.OK {
		o.status = s
	}
	if o.state == waiting {
		o.unqueue()
	} else {
		o.to(running) // nothing ends before all pieces were told
	}
	for _, c := range slices.Clone(o.pieces) {
		switch c.state {
		case waiting:
			c.withdraw(s)
		case settling:
			c.answer(s)
		case fetching:
			if o.ref.forget(c) {
				c.readEnded(s)
			}
		}
	}
	o.copy()
}
