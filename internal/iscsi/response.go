package iscsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi"
)

func (s *sender) full() bool { return s.used == batchSlots || len(s.vec) >= batchVec }

// slot returns the memory for the next header. Preconditions: the batch is not full.
func (s *sender) slot() []byte {
	b := s.slots[s.used*slotLen : (s.used+1)*slotLen]
	s.used++
	clear(b)
	return b
}

// stamp fills in the sequence numbers of the target; takes is for a PDU that
// uses up a StatSN.
func (c *conn) stamp(h bhs, takes bool) {
	h.put32(offStatSN, c.out.stat)
	if takes {
		c.out.stat++
	}
	h.put32(offExpCmdSN, c.expCmdSN.Load())
	h.put32(offMaxCmdSN, c.maxCmdSN.Load())
}

// emitHeader appends a header that is complete, with its digest.
func (c *conn) emitHeader(slot []byte) {
	n := bhsLen
	if c.p.headerDigest {
		binary.LittleEndian.PutUint32(slot[bhsLen:], crc32c(0, slot[:bhsLen]))
		n += digestLen
	}
	c.out.vec = append(c.out.vec, slot[:n])
}

// emitTail appends padding and data digest behind a data segment of n bytes that
// is vec[from:].
func (c *conn) emitTail(slot []byte, from, n int) {
	if pad := padLen(n); pad > 0 {
		c.out.vec = append(c.out.vec, zeros[:pad])
	}
	if c.p.dataDigest && n > 0 {
		crc := uint32(0)
		for _, b := range c.out.vec[from:] {
			crc = crc32c(crc, b)
		}
		d := slot[bhsLen+digestLen : bhsLen+2*digestLen]
		binary.LittleEndian.PutUint32(d, crc)
		c.out.vec = append(c.out.vec, d)
	}
}

func (c *conn) makeControl(ct *control) {
	slot := c.out.slot()
	copy(slot, ct.hdr[:])
	h := bhs(slot)
	if ct.credit {
		c.maxCmdSN.Add(1)
	}
	c.stamp(h, ct.stat)
	h.setDataLen(len(ct.data))
	c.emitHeader(slot)
	if len(ct.data) > 0 {
		from := len(c.out.vec)
		c.out.vec = append(c.out.vec, ct.data)
		c.emitTail(slot, from, len(ct.data))
	}
}

// makeResponse makes the Data-In and the SCSI Response of a command, as far as
// the batch has room; it returns whether the response is complete.
func (c *conn) makeResponse(cmd *command) bool {
	t, s := &cmd.task, &cmd.send
	if !s.initialised {
		s.initialised = true
		for _, b := range t.DataIn {
			s.total += len(b)
		}
		s.total = min(s.total, t.MaxIn)
	}
	for s.sent < s.total {
		if c.out.full() {
			return false
		}
		c.makeDataIn(cmd)
	}
	if s.statusSent {
		return true
	}
	if c.out.full() {
		return false
	}
	slot := c.out.slot()
	h := bhs(slot)
	flag, count := cmd.residual()
	h[0], h[offFlags], h[offStatus] = opResponse, flagFinal|flag, t.Status
	h.put32(offITT, cmd.itt)
	c.creditFor(cmd)
	c.stamp(h, true)
	h.put32(offDataSN, s.sn+cmd.r2tSN)
	h.put32(offResidual, count)
	if n := len(t.Sense); n > 0 {
		h.setDataLen(2 + n)
		c.emitHeader(slot)
		from := len(c.out.vec)
		length := slot[slotLen-2:]
		binary.BigEndian.PutUint16(length, uint16(n))
		c.out.vec = append(c.out.vec, length, t.Sense)
		c.emitTail(slot, from, 2+n)
	} else {
		c.emitHeader(slot)
	}
	s.statusSent = true
	return true
}

// creditFor widens the command window by the command that ends now, and frees its
// tag: before the initiator hears of it, for it may use both at once.
func (c *conn) creditFor(cmd *command) {
	c.tags.drop(cmd.slot)
	if !cmd.immediate {
		c.maxCmdSN.Add(1)
	}
}

// makeDataIn makes one Data-In PDU; the last one carries the status when that is
// GOOD (RFC 7143 11.7.3).
func (c *conn) makeDataIn(cmd *command) {
	t, s := &cmd.task, &cmd.send
	n := min(int(c.maxXmit.Load()), int(c.p.maxBurst)-s.burst, s.total-s.sent)
	last := s.sent+n == s.total
	flags := byte(0)
	if s.burst += n; last || s.burst == int(c.p.maxBurst) {
		flags |= flagFinal
		s.burst = 0
	}
	slot := c.out.slot()
	h := bhs(slot)
	h[0] = opDataIn
	h.setDataLen(n)
	h.put32(offITT, cmd.itt)
	h.put32(offTTT, noTag)
	h.put32(offDataSN, s.sn)
	h.put32(offBufOffset, uint32(s.sent))
	if last && t.Status == scsi.StatusGood && len(t.Sense) == 0 {
		flag, count := cmd.residual()
		flags |= flagStatus | flag
		h.put32(offResidual, count)
		c.creditFor(cmd)
		c.stamp(h, true)
		s.statusSent = true
	} else {
		h.put32(offExpCmdSN, c.expCmdSN.Load())
		h.put32(offMaxCmdSN, c.maxCmdSN.Load())
	}
	h[offFlags] = flags
	c.emitHeader(slot)
	from := len(c.out.vec)
	for left := n; left > 0; {
		piece := t.DataIn[s.chunk][s.off:]
		if len(piece) > left {
			piece = piece[:left]
		}
		if s.off += len(piece); s.off == len(t.DataIn[s.chunk]) {
			s.chunk++
			s.off = 0
		}
		if len(piece) > 0 {
			c.out.vec = append(c.out.vec, piece)
		}
		left -= len(piece)
	}
	c.emitTail(slot, from, n)
	s.sent += n
	s.sn++
}
