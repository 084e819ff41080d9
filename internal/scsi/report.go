// Handlers of the commands that only report: REPORT LUNS, REQUEST SENSE, REPORT SUPPORTED
// OPERATION CODES and TASK MANAGEMENT FUNCTIONS, TEST UNIT READY and READ CAPACITY. None needs
// the device.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Values of SELECT REPORT.
const (
	reportAddressed = 0 // logical units by all methods but well known ones
	reportWellKnown = 1
	reportAll       = 2
)

// doReportLUNs serves REPORT LUNS (SPC-5 6.34). There are no well known logical
// units.
func doReportLUNs(t *Task) {
	const minAllocation = 16
	st := &t.state
	allocation := binary.BigEndian.Uint32(t.CDB[6:])
	if allocation < minAllocation {
		t.fault(sense.InCDB(6, 7))
		return
	}
	list := make([]byte, 8, 64)
	switch t.CDB[2] {
	case reportAddressed, reportAll:
		for lun, x := range st.n.luns {
			if x == nil {
				continue
			}
			x.ua &^= sense.UALUNsChanged
			list = binary.BigEndian.AppendUint64(list, lunBytes(lun))
		}
	case reportWellKnown:
	default:
		t.fault(sense.InCDB(2, 7))
		return
	}
	binary.BigEndian.PutUint32(list, uint32(len(list)-8))
	t.reply(list, int(min(allocation, 1<<30)))
}

// lunBytes is the LUN in peripheral device addressing where that can say it, else
// in flat space addressing.
func lunBytes(lun int) uint64 {
	if lun > 0xFF {
		lun |= 1 << 14
	}
	return uint64(lun) << 48
}

