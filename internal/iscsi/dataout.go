package iscsi

import (
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi"
)

// beginCommand takes a SCSI Command's header.
func (c *conn) beginCommand(h bhs) error {
	flags, n, edtl := h[offFlags], h.dataLen(), intOf(h.u32(offEDTL))
	write, read := flags&flagWrite != 0, flags&flagRead != 0
	final := flags&flagFinal != 0 || !write
	first := min(int(c.p.firstBurst), edtl)
	switch {
	case n > 0 && !write:
		return violation(ErrUnsolicited, rejectProtocol, "data with a command that does not write")
	case n > 0 && !c.p.immediateData:
		return violation(ErrUnsolicited, rejectProtocol, "immediate data, negotiated ImmediateData=No")
	case n > first:
		return violation(ErrUnsolicited, rejectProtocol, "%d bytes of immediate data, at most %d", n, first)
	case !final && c.p.initialR2T:
		return violation(ErrUnsolicited, rejectProtocol, "unsolicited data announced, negotiated InitialR2T=Yes")
	case !final && n == first:
		return violation(ErrUnsolicited, rejectProtocol, "unsolicited data announced, no room for it")
	}
	if h.immediate() && c.immediates.Load() >= maxImmediates {
		c.makeRoom()
		c.reject(rejectTooManyImmed, h)
		return nil
	}
	// Two tasks of one tag cannot be told apart any more (RFC 7143 11.2.1.8): the
	// connection ends.
	slot, ok := c.tags.add(h.itt())
	if !ok {
		return violation(ErrPDU, rejectTaskInProgress, "initiator task tag %#x is in use", h.itt())
	}

	cmd := getCommand(c)
	cmd.slot = slot
	c.arrived++
	cmd.seq = c.arrived
	c.inflight.Add(1)
	c.count.commands.Add(1)
	if cmd.immediate = h.immediate(); cmd.immediate {
		c.immediates.Add(1)
	}
	length, ok := extendedCDB(cmd.cdb[:], h, c.rx.ahs)
	if !ok {
		cmd.release()
		return violation(ErrPDU, rejectInvalidField, "malformed additional header segments")
	}
	cmd.itt, cmd.edtl, cmd.read, cmd.write = h.itt(), edtl, read, write
	cmd.unsolicited = !final
	cmd.refuse = read && write || edtl > c.limits.MaxCommandData
	if coming := n; !cmd.refuse && write { // what comes unasked
		if !final {
			coming = first
		}
		if !cmd.charge(coming) {
			cmd.refuse, cmd.full = true, true
		}
	}
	t := &cmd.task
	t.LUN, t.Tag, t.Attr, t.CDB = h.lun(), uint64(cmd.itt), scsi.Attr(flags&attrMask), cmd.cdb[:length]
	if t.Attr == scsi.AttrOrdered {
		c.ordered++
	}
	t.Remaps = c.remaps
	t.MaxIn = 0
	if read {
		t.MaxIn = edtl
	}
	c.cur, c.act = cmd, actCommand
	if n > 0 && !cmd.refuse && !(n == edtl && n <= smallCommand && cmd.borrow()) {
		c.rx.places = cmd.place(c.rx.places[:0], 0, n)
		c.rx.dst = c.rx.places
	}
	cmd.received = n
	return nil
}

// borrow uses the data where it was received, if it can be left there.
func (cmd *command) borrow() bool {
	data, m := cmd.conn.rx.lend()
	if m == nil {
		return false
	}
	cmd.lent = m
	cmd.task.DataOut = append(cmd.task.DataOut, data)
	return true
}

// finishCommand goes on with a command whose immediate data is here.
func (c *conn) finishCommand() {
	cmd := c.cur
	c.cur = nil
	c.proceed(cmd)
}

// proceed takes a command to its next step: more data to collect, waiting for its
// turn or for memory, or execution.
func (c *conn) proceed(cmd *command) {
	switch {
	case cmd.unsolicited:
		c.open[cmd.itt] = cmd
	case cmd.refuse:
		c.turnAway(cmd)
	case c.ordered > 0 && c.mustWait(cmd):
		c.park(cmd)
	case cmd.collected():
		if cmd.read && cmd.edtl > 0 && cmd.reserved == 0 && !c.reserve(cmd, cmd.edtl) {
			return
		}
		c.ready(cmd)
	default:
		cmd.nextR2T = max(cmd.nextR2T, cmd.received)
		if cmd.reserved == 0 && !c.reserve(cmd, cmd.edtl) {
			return
		}
		c.request(cmd)
	}
}

