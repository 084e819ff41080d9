package iscsi

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/arraysim/arraysim/internal/scsi"
)

// ClientConfig is what an initiator logs in with.
type ClientConfig struct {
	Initiator string
	Target    string // empty opens a discovery session
	ISID      [6]byte
	// CHAP authenticates; with MutualSecret the target must prove itself too.
	CHAP *CHAP
	// Keys are operational keys in place of the defaults; an empty value leaves
	// the key out.
	Keys map[string]string
	// SkipSecurity begins in the operational stage.
	SkipSecurity bool
}

// Client is the initiator side of a session: a plain one that does one thing at
// a time, made for tests, which it lets send whatever they like. It is not safe
// for concurrent use.
type Client struct {
	CmdSN     uint32 // of the next command
	ExpStatSN uint32
	MaxCmdSN  uint32
	Params    map[string]string // what the target answered and declared in login

	cfg ClientConfig
	nc  net.Conn
	r   *bufio.Reader
	p   params
	// maxSend is the target's MaxRecvDataSegmentLength.
	maxSend int
	itt     uint32
	tsih    uint16
	full    bool              // the login is complete
	offered map[string]string // operational keys that the login sent
}

// PDU is one that a Client received.
type PDU struct {
	Header [bhsLen]byte
	Data   []byte
}

// Result is the outcome of a command. Residual is negative for an underflow.
type Result struct {
	Status   byte
	Sense    []byte
	Data     []byte
	Residual int
}

// LoginError is a refused login.
type LoginError struct{ Status uint16 }

func (e *LoginError) Error() string { return fmt.Sprintf("iscsi: login status %04x", e.Status) }

// NewClient logs in over nc. The client owns nc from then on.
func NewClient(nc net.Conn, cfg ClientConfig) (*Client, error) {
	c := &Client{CmdSN: 1, cfg: cfg, nc: nc, r: bufio.NewReaderSize(nc, 64<<10), p: defaultParams(), maxSend: 8192, Params: make(map[string]string)}
	if err := c.login(); err != nil {
		nc.Close()
		return nil, err
	}
	c.full = true
	return c, nil
}

// Close drops the connection without a logout.
func (c *Client) Close() error { return c.nc.Close() }

// Send sends one PDU as it is, whether legal or not; only the lengths, padding
// and digests are filled in.
func (c *Client) Send(hdr [bhsLen]byte, ahs, data []byte) error {
	_, err := c.nc.Write(appendPDU(nil, bhs(hdr[:]), ahs, data, c.p.headerDigest, c.p.dataDigest))
	return err
}

// Receive returns the next PDU. It answers nothing by itself. Lengths beyond what the initiator
// declared are errors before anything is allocated.
func (c *Client) Receive() (*PDU, error) {
	pdu := new(PDU)
	if _, err := io.ReadFull(c.r, pdu.Header[:]); err != nil {
		return nil, err
	}
	h := bhs(pdu.Header[:])
	n := h.dataLen()
	most := loginSegment
	if c.full {
		most = int(c.p.maxXmit)
	}
	switch {
	case n > most:
		return nil, fmt.Errorf("iscsi: the target sends a data segment of %d bytes, at most %d were declared", n, most)
	case h.ahsLen() > 0: // no PDU of a target that we negotiate has one
		return nil, fmt.Errorf("iscsi: the target sends an additional header with opcode %#x", h.opcode())
	}
	if c.p.headerDigest {
		if err := c.checkDigest(pdu.Header[:]); err != nil {
			return nil, err
		}
	}
	buf := make([]byte, n+padLen(n))
	if _, err := io.ReadFull(c.r, buf); err != nil {
		return nil, err
	}
	if c.p.dataDigest && n > 0 {
		if err := c.checkDigest(buf); err != nil {
			return nil, err
		}
	}
	pdu.Data = buf[:n]
	if op := h.opcode(); op != opR2T && (op != opDataIn || h[offFlags]&flagStatus != 0) && (op != opNopIn || h.itt() != noTag) {
		c.ExpStatSN = h.u32(offStatSN) + 1
	}
	c.MaxCmdSN = h.u32(offMaxCmdSN)
	return pdu, nil
}

