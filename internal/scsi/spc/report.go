// Package spc has the handlers of primary commands (SPC-5): a unit describes itself by them, keeps
// what hosts write on its label, and is reserved. None goes to the device.
//
// This file has the commands that only report: REPORT LUNS, REQUEST SENSE, REPORT SUPPORTED
// OPERATION CODES and TASK MANAGEMENT FUNCTIONS, TEST UNIT READY; SEND DIAGNOSTIC and PREVENT
// ALLOW MEDIUM REMOVAL, which have little to do; and what a LUN without a unit answers.
package spc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Values of SELECT REPORT.
const (
	reportAddressed = 0 // logical units by all methods but well known ones
	reportWellKnown = 1
	reportAll       = 2
)

// ReportLUNs serves REPORT LUNS (SPC-5 6.34). There are no well known logical
// units.
func ReportLUNs(t *server.Task) {
	const minAllocation = 16
	allocation := binary.BigEndian.Uint32(t.CDB[6:])
	if allocation < minAllocation {
		t.Fault(sense.InCDB(6, 7))
		return
	}
	list := make([]byte, 8, 64)
	switch t.CDB[2] {
	case reportAddressed, reportAll:
		for lun, x := range t.Nexus().ITLs() {
			if x == nil {
				continue
			}
			x.Attentions().Clear(sense.UALUNsChanged)
			list = names.AppendLUN(list, lun)
		}
	case reportWellKnown:
	default:
		t.Fault(sense.InCDB(2, 7))
		return
	}
	binary.BigEndian.PutUint32(list, uint32(len(list)-8))
	t.Reply(list, int(min(allocation, 1<<30)))
}

// RequestSense serves REQUEST SENSE (SPC-5 6.39): a pending unit attention is
// reported as data and so cleared.
func RequestSense(t *server.Task) {
	var s sense.Data
	if *t.ITL().Attentions() != 0 {
		s.Code = t.ITL().Attentions().Take()
	} else if t.Unit().Erased() {
		s = t.Unit().EraseSense()
	} else {
		s.Code = t.Unit().Medium().NotReady
	}
	var b [64]byte
	t.Reply(s.Encode(b[:], t.CDB[1]&1 != 0), int(t.CDB[4]))
}

// Reporting options of REPORT SUPPORTED OPERATION CODES (SPC-5 6.35).
const (
	opcodesAll       = 0
	opcodesPlain     = 1 // one operation code without service actions
	opcodesAction    = 2 // one operation code and service action
	opcodesEither    = 3
	supportNo        = 1
	supportStandard  = 3
	commandServactv  = 0x01
	commandTimeouts  = 0x02 // CTDP in a command descriptor
	oneTimeouts      = 0x80 // CTDP in the parameter data of one command
	timeoutDescBytes = 12
)

// ReportOpcodes serves REPORT SUPPORTED OPERATION CODES from the dispatch table.
func ReportOpcodes(t *server.Task) {
	be := binary.BigEndian
	rctd := t.CDB[2]&0x80 != 0
	allocation := int(min(be.Uint32(t.CDB[6:]), 1<<30))
	op, sa := t.CDB[3], int(be.Uint16(t.CDB[4:]))
	x := t.ITL()
	all := t.Target().Commands()
	cmd, sas := all.Served(op)
	switch t.CDB[2] & 7 {
	case opcodesAll:
		b := make([]byte, 4, 2048)
		for _, c := range all.Rows() {
			if c.Offered(x) && c.Flags&server.Unlisted == 0 {
				b = describe(c, b, rctd)
			}
		}
		be.PutUint32(b, uint32(len(b)-4))
		t.Reply(b, allocation)
		return
	case opcodesPlain:
		if sas != nil {
			t.Fault(sense.InCDB(2, 2))
			return
		}
	case opcodesAction:
		if cmd != nil || sas == nil {
			t.Fault(sense.InCDB(2, 2))
			return
		}
	case opcodesEither:
		if cmd != nil && sa != 0 {
			t.Reply([]byte{0, supportNo, 0, 0}, allocation)
			return
		}
	default:
		t.Fault(sense.InCDB(2, 2))
		return
	}
	c := cmd
	for _, d := range sas {
		if d.ServiceAction == sa {
			c = d
		}
	}
	if c == nil || !c.Offered(x) {
		t.Reply([]byte{0, supportNo, 0, 0}, allocation)
		return
	}
	b := []byte{0, supportStandard, 0, byte(len(c.Usage))}
	b = append(b, c.Usage...)
	if rctd {
		b[1] |= oneTimeouts
		b = appendTimeouts(b)
	}
	t.Reply(b, allocation)
}