// turnAway ends a command that is refused.
func (c *conn) turnAway(cmd *command) {
	c.leave(cmd)
	if cmd.task.Status, cmd.task.Sense = scsi.StatusCheckCondition, refuseSense[:]; cmd.full {
		cmd.task.Status, cmd.task.Sense = scsi.StatusTaskSetFull, nil
	}
	c.enqueue(outItem{cmd: cmd})
}

// noMemory ends a command for whose data the portal has no memory: the initiator tries again. It keeps none of what it
// has, so that of those that want more than there is one gets it.
func (c *conn) noMemory(cmd *command) {
	cmd.refuse, cmd.full = true, true
	c.turnAway(cmd)
}

func (c *conn) ready(cmd *command) {
	if cmd.read && !cmd.charge(cmd.edtl) {
		c.noMemory(cmd)
		return
	}
	c.leave(cmd)
	c.batch = append(c.batch, &cmd.task)
}

// reserve takes n bytes of the connection's memory, or puts the command in the
// line of those that wait for it.
func (c *conn) reserve(cmd *command, n int) bool {
	if len(c.waiting) == 0 && c.tryReserve(cmd, n) {
		return true
	}
	c.open[cmd.itt] = cmd
	c.waiting = append(c.waiting, cmd)
	c.starved.Store(true)
	// Memory may have been given back before starved was set.
	c.serveWaiting()
	return false
}

func (c *conn) tryReserve(cmd *command, n int) bool {
	if c.memory.Add(int64(n)) > int64(c.limits.ConnMemory) {
		c.memory.Add(int64(-n))
		return false
	}
	cmd.reserved = n
	return true
}

// unreserve gives memory back. Anybody may call it.
func (c *conn) unreserve(n int) {
	c.memory.Add(int64(-n))
	if c.starved.Load() {
		c.kick()
	}
}

// serveWaiting goes on with commands that waited for memory, in order.
func (c *conn) serveWaiting() {
	for len(c.waiting) > 0 {
		cmd := c.waiting[0]
		if !c.tryReserve(cmd, cmd.edtl) {
			return
		}
		c.waiting = c.waiting[1:]
		if cmd.collected() {
			c.ready(cmd)
		} else {
			c.request(cmd)
		}
	}
	c.waiting = nil
	c.starved.Store(false)
}

// request sends as many R2Ts as may be outstanding. What they ask for is charged; the whole of it must have room when
// the first is sent, so that little is asked for in vain.
func (c *conn) request(cmd *command) {
	c.open[cmd.itt] = cmd
	if cmd.r2tSN == 0 && cmd.edtl > smallCommand && !c.portal.budget.room(&c.account, int64(cmd.edtl-cmd.held)) {
		c.noMemory(cmd)
		return
	}
	for len(cmd.r2ts) < int(c.p.maxR2T) && cmd.nextR2T < cmd.edtl {
		if !cmd.charge(cmd.nextR2T + min(int(c.p.maxBurst), cmd.edtl-cmd.nextR2T)) {
			if len(cmd.r2ts) == 0 {
				c.noMemory(cmd)
			}
			return // the next sequence that ends asks again
		}
		if len(cmd.r2ts) == 0 {
			cmd.sequences++
		}
		r := r2t{ttt: c.newTag(), offset: cmd.nextR2T, length: min(int(c.p.maxBurst), cmd.edtl-cmd.nextR2T)}
		cmd.r2ts = append(cmd.r2ts, r)
		cmd.nextR2T += r.length
		ct := getControl(opR2T)
		ct.stat = false
		h := bhs(ct.hdr[:])
		binary.BigEndian.PutUint64(h[offLUN:], cmd.task.LUN)
		h.put32(offITT, cmd.itt)
		h.put32(offTTT, r.ttt)
		h.put32(offDataSN, cmd.r2tSN)
		h.put32(offBufOffset, uint32(r.offset))
		h.put32(offResidual, uint32(r.length))
		cmd.r2tSN++
		c.enqueue(outItem{ctl: ct})
	}
}

// newTag returns a target transfer tag.
func (c *conn) newTag() uint32 {
	c.lastTag++
	if c.lastTag == noTag {
		c.lastTag = 0
	}
	return c.lastTag
}

