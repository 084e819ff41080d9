// Handlers of the RECEIVE COPY commands and of COPY OPERATION ABORT: what is known of operations
// that run, and of those that are over, by the list identifiers of one I_T_L nexus.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/sense"
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
func (t *Task) resultOf() *copyResult {
	r := managerOf(t).source(t.itl()).with(listID(t.CDB))
	if r == nil {
		t.fault(sense.InCDB(listIDOf, 7))
	}
	return r
}

// doCopyStatus serves RECEIVE COPY STATUS(LID1).
func doCopyStatus(t *Task) {
	h := t.resultOf()
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
	t.finish(binary.BigEndian.AppendUint32(b, uint32(n)))
}

// doCopyFailure serves RECEIVE COPY FAILURE DETAILS(LID1). A copy that did not
// fail has none.
func doCopyFailure(t *Task) {
	const statusAt, senseLenAt, senseAt = 56, 58, 60
	h := t.resultOf()
	switch {
	case h == nil:
		return
	case h.op != nil:
		t.fault(sense.InCDB(listIDOf, 7))
		return
	case !h.failed():
		t.finish(make([]byte, 4))
		return
	}
	b := make([]byte, senseAt, senseAt+len(h.sense))
	b[statusAt] = h.sam
	binary.BigEndian.PutUint16(b[senseLenAt:], uint16(len(h.sense)))
	t.finish(append(b, h.sense...))
}

// doCopyData serves RECEIVE COPY DATA(LID1) and (LID4): no segment type that is
// supported leaves data to be held.
func doCopyData(t *Task) {
	if t.resultOf() != nil {
		t.finish(make([]byte, 4))
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
	b := make([]byte, statusSense, statusSense+len(r.sense)+tokenLen+6)
	b[statusAction] = r.sa
	b[statusStatus] = r.status
	if r.op != nil {
		b[statusStatus] = copyForeground
		if r.op.task == nil {
			b[statusStatus] = copyBackground
		}
		be.PutUint32(b[statusDelay:], delayUnknown)
	}
	b[statusCompleted] = r.sam
	b[statusFieldLen], b[statusSenseLen] = byte(len(r.sense)), byte(len(r.sense))
	be.PutUint64(b[statusCount:], r.moved)
	if r.sa >= saPopulateToken {
		b[statusUnits] = unitsInBlocks
		be.PutUint64(b[statusCount:], r.blocks)
	}
	be.PutUint16(b[statusSegments:], r.segments)
	return append(b, r.sense...)
}

// doCopyStatus4 serves RECEIVE COPY STATUS(LID4).
func doCopyStatus4(t *Task) {
	if r := t.resultOf(); r != nil {
		t.finish(r.describe())
	}
}

// doTokenInformation serves RECEIVE ROD TOKEN INFORMATION.
func doTokenInformation(t *Task) {
	const cscdID = 2 // of a ROD token descriptor: 0, no ROD CSCD descriptor made it
	r := t.resultOf()
	if r == nil {
		return
	}
	b := r.describe()
	be := binary.BigEndian
	if r.token == nil {
		t.finish(be.AppendUint32(b, 0))
		return
	}
	b = be.AppendUint32(b, uint32(cscdID+len(r.token)))
	t.finish(append(append(b, 0, 0), r.token...))
}

// doCopyAbort serves COPY OPERATION ABORT: it ends when the operation has.
func doCopyAbort(t *Task) {
	r := managerOf(t).source(t.itl()).with(binary.BigEndian.Uint32(t.CDB[listIDOf:]))
	if r == nil || r.op == nil {
		t.fault(sense.InCDB(listIDOf, 7))
		return
	}
	pause := t.pause()
	r.op.waiters = append(r.op.waiters, newWaiter(func() {
		if !pause.over(t) {
			t.good()
		}
	}))
	r.op.stop()
}

// Parameter data of RECEIVE COPY OPERATING PARAMETERS (SPC-4 6.19).
const (
	paramFlags       = 4
	paramSNLID       = 0x01
	paramCSCDs       = 8
	paramSegments    = 10
	paramListLen     = 12
	paramSegmentLen  = 16
	paramCopies      = 34
	paramIdentified  = 36
	paramGranularity = 37
	paramCodes       = 43
)

// doCopyParameters serves RECEIVE COPY OPERATING PARAMETERS.
func doCopyParameters(t *Task) {
	be := binary.BigEndian
	b := make([]byte, paramCodes+1, paramCodes+1+len(copyDescriptorCodes))
	b[paramFlags] = paramSNLID
	be.PutUint16(b[paramCSCDs:], maxCSCDs)
	be.PutUint16(b[paramSegments:], maxSegments)
	be.PutUint32(b[paramListLen:], maxDescriptorBytes)
	be.PutUint32(b[paramSegmentLen:], maxSegment)
	// What this nexus gets, not what the target has: more of them are BUSY.
	be.PutUint16(b[paramCopies:], maxCopiesOfNexus)
	b[paramIdentified] = maxCopiesOfNexus
	b[paramGranularity] = segmentGranularity
	b[paramCodes] = byte(len(copyDescriptorCodes))
	t.finish(append(b, copyDescriptorCodes[:]...))
}
