// Handlers of what concerns the medium as a thing: START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL,
// SEND DIAGNOSTIC and READ DEFECT DATA. A medium can be ejected from a removable unit only.

package scsi

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// mediumState is the state that START STOP UNIT changes.
type mediumState struct {
	ejected bool   // removable units only
	cycles  uint32 // of stopping and starting
}

// Bits of START STOP UNIT byte 4 (SBC-4 5.31).
const (
	bitStart      = 0x01
	bitLOEJ       = 0x02
	maskCondition = 0xF0
)

// doStartStop serves START STOP UNIT. Power conditions, and stopping without
// ejecting, are accepted and have no effect: an array does not spin down a volume.
func doStartStop(t *Task) {
	u := t.state.u
	b := t.CDB[4]
	start, loej := b&bitStart != 0, b&bitLOEJ != 0
	switch {
	case b&maskCondition != 0:
	case loej && !u.opt.Removable:
		t.fault(sense.InCDB(4, 1))
		return
	case loej && u.prevented():
		t.check(sense.RemovalPrevented)
		return
	case loej:
		if start && u.medium.ejected {
			u.establish(sense.UAMediumChanged, t.state.itl)
		}
		if !start && !u.medium.ejected {
			u.medium.cycles++
		}
		u.medium.ejected = !start
	case start && u.medium.ejected:
		t.check(sense.MediumNotPresent)
		return
	}
	t.good()
}

// prevented reports whether any nexus prevents that the medium is moved.
func (u *Unit) prevented() bool {
	return slices.ContainsFunc(u.itls, func(x *itl) bool { return x.prevent })
}

// doPreventAllow serves PREVENT ALLOW MEDIUM REMOVAL (SPC-5 6.15).
func doPreventAllow(t *Task) {
	st := &t.state
	prevent := t.CDB[4] & 3
	switch {
	case prevent > 1: // obsolete values for attachable media changers
		t.fault(sense.InCDB(4, 1))
		return
	case prevent == 1 && !st.u.opt.Removable:
		t.fault(sense.InCDB(4, 0))
		return
	}
	st.itl.prevent = prevent == 1
	t.good()
}

// doSendDiagnostic serves SEND DIAGNOSTIC (SPC-5 6.45): self-tests, all of which
// pass at once. There are no diagnostic pages.
func doSendDiagnostic(t *Task) {
	const selfTest = 0x04
	switch code := t.CDB[1] >> 5; {
	case t.CDB[3]|t.CDB[4] != 0:
		t.fault(sense.InCDB(3, 7))
	case t.CDB[1]&selfTest != 0 && code != 0, code == 3, code == 7:
		t.fault(sense.InCDB(1, 7))
	default:
		t.good()
	}
}

// Bits of READ DEFECT DATA (SBC-4 5.17, 5.18): which lists, and in which format.
const maskDefects = 0x1F // REQ_PLIST, REQ_GLIST, DEFECT LIST FORMAT

// doReadDefects10 serves READ DEFECT DATA(10). An array hides the defects of its
// media: both lists are empty, in every format.
func doReadDefects10(t *Task) {
	t.reply([]byte{0, t.CDB[2] & maskDefects, 0, 0}, int(binary.BigEndian.Uint16(t.CDB[7:])))
}

// doReadDefects12 serves READ DEFECT DATA(12).
func doReadDefects12(t *Task) {
	t.reply([]byte{0, t.CDB[1] & maskDefects, 0, 0, 0, 0, 0, 0}, int(min(binary.BigEndian.Uint32(t.CDB[6:]), 1<<30)))
}
