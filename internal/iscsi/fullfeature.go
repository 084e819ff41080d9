package iscsi

import (
	"errors"

	"github.com/arraysim/arraysim/internal/buffers"
)

// action is what becomes of the data segment under way, and of the PDU when it
// is complete.
type action uint8

const (
	actSkip action = iota // the PDU is ignored
	actHold               // kept until the commands before it are here
	actCommand
	actDataOut
	actNopOut
	actText
	actTaskMgmt
	actLogout
)

// Ends of a connection that are nobody's fault.
var (
	errLogout   = errors.New("iscsi: logged out")
	errShutdown = errors.New("iscsi: portal shuts down")
	errReset    = errors.New("iscsi: cold reset of the target")
)

const (
	// heldLimit bounds the bytes of PDUs that wait for a gap in CmdSN to close.
	heldLimit     = 1 << 20
	maxImmediates = 32 // immediate commands in progress
	// pingTag is the target transfer tag of our NOP-In. R2Ts and text count up
	// from 1, tags of different kinds of PDU are never compared.
	pingTag = 1
)

// heldPDU came before its turn. more is Data-Out that belongs to it.
type heldPDU struct {
	hdr  [bhsLen]byte
	ahs  []byte
	data []byte
	more []*heldPDU
	// remaps is conn.remaps: a command that waits for its turn came before the changes of LUNs meanwhile.
	remaps uint64
}

// process works off what is received: it enters the executor once for all
// commands that are ready, and sends what that left behind.
func (c *conn) process() error {
	c.out.hold()
	err := c.consume()
	c.submit()
	c.flush()
	if owes := c.rx.inData || len(c.open) > 0; owes != c.owes.Load() {
		c.owes.Store(owes)
	}
	return err
}

// consume walks over all PDUs in the receive buffer.
func (c *conn) consume() error {
	rx := &c.rx
	for {
		if !rx.inData {
			ok, err := rx.header()
			if err != nil {
				return err
			}
			if !ok {
				return nil
			}
			if err := c.begin(); err != nil {
				return err
			}
		}
		done, err := rx.data()
		if err != nil {
			return err
		}
		if !done {
			return nil
		}
		if err := c.finish(); err != nil {
			return err
		}
	}
}

// submit hands the commands that are ready to the SCSI layer. Of a session that was ended in a hold nothing is carried
// out when that is over: its host may have given it up, or what carries commands out is another one by now.
func (c *conn) submit() {
	if len(c.parked) > 0 {
		c.unpark()
	}
	if c.portal.holding.Load() != nil || c.aborting.Load() {
		return
	}
	if c.pending != nil {
		c.catchUp()
	}
	if len(c.batch) == 0 {
		return
	}
	c.hand(c.batch)
	clear(c.batch)
	c.batch = c.batch[:0]
}

// begin looks at a new header: is it this command's turn, is it allowed, and
// where does its data go. Nothing is allocated before that is settled.
func (c *conn) begin() error {
	h := bhs(c.rx.hdr[:])
	c.act = actSkip
	switch h.opcode() {
	case opDataOut:
		return c.beginDataOut(h)
	case opSNACK: // no recovery at ErrorRecoveryLevel 0
		c.makeRoom()
		c.reject(rejectSNACK, h)
		return nil
	case opCommand, opNopOut, opText, opTaskMgmt, opLogout:
		c.remaps = c.session.remaps.Load()
	case opLogin:
		return violation(ErrOpcode, rejectProtocol, "login in full feature phase")
	default:
		c.portal.errors[ErrOpcode].Add(1)
		c.makeRoom()
		c.reject(rejectUnsupported, h)
		return nil
	}
	if !h.immediate() {
		// RFC 7143 4.2.2.1: what is outside the window is silently ignored.
		exp := c.expCmdSN.Load()
		switch ahead := int32(h.cmdSN() - exp); {
		case ahead < 0 || int32(h.cmdSN()-c.maxCmdSN.Load()) > 0:
			return nil
		case ahead > 0:
			return c.hold(h)
		}
		c.expCmdSN.Store(exp + 1)
	}
	return c.beginPDU(h)
}

func (c *conn) beginPDU(h bhs) error {
	c.act = actSkip
	switch op := h.opcode(); op {
	case opCommand, opTaskMgmt:
		if c.session.target == nil {
			return violation(ErrOpcode, rejectProtocol, "opcode %#x in a discovery session", op)
		}
		if op == opCommand {
			if len(c.fences) > 0 && c.fenced(h) {
				return nil
			}
			return c.beginCommand(h)
		}
		c.makeRoom()
		c.act = actTaskMgmt
	case opNopOut, opText:
		c.makeRoom()
		c.act = actNopOut
		if op == opText {
			c.act = actText
		}
		c.body = nil
		if n := h.dataLen(); n > 0 {
			c.body = buffers.Get(n)
			c.rx.places = append(c.rx.places[:0], c.body.B[:n])
			c.rx.dst = c.rx.places
		}
	case opLogout:
		c.makeRoom()
		c.act = actLogout
	}
	return nil
}

// makeRoom waits while more answers are queued than a peer may leave unread. It comes before every
// answer that no window bounds is made.
func (c *conn) makeRoom() {
	if c.out.congested() {
		c.submit()
		c.flush()
		if err := c.leaveStay(c.sock.Load()); err != nil { // another reader may have the place meanwhile
			c.abort(err)
		}
		c.out.awaitRoom()
		c.out.hold()
	}
}