// describe appends a command descriptor (SPC-5 6.35.2).
func describe(c *server.Command, b []byte, rctd bool) []byte {
	be := binary.BigEndian
	var flags byte
	var sa uint16
	if c.ServiceAction != server.NoAction {
		flags, sa = commandServactv, uint16(c.ServiceAction)
	}
	if rctd {
		flags |= commandTimeouts
	}
	b = be.AppendUint16(append(b, c.Op, 0), sa)
	b = be.AppendUint16(append(b, 0, flags), uint16(len(c.Usage)))
	if rctd {
		b = appendTimeouts(b)
	}
	return b
}

// appendTimeouts appends a command timeouts descriptor that names no timeouts.
func appendTimeouts(b []byte) []byte {
	var d [timeoutDescBytes]byte
	d[1] = timeoutDescBytes - 2
	return append(b, d[:]...)
}

// ReportTMFs serves REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-5 6.36). I_T NEXUS RESET is
// not among them: RFC 7143 has no code for it, an initiator ends the session instead.
func ReportTMFs(t *server.Task) {
	const minAllocation = 4
	const ats, atss, cts, lurs = 0x80, 0x40, 0x10, 0x08
	allocation := binary.BigEndian.Uint32(t.CDB[6:])
	if allocation < minAllocation {
		t.Fault(sense.InCDB(6, 7))
		return
	}
	b := []byte{ats | atss | cts | lurs, 0, 0, 0}
	if t.CDB[2]&0x80 != 0 { // REPD: the extended format, without timeouts
		b = make([]byte, 16)
		b[0], b[3] = ats|atss|cts|lurs, 12
	}
	t.Reply(b, int(min(allocation, 1<<30)))
}

// TestUnitReady serves TEST UNIT READY: the dispatcher has checked everything.
func TestUnitReady(t *server.Task) { t.Good() }

// WithoutUnit serves commands to a LUN without a unit (SPC-5 4.3.2, 6.34). It reports whether the
// command is served.
func WithoutUnit(t *server.Task) bool {
	if len(t.CDB) < 6 {
		return false
	}
	switch op := t.CDB[0]; {
	case op == 0x12 && t.CDB[1]&1 == 0:
		var b [pages.InquiryLen]byte
		t.Target().Product().NoUnit(b[:])
		t.Reply(b[:], int(binary.BigEndian.Uint16(t.CDB[3:])))
	case op == 0x03:
		s := sense.Data{Code: sense.LUNNotSupported}
		var b [64]byte
		t.Reply(s.Encode(b[:], t.CDB[1]&1 != 0), int(t.CDB[4]))
	case op == 0xA0 && len(t.CDB) >= 12 && t.LUN == 0:
		ReportLUNs(t)
	default:
		return false
	}
	return true
}

// PreventAllowRemoval serves PREVENT ALLOW MEDIUM REMOVAL (SPC-5 6.15).
func PreventAllowRemoval(t *server.Task) {
	prevent := t.CDB[4] & 3
	switch {
	case prevent > 1: // obsolete values for attachable media changers
		t.Fault(sense.InCDB(4, 1))
		return
	case prevent == 1 && !t.Unit().Removable():
		t.Fault(sense.InCDB(4, 0))
		return
	}
	t.ITL().SetPrevent(prevent == 1)
	t.Good()
}

// SendDiagnostic serves SEND DIAGNOSTIC (SPC-5 6.45): self-tests, all of which
// pass at once. There are no diagnostic pages.
func SendDiagnostic(t *server.Task) {
	const selfTest = 0x04
	switch code := t.CDB[1] >> 5; {
	case t.CDB[3]|t.CDB[4] != 0:
		t.Fault(sense.InCDB(3, 7))
	case t.CDB[1]&selfTest != 0 && code != 0, code == 3, code == 7:
		t.Fault(sense.InCDB(1, 7))
	default:
		t.Good()
	}
}