// beginDataOut finds the command that a Data-Out belongs to, and its place there.
func (c *conn) beginDataOut(h bhs) error {
	n, offset := h.dataLen(), intOf(h.u32(offBufOffset))
	cmd := c.open[h.itt()]
	if cmd == nil {
		for _, p := range c.held {
			if p != nil && bhs(p.hdr[:]).opcode() == opCommand && bhs(p.hdr[:]).itt() == h.itt() {
				d, err := c.newHeld(h)
				if err == nil {
					p.more = append(p.more, d)
				}
				return err
			}
		}
		// Data for a task that was aborted may still be on its way (RFC 7143 4.2.3.3).
		if c.wasAborted(h.itt()) {
			return nil
		}
		return violation(ErrDataOut, rejectProtocol, "Data-Out for task %#x, which expects none", h.itt())
	}

	if detail := cmd.checkDataOut(h, int(c.p.firstBurst)); detail != "" {
		return c.breakOff(cmd, h, detail)
	}
	c.cur, c.act = cmd, actDataOut
	if n > 0 && !cmd.refuse {
		c.rx.places = cmd.place(c.rx.places[:0], offset, n)
		c.rx.dst = c.rx.places
	}
	return nil
}

// checkDataOut compares a Data-Out with the sequence that it belongs to: tag,
// DataSN, offset and length must continue it exactly (DataPDUInOrder and
// DataSequenceInOrder are Yes). It says what is wrong, or nothing.
func (cmd *command) checkDataOut(h bhs, firstBurst int) string {
	n, offset, sn, tag := h.dataLen(), intOf(h.u32(offBufOffset)), h.u32(offDataSN), h.ttt()
	var wantSN uint32
	var wantOffset, room int
	if tag == noTag {
		if !cmd.unsolicited {
			return "unsolicited data that was not announced"
		}
		wantSN, wantOffset = cmd.dataSN, cmd.received
		room = min(firstBurst, cmd.edtl) - cmd.received
	} else {
		if len(cmd.r2ts) == 0 || cmd.r2ts[0].ttt != tag {
			return fmt.Sprintf("target transfer tag %#x", tag)
		}
		r := &cmd.r2ts[0]
		wantSN, wantOffset, room = r.dataSN, r.offset+r.received, r.length-r.received
	}
	switch {
	case sn != wantSN:
		return fmt.Sprintf("DataSN %d, expected %d", sn, wantSN)
	case offset != wantOffset:
		return fmt.Sprintf("buffer offset %d, expected %d", offset, wantOffset)
	case n > room:
		return fmt.Sprintf("%d bytes, expected at most %d", n, room)
	case tag != noTag && h.final() != (n == room):
		return fmt.Sprintf("sequence with %d bytes left, got %d, final %v", room, n, h.final())
	case tag == noTag && !h.final() && n == room:
		return "unsolicited data beyond the first burst"
	}
	return ""
}

// offenceLimit is how many commands a connection may spoil before it is closed.
const offenceLimit = 8

// dataPhaseSense is ABORTED COMMAND, DATA PHASE ERROR in fixed format.
var dataPhaseSense = [18]byte{0: 0x70, 2: 0x0b, 7: 10, 12: 0x4b}

// breakOff ends a command whose data went wrong: a Reject, then CHECK CONDITION
// (RFC 7143 11.17.1), and nothing is written. What is still on its way for it is
// passed over. The framing is intact, so the connection goes on; one that does
// it again and again is closed.
func (c *conn) breakOff(cmd *command, h bhs, detail string) error {
	if c.offences++; c.offences >= offenceLimit {
		return violation(ErrDataOut, rejectProtocol, "%s", detail)
	}
	c.portal.errors[ErrDataOut].Add(1)
	c.log.Warn("iscsi: Data-Out rejected", "kind", ErrDataOut.String(), "error", detail)
	c.reject(rejectProtocol, h)
	c.spoil(cmd, dataPhaseSense[:])
	return nil
}

// spoil ends a command that still collects data with CHECK CONDITION; nothing is written.
func (c *conn) spoil(cmd *command, sense []byte) {
	c.dropOpen(cmd)
	cmd.unsolicited, cmd.refuse = false, true
	cmd.task.Status, cmd.task.Sense = scsi.StatusCheckCondition, sense
	c.enqueue(outItem{cmd: cmd})
}

func (c *conn) finishDataOut(h bhs) error {
	cmd, n := c.cur, h.dataLen()
	c.cur = nil
	cmd.received += n
	if h.ttt() == noTag {
		cmd.dataSN++
		if h.final() {
			cmd.sequences++
			cmd.unsolicited = false
			c.proceed(cmd)
		}
		return nil
	}
	r := &cmd.r2ts[0]
	r.received += n
	r.dataSN++
	if h.final() {
		cmd.sequences++
		cmd.r2ts = append(cmd.r2ts[:0], cmd.r2ts[1:]...)
		c.proceed(cmd)
	}
	return nil
}
