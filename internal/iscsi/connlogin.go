package iscsi

import (
	"errors"
	"io"
	"os"
	"time"
)

// login carries out the login phase, PDU by PDU: nothing behind the last request
// is read. When it fails the initiator has been told.
func (c *conn) login() (*login, error) {
	deadline := time.Now().Add(c.limits.LoginTimeout)
	c.nc.SetDeadline(deadline)
	if c.stopping.Load() { // Shutdown may have kicked before the deadline was set
		return nil, errShutdown
	}
	if c.aborting.Load() { // and so may a flood
		return nil, c.abortedBy()
	}
	l := newLogin(c.portal, c.group)
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	var buf []byte
	for first := true; ; first = false {
		if _, err := io.ReadFull(c.nc, hdr[:]); err != nil {
			return nil, c.loginError(err)
		}
		n := h.dataLen()
		switch {
		case h.opcode() != opLogin || !h.immediate():
			return nil, violation(ErrOpcode, 0, "opcode %#x before login", hdr[0])
		case n > loginSegment:
			return nil, violation(ErrLogin, 0, "%d bytes of data in a login", n)
		}
		total := h.ahsLen() + n + padLen(n)
		if cap(buf) < total {
			buf = make([]byte, maxAHSLen+loginSegment)
		}
		buf = buf[:total]
		if _, err := io.ReadFull(c.nc, buf); err != nil {
			return nil, c.loginError(err)
		}
		c.countRead(bhsLen + total)
		if first {
			c.expCmdSN.Store(h.cmdSN())
			c.maxCmdSN.Store(h.cmdSN() + uint32(c.limits.Window) - 1)
		}

		reply, failure := l.step(h, buf[h.ahsLen():h.ahsLen()+n])
		if failure == nil && reply.full {
			if reply.status, failure = c.portal.openSession(l, c, deadline); failure == nil {
				c.log = c.log.With("tsih", c.session.tsih)
			}
		}
		if err := c.sendLogin(h, reply); err != nil {
			if c.session != nil {
				c.session.end(c.portal)
			}
			return nil, c.loginError(err)
		}
		if failure != nil {
			return nil, failure
		}
		if reply.full {
			return l, nil
		}
	}
}

func (c *conn) loginError(err error) error {
	switch {
	case c.stopping.Load():
		return errShutdown
	case c.abortedBy() != nil:
		return c.abortedBy()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return violation(ErrLogin, 0, "not complete in %v", c.limits.LoginTimeout)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return violation(ErrLogin, 0, "connection ended inside a PDU")
	}
	return err
}

func (c *conn) sendLogin(req bhs, reply loginReply) error {
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	h[0], h[offFlags] = opLoginResp, reply.flags
	copy(h[offISID:offISID+6], req[offISID:])
	h.put16(offTSIH, req.u16(offTSIH))
	if c.session != nil {
		h.put16(offTSIH, c.session.tsih)
	}
	h.put32(offITT, req.itt())
	h.put32(offStatSN, c.out.stat)
	c.out.stat++
	h.put32(offExpCmdSN, c.expCmdSN.Load())
	h.put32(offMaxCmdSN, c.maxCmdSN.Load())
	h.put16(offStatusClass, reply.status)
	if reply.status != loginOK {
		h[offFlags] = 0
		reply.text = nil
	}
	b := appendPDU(nil, h, nil, reply.text, false, false)
	n, err := c.nc.Write(b)
	c.count.tx.Add(uint64(n))
	c.portal.count.tx.Add(uint64(n))
	return err
}
