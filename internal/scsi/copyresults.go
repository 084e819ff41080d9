package scsi

import "encoding/binary"

// listIDOf is the LIST IDENTIFIER of RECEIVE COPY RESULTS.
const listIDOf = 2

// allocation16 is the ALLOCATION LENGTH of the 16-byte IN commands.
func allocation16(cdb []byte) int { return int(min(binary.BigEndian.Uint32(cdb[10:]), 1<<30)) }

// finish sends parameter data that begins with AVAILABLE DATA.
func (t *Task) finish(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	t.reply(b, allocation16(t.CDB))
}

// Values of COPY COMMAND STATUS (SPC-4 6.18).
const (
	copyRunning = 0
	copyOK      = 1
	copyFailed  = 2
)

// doCopyStatus serves RECEIVE COPY STATUS(LID1).
func doCopyStatus(t *Task) {
	h := t.state.itl.copyWith(t.CDB[listIDOf])
	if h == nil {
		t.fault(inCDB(listIDOf, 7))
		return
	}
	status := byte(copyOK)
	switch {
	case h.running:
		status = copyRunning
	case h.failed:
		status = copyFailed
	}
	const kibibytes = 1
	units, n := byte(0), h.bytes
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
	h := t.state.itl.copyWith(t.CDB[listIDOf])
	if h == nil || h.running {
		t.fault(inCDB(listIDOf, 7))
		return
	}
	if !h.failed {
		t.finish(make([]byte, 4))
		return
	}
	b := make([]byte, senseAt, senseAt+len(h.sense))
	b[statusAt] = h.status
	binary.BigEndian.PutUint16(b[senseLenAt:], uint16(len(h.sense)))
	t.finish(append(b, h.sense...))
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
	be.PutUint16(b[paramCopies:], maxCopies)
	b[paramIdentified] = maxCopies
	b[paramGranularity] = segmentGranularity
	b[paramCodes] = byte(len(copyDescriptorCodes))
	t.finish(append(b, copyDescriptorCodes[:]...))
}