// finish completes a PDU whose data is all here, and then those that waited for
// their turn behind it.
func (c *conn) finish() error {
	c.pdus++
	if err := c.finishPDU(); err != nil {
		return err
	}
	for len(c.held) > 0 {
		exp := c.expCmdSN.Load()
		p, ok := c.held[exp]
		if !ok {
			return nil
		}
		delete(c.held, exp)
		c.expCmdSN.Store(exp + 1)
		if p == nil { // aborted before it came
			c.maxCmdSN.Add(1)
			continue
		}
		c.heldBytes -= p.size()
		if err := c.replay(p, c.beginPDU); err != nil {
			return err
		}
		for _, d := range p.more {
			c.heldBytes -= d.size()
			if err := c.replay(d, c.beginDataOut); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *conn) finishPDU() error {
	h := bhs(c.rx.hdr[:])
	switch c.act {
	case actCommand:
		c.finishCommand()
	case actDataOut:
		return c.finishDataOut(h)
	case actNopOut:
		c.finishNopOut(h)
	case actText:
		return c.finishText(h)
	case actTaskMgmt:
		return c.manage(h)
	case actLogout:
		return c.finishLogout(h)
	}
	return nil
}

func (p *heldPDU) size() int { return bhsLen + len(p.ahs) + len(p.data) }

// newHeld makes a copy of the PDU under way and has its data received there.
func (c *conn) newHeld(h bhs) (*heldPDU, error) {
	p := &heldPDU{ahs: append([]byte(nil), c.rx.ahs...), remaps: c.remaps}
	copy(p.hdr[:], h)
	n := h.dataLen()
	if c.heldBytes += p.size() + n; c.heldBytes > heldLimit {
		return nil, violation(ErrSequence, rejectProtocol, "more than %d bytes behind a gap at CmdSN %d", heldLimit, c.expCmdSN.Load())
	}
	c.act = actHold
	if n > 0 {
		p.data = make([]byte, n)
		c.rx.places = append(c.rx.places[:0], p.data)
		c.rx.dst = c.rx.places
	}
	return p, nil
}

// hold keeps a command that came before its turn. One that is held or aborted
// already is ignored.
func (c *conn) hold(h bhs) error {
	if _, dup := c.held[h.cmdSN()]; dup {
		return nil
	}
	p, err := c.newHeld(h)
	if err != nil {
		return err
	}
	if c.held == nil {
		c.held = make(map[uint32]*heldPDU)
	}
	c.held[h.cmdSN()] = p
	return nil
}

// replay puts a held PDU through as if it came now.
func (c *conn) replay(p *heldPDU, begin func(bhs) error) error {
	rx := &c.rx
	rx.hdr = p.hdr
	rx.ahs = rx.ahsBuf[:copy(rx.ahsBuf[:], p.ahs)]
	rx.dst = nil
	rx.replayed, c.remaps = true, p.remaps
	c.act = actSkip // unless begin has a use for it: what came before it is no concern of this one
	err := begin(bhs(rx.hdr[:]))
	rx.replayed = false
	if err != nil {
		return err
	}
	data := p.data
	for _, d := range rx.dst {
		data = data[copy(d, data):]
	}
	return c.finishPDU()
}

// reject answers a PDU with a Reject that carries its header.
func (c *conn) reject(reason byte, h bhs) {
	ct := getControl(opReject)
	ct.hdr[offResponse] = reason
	bhs(ct.hdr[:]).put32(offITT, noTag)
	ct.data = append([]byte(nil), h[:bhsLen]...)
	c.enqueue(outItem{ctl: ct})
}

// finishNopOut answers a ping; an answer to ours is only noticed by having come.
func (c *conn) finishNopOut(h bhs) {
	body := c.body
	c.body = nil
	if h.itt() == noTag {
		if body != nil {
			body.Put()
		}
		if !h.immediate() {
			c.maxCmdSN.Add(1)
		}
		return
	}
	ct := getControl(opNopIn)
	ct.credit = !h.immediate()
	r := bhs(ct.hdr[:])
	r.put32(offITT, h.itt())
	r.put32(offTTT, noTag)
	if body != nil {
		ct.buf = body
		ct.data = body.B[:min(h.dataLen(), int(c.maxXmit.Load()))]
	}
	c.enqueue(outItem{ctl: ct})
}

// ping asks the initiator for a sign of life. Any goroutine may call it.
func (c *conn) ping(tag uint32) {
	ct := getControl(opNopIn)
	ct.stat = false
	r := bhs(ct.hdr[:])
	r.put32(offITT, noTag)
	r.put32(offTTT, tag)
	c.enqueue(outItem{ctl: ct})
}

// Logout reasons and responses (RFC 7143 11.14.1, 11.15.1).
const (
	logoutSession    = 0
	logoutConnection = 1

	logoutDone       = 0
	logoutNoCID      = 1
	logoutNoRecovery = 2
)

// finishLogout ends the session: errLogout makes the connection close it before
// it answers, so that reservations are gone when the initiator hears of it.
func (c *conn) finishLogout(h bhs) error {
	response := byte(logoutDone)
	switch reason := h[offFlags] &^ flagFinal; {
	case reason == logoutSession:
	case reason == logoutConnection && h.u16(offCID) == c.cid:
	case reason == logoutConnection:
		response = logoutNoCID
	default:
		response = logoutNoRecovery
	}
	ct := getControl(opLogoutResp)
	ct.credit = !h.immediate()
	r := bhs(ct.hdr[:])
	r[offResponse] = response
	r.put32(offITT, h.itt())
	r.put16(offTime2Wait, uint16(c.p.time2Wait))
	if response != logoutDone {
		c.enqueue(outItem{ctl: ct})
		return nil
	}
	c.farewell = ct
	return errLogout
}
