// Handlers of the RECEIVE COPY commands and of COPY OPERATION ABORT: what is known of operations
// that run, and of those that are over, by the list identifiers of one I_T_L nexus.

package copymgr

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// listIDOf is the LIST IDENTIFIER of RECEIVE COPY RESULTS.
const listIDOf = 2

// Values of COPY COMMAND STATUS (SPC-4 6.18).
const (
	copyRunning = 0
	copyOK      = 1
	copyFailed  = 2
)

// listID is the LIST IDENTIFIER of the RECEIVE COPY commands.
func listID(cdb []byte) uint32 {
	if sa := cdb[1] & 0x1F; sa >= 0x05 {
		return binary.BigEndian.Uint32(cdb[listIDOf:])
	}
	return uint32(cdb[listIDOf])
}

// resultOf finds the result that the command asks for; without one the task ends.
func resultOf(t *server.Task) *copyResult {
	r := managerOf(t).source(t.ITL()).with(listID(t.CDB))
	if r == nil {
		t.Fault(sense.InCDB(listIDOf, 7))
	}
	return r
}

// CopyStatus serves RECEIVE COPY STATUS(LID1).
func CopyStatus(t *server.Task) {
	h := resultOf(t)
	if h == nil {
		return
	}
	status := byte(copyOK)
	switch {
	case h.op != nil:
		status = copyRunning
	case h.failed():
		status = copyFailed
	}
	const kibibytes = 1
	units, n := byte(0), h.moved
	if n > 1<<32-1 {
		units, n = kibibytes, n>>10
	}
	b := []byte{0, 0, 0, 0, status, byte(h.segments >> 8), byte(h.segments), units}
	copylist.ReplyAvailable(t, binary.BigEndian.AppendUint32(b, uint32(n)))
}

// CopyFailure serves RECEIVE COPY FAILURE DETAILS(LID1). A copy that did not
// fail has none.
func CopyFailure(t *server.Task) {
	const statusAt, senseLenAt, senseAt = 56, 58, 60
	h := resultOf(t)
	switch {
	case h == nil:
		return
	case h.op != nil:
		t.Fault(sense.InCDB(listIDOf, 7))
		return
	case !h.failed():
		copylist.ReplyAvailable(t, make([]byte, 4))
		return
	}
	b := make([]byte, senseAt, senseAt+len(h.sense))
	b[statusAt] = h.samStatus
	binary.BigEndian.PutUint16(b[senseLenAt:], uint16(len(h.sense)))
	copylist.ReplyAvailable(t, append(b, h.sense...))
}

// CopyData serves RECEIVE COPY DATA(LID1) and (LID4): no segment type that is
// supported leaves data to be held.
func CopyData(t *server.Task) {
	if resultOf(t) != nil {
		copylist.ReplyAvailable(t, make([]byte, 4))
	}
}

// Parameter data of RECEIVE COPY STATUS(LID4) and RECEIVE ROD TOKEN INFORMATION
// (SPC-5 tables 216, 219).
const (
	statusAction    = 4
	statusStatus    = 5
	statusDelay     = 8
	statusCompleted = 12
	statusFieldLen  = 13
	statusSenseLen  = 14
	statusUnits     = 15
	statusCount     = 16
	statusSegments  = 24
	statusSense     = 32

	delayUnknown  = 0xFFFFFFFE
	unitsInBlocks = 0xF1
)

// describe makes the parameter data that both commands begin with.
func (r *copyResult) describe() []byte {
	be := binary.BigEndian
	b := make([]byte, statusSense, statusSense+len(r.sense)+copysource.TokenLen+6)
	b[statusAction] = r.sa
	b[statusStatus] = r.status
	if r.op != nil {
		b[statusStatus] = copyForeground
		if r.op.task == nil {
			b[statusStatus] = copyBackground
		}
		be.PutUint32(b[statusDelay:], delayUnknown)
	}
	b[statusCompleted] = r.samStatus
	b[statusFieldLen], b[statusSenseLen] = byte(len(r.sense)), byte(len(r.sense))
	be.PutUint64(b[statusCount:], r.moved)
	if r.sa >= SAPopulateToken {
		b[statusUnits] = unitsInBlocks
		be.PutUint64(b[statusCount:], r.blocks)
	}
	be.PutUint16(b[statusSegments:], r.segments)
	return append(b, r.sense...)
}

// CopyStatus4 serves RECEIVE COPY STATUS(LID4).
func CopyStatus4(t *server.Task) {
	if r := resultOf(t); r != nil {
		copylist.ReplyAvailable(t, r.describe())
	}
}

// TokenInformation serves RECEIVE ROD TOKEN INFORMATION.
func TokenInformation(t *server.Task) {
	const cscdID = 2 // of a ROD token descriptor: 0, no ROD CSCD descriptor made it
	r := resultOf(t)
	if r == nil {
		return
	}
	b := r.describe()
	be := binary.BigEndian
	if r.token == nil {
		copylist.ReplyAvailable(t, be.AppendUint32(b, 0))
		return
	}
	b = be.AppendUint32(b, uint32(cscdID+len(r.token)))
	copylist.ReplyAvailable(t, append(append(b, 0, 0), r.token...))
}

// CopyAbort serves COPY OPERATION ABORT: it ends when the operation has.
func CopyAbort(t *server.Task) {
	t.Target().Flush() // so that the operation's request is with its device, where it can be withdrawn
	r := managerOf(t).source(t.ITL()).with(binary.BigEndian.Uint32(t.CDB[listIDOf:]))
	if r == nil || r.op == nil {
		t.Fault(sense.InCDB(listIDOf, 7))
		return
	}
	pause := t.Pause()
	r.op.waiters = append(r.op.waiters, server.NewWaiter(func() {
		if !pause.Over(t) {
			t.Good()
		}
	}))
	r.op.stop()
}