func (c *Client) checkDigest(b []byte) error {
	var d [digestLen]byte
	if _, err := io.ReadFull(c.r, d[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(d[:]) != crc32c(0, b) {
		return errors.New("iscsi: digest of the target is wrong")
	}
	return nil
}

// NewHeader makes the header of a request that takes the next task tag, and the
// next CmdSN unless it is immediate.
func (c *Client) NewHeader(op byte, lun uint64) [bhsLen]byte {
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	c.itt++
	h[0], h[offFlags] = op, flagFinal
	binary.BigEndian.PutUint64(h[offLUN:], lun)
	h.put32(offITT, c.itt)
	h.put32(offTTT, noTag)
	h.put32(offCmdSN, c.CmdSN)
	h.put32(offExpStatSN, c.ExpStatSN)
	if op&immediateBit == 0 {
		c.CmdSN++
	}
	return hdr
}

// CommandHeader makes the header and additional header segments of a command.
func (c *Client) CommandHeader(lun uint64, cdb []byte, outLen, inLen int) (hdr [bhsLen]byte, ahs []byte) {
	hdr = c.NewHeader(opCommand, lun)
	h := bhs(hdr[:])
	h[offFlags] |= byte(scsi.AttrSimple)
	if outLen > 0 {
		h[offFlags] |= flagWrite
	}
	if inLen > 0 {
		h[offFlags] |= flagRead
	}
	h.put32(offEDTL, uint32(max(outLen, inLen)))
	return hdr, putCDB(h, cdb)
}

// putCDB fills in a command's CDB and returns the additional header segment of what has no room in the header
// (RFC 7143 11.2.2.3).
func putCDB(h bhs, cdb []byte) (ahs []byte) {
	n := copy(h[offCDB:], cdb)
	if rest := cdb[n:]; len(rest) > 0 {
		ahs = binary.BigEndian.AppendUint16(nil, uint16(len(rest)+1))
		ahs = append(append(ahs, ahsExtendedCDB, 0), rest...)
		ahs = append(ahs, zeros[:padLen(len(ahs))]...)
	}
	return ahs
}

// Command carries out one command: data in one direction at most.
func (c *Client) Command(lun uint64, cdb, out []byte, inLen int) (*Result, error) {
	hdr, ahs := c.CommandHeader(lun, cdb, len(out), inLen)
	h := bhs(hdr[:])
	first := min(len(out), int(c.p.firstBurst))
	immediate := 0
	if c.p.immediateData {
		immediate = min(first, c.maxSend)
	}
	unsolicited := !c.p.initialR2T && immediate < first
	if unsolicited {
		h[offFlags] &^= flagFinal
	}
	if err := c.Send(hdr, ahs, out[:immediate]); err != nil {
		return nil, err
	}
	if unsolicited {
		if err := c.SendData(h.itt(), noTag, out, immediate, first-immediate); err != nil {
			return nil, err
		}
	}
	return c.Await(h.itt(), out, inLen)
}

// SendData sends out[off:off+n] as one sequence of Data-Out.
func (c *Client) SendData(itt, ttt uint32, out []byte, off, n int) error {
	for sn := uint32(0); n > 0; sn++ {
		var hdr [bhsLen]byte
		h := bhs(hdr[:])
		k := min(n, c.maxSend)
		h[0] = opDataOut
		if k == n {
			h[offFlags] = flagFinal
		}
		h.put32(offITT, itt)
		h.put32(offTTT, ttt)
		h.put32(offDataSN, sn)
		h.put32(offBufOffset, uint32(off))
		if err := c.Send(hdr, nil, out[off:off+k]); err != nil {
			return err
		}
		off += k
		n -= k
	}
	return nil
}

// Await takes PDUs until the command has its status; it answers R2Ts from out
// and pings, and fails on anything else.
func (c *Client) Await(itt uint32, out []byte, inLen int) (*Result, error) {
	res := &Result{Data: make([]byte, 0, inLen)}
	asked := 0
	for {
		pdu, err := c.Receive()
		if err != nil {
			return nil, err
		}
		h := bhs(pdu.Header[:])
		op := h.opcode()
		if op == opNopIn && h.itt() == noTag {
			if err := c.Pong(h.ttt()); err != nil {
				return nil, err
			}
			continue
		}
		if h.itt() != itt {
			return nil, fmt.Errorf("iscsi: opcode %#x for task %#x instead of %#x", op, h.itt(), itt)
		}
		switch op {
		case opR2T:
			off, n := intOf(h.u32(offBufOffset)), intOf(h.u32(offResidual))
			if n == 0 || n > int(c.p.maxBurst) || off < asked || off > len(out)-n {
				return nil, fmt.Errorf("iscsi: R2T for %d bytes at %d of %d", n, off, len(out))
			}
			asked = off + n
			if err := c.SendData(itt, h.ttt(), out, off, n); err != nil {
				return nil, err
			}
			continue
		case opDataIn:
			if off := intOf(h.u32(offBufOffset)); off != len(res.Data) || off+len(pdu.Data) > inLen {
				return nil, fmt.Errorf("iscsi: Data-In at %d, have %d of %d", off, len(res.Data), inLen)
			}
			res.Data = append(res.Data, pdu.Data...)
			if h[offFlags]&flagStatus == 0 {
				continue
			}
		case opResponse:
			if len(pdu.Data) >= 2 {
				res.Sense = pdu.Data[2:][:min(len(pdu.Data)-2, int(binary.BigEndian.Uint16(pdu.Data)))]
			}
		default:
			return nil, fmt.Errorf("iscsi: opcode %#x in answer to a command", op)
		}
		if op == opResponse && h[offResponse] != 0 {
			return nil, fmt.Errorf("iscsi: the target did not complete the command (response %#x)", h[offResponse])
		}
		res.Status = h[offStatus]
		switch h[offFlags] & (flagOverflow | flagUnderflow) {
		case flagOverflow:
			res.Residual = intOf(h.u32(offResidual))
		case flagUnderflow:
			res.Residual = -intOf(h.u32(offResidual))
		}
		return res, nil
	}
}

// Pong answers a ping of the target.
func (c *Client) Pong(ttt uint32) error {
	hdr := c.NewHeader(opNopOut|immediateBit, 0)
	h := bhs(hdr[:])
	h.put32(offITT, noTag)
	h.put32(offTTT, ttt)
	return c.Send(hdr, nil, nil)
}

// maxTextAnswer bounds what a target may answer to one text request: SendTargets of some thousand targets.
const maxTextAnswer = 1 << 20

// Text carries out a text exchange of one request and returns the answer's keys
// in order.
func (c *Client) Text(text []byte) ([]pair, error) {
	hdr := c.NewHeader(opText|immediateBit, 0)
	if err := c.Send(hdr, nil, text); err != nil {
		return nil, err
	}
	var all []byte
	for {
		pdu, err := c.Receive()
		if err != nil {
			return nil, err
		}
		h := bhs(pdu.Header[:])
		if h.opcode() != opTextResp {
			return nil, fmt.Errorf("iscsi: opcode %#x in answer to text", h[0])
		}
		if all = append(all, pdu.Data...); len(all) > maxTextAnswer {
			return nil, errors.New("iscsi: the target's text is too long")
		}
		if h.final() {
			return parseText(all)
		}
		bhs(hdr[:]).put32(offTTT, h.ttt())
		if err := c.Send(hdr, nil, nil); err != nil {
			return nil, err
		}
	}
}

// Discovered is a target that a discovery session told of, with its addresses in the
// form host:port,group.
type Discovered struct {
	Name      string
	Addresses []string
}

// SendTargets asks for all targets that the initiator may use. Preconditions: the
// session is a discovery session (no target in its configuration).
func (c *Client) SendTargets() ([]Discovered, error) {
	pairs, err := c.Text(appendKey(nil, keySendTargets, "All"))
	var all []Discovered
	for _, kv := range pairs {
		switch {
		case kv.key == keyTargetName:
			all = append(all, Discovered{Name: kv.value})
		case kv.key == keyTargetAddress && len(all) > 0:
			t := &all[len(all)-1]
			t.Addresses = append(t.Addresses, kv.value)
		}
	}
	return all, err
}

// Manage sends a task management request and returns the response.
func (c *Client) Manage(fn scsi.TMF, lun uint64, tag, refCmdSN uint32) (scsi.TMFResponse, error) {
	hdr := c.NewHeader(opTaskMgmt|immediateBit, lun)
	h := bhs(hdr[:])
	h[offFlags] = flagFinal | byte(fn)
	h.put32(offRefTask, tag)
	h.put32(offRefCmdSN, refCmdSN)
	if err := c.Send(hdr, nil, nil); err != nil {
		return 0, err
	}
	pdu, err := c.Receive()
	if err != nil {
		return 0, err
	}
	if r := bhs(pdu.Header[:]); r.opcode() != opTaskMgmtResp || r.itt() != h.itt() {
		return 0, fmt.Errorf("iscsi: opcode %#x in answer to task management", r[0])
	}
	return scsi.TMFResponse(pdu.Header[offResponse]), nil
}

// Logout ends the session and the connection.
func (c *Client) Logout() error {
	defer c.nc.Close()
	hdr := c.NewHeader(opLogout|immediateBit, 0)
	if err := c.Send(hdr, nil, nil); err != nil {
		return err
	}
	for {
		pdu, err := c.Receive()
		if err != nil {
			return err
		}
		if h := bhs(pdu.Header[:]); h.opcode() == opLogoutResp {
			if h[offResponse] != logoutDone {
				return fmt.Errorf("iscsi: logout response %d", h[offResponse])
			}
			return nil
		}
	}
}