// doRequestSense serves REQUEST SENSE (SPC-5 6.39): a pending unit attention is
// reported as data and so cleared.
func doRequestSense(t *Task) {
	st := &t.state
	var s sense.Data
	if st.itl.ua != 0 {
		s.Code = st.itl.ua.Take()
	} else if st.u.erased() {
		s = st.u.eraseSense()
	} else {
		s.Code = st.u.medium.notReady()
	}
	var b [64]byte
	t.reply(s.Encode(b[:], t.CDB[1]&1 != 0), int(t.CDB[4]))
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

// doReportOpcodes serves REPORT SUPPORTED OPERATION CODES from the dispatch table.
func doReportOpcodes(t *Task) {
	be := binary.BigEndian
	rctd := t.CDB[2]&0x80 != 0
	allocation := int(min(be.Uint32(t.CDB[6:]), 1<<30))
	op, sa := t.CDB[3], int(be.Uint16(t.CDB[4:]))
	x := t.state.itl
	all := t.target().commands
	cmd, sas := all.served(op)
	switch t.CDB[2] & 7 {
	case opcodesAll:
		b := make([]byte, 4, 2048)
		for _, c := range all.rows() {
			if c.offered(x) && c.flags&unlisted == 0 {
				b = c.describe(b, rctd)
			}
		}
		be.PutUint32(b, uint32(len(b)-4))
		t.reply(b, allocation)
		return
	case opcodesPlain:
		if sas != nil {
			t.fault(sense.InCDB(2, 2))
			return
		}
	case opcodesAction:
		if cmd != nil || sas == nil {
			t.fault(sense.InCDB(2, 2))
			return
		}
	case opcodesEither:
		if cmd != nil && sa != 0 {
			t.reply([]byte{0, supportNo, 0, 0}, allocation)
			return
		}
	default:
		t.fault(sense.InCDB(2, 2))
		return
	}
	c := cmd
	for _, d := range sas {
		if d.sa == sa {
			c = d
		}
	}
	if c == nil || !c.offered(x) {
		t.reply([]byte{0, supportNo, 0, 0}, allocation)
		return
	}
	b := []byte{0, supportStandard, 0, byte(len(c.usage))}
	b = append(b, c.usage...)
	if rctd {
		b[1] |= oneTimeouts
		b = appendTimeouts(b)
	}
	t.reply(b, allocation)
}

// describe appends a command descriptor (SPC-5 6.35.2).
func (c *command) describe(b []byte, rctd bool) []byte {
	be := binary.BigEndian
	var flags byte
	var sa uint16
	if c.sa != none {
		flags, sa = commandServactv, uint16(c.sa)
	}
	if rctd {
		flags |= commandTimeouts
	}
	b = be.AppendUint16(append(b, c.op, 0), sa)
	b = be.AppendUint16(append(b, 0, flags), uint16(len(c.usage)))
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

// doReportTMFs serves REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-5 6.36). I_T NEXUS RESET is
// not among them: RFC 7143 has no code for it, an initiator ends the session instead.
func doReportTMFs(t *Task) {
	const minAllocation = 4
	const ats, atss, cts, lurs = 0x80, 0x40, 0x10, 0x08
	allocation := binary.BigEndian.Uint32(t.CDB[6:])
	if allocation < minAllocation {
		t.fault(sense.InCDB(6, 7))
		return
	}
	b := []byte{ats | atss | cts | lurs, 0, 0, 0}
	if t.CDB[2]&0x80 != 0 { // REPD: the extended format, without timeouts
		b = make([]byte, 16)
		b[0], b[3] = ats|atss|cts|lurs, 12
	}
	t.reply(b, int(min(allocation, 1<<30)))
}

// doTestUnitReady serves TEST UNIT READY: the dispatcher has checked everything.
func doTestUnitReady(t *Task) { t.good() }

// Parameter data of READ CAPACITY(16) (SBC-4 5.21).
const (
	capacityLen   = 32
	capacityLBPME = 0x80
	capacityLBPRZ = 0x40
)

// doReadCapacity10 serves READ CAPACITY(10).
func doReadCapacity10(t *Task) {
	u := t.state.u
	if t.CDB[2]|t.CDB[3]|t.CDB[4]|t.CDB[5] != 0 { // the LBA is obsolete with PMI=0
		t.fault(sense.InCDB(2, 7))
		return
	}
	var b [8]byte
	binary.BigEndian.PutUint32(b[0:], uint32(min(u.lastLBA(), 1<<32-1)))
	binary.BigEndian.PutUint32(b[4:], uint32(u.blockSize()))
	t.reply(b[:], len(b))
}

// doReadCapacity16 serves READ CAPACITY(16).
func doReadCapacity16(t *Task) {
	u := t.state.u
	var b [capacityLen]byte
	binary.BigEndian.PutUint64(b[0:], u.lastLBA())
	binary.BigEndian.PutUint32(b[8:], uint32(u.blockSize()))
	b[13] = u.info.PhysicalExp & 0x0F
	if u.info.Thin {
		b[14] = capacityLBPME | capacityLBPRZ
	}
	t.reply(b[:], int(min(binary.BigEndian.Uint32(t.CDB[10:]), capacityLen)))
}

// withoutUnit serves commands to a LUN without a unit (SPC-5 4.3.2, 6.34). It reports whether the
// command is served.
func withoutUnit(t *Task) bool {
	if len(t.CDB) < 6 {
		return false
	}
	switch op := t.CDB[0]; {
	case op == 0x12 && t.CDB[1]&1 == 0:
		var b [pages.InquiryLen]byte
		t.target().product().NoUnit(b[:])
		t.reply(b[:], int(binary.BigEndian.Uint16(t.CDB[3:])))
	case op == 0x03:
		s := sense.Data{Code: sense.LUNNotSupported}
		var b [64]byte
		t.reply(s.Encode(b[:], t.CDB[1]&1 != 0), int(t.CDB[4]))
	case op == 0xA0 && len(t.CDB) >= 12 && t.LUN == 0:
		doReportLUNs(t)
	default:
		return false
	}
	return true
}
