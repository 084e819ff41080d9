// Handlers of what concerns the medium as a thing: START STOP UNIT and READ DEFECT DATA. A medium
// can be ejected from a removable unit only.

package sbc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Bits of START STOP UNIT byte 4 (SBC-4 5.31).
const (
	bitStart      = 0x01
	bitLOEJ       = 0x02
	bitNoFlush    = 0x04
	maskCondition = 0xF0
)

// StartStop serves START STOP UNIT. Power conditions are accepted and have no effect, and stopping
// without ejecting has none but that the cache is flushed: an array does not spin down a volume.
// Whatever IMMED is, the command ends when that is done.
func StartStop(t *server.Task) {
	u := t.Unit()
	b, m := t.CDB[4], u.Medium()
	start, loej, flush := b&bitStart != 0, b&bitLOEJ != 0, b&bitNoFlush == 0
	switch {
	case b&maskCondition != 0:
	case loej && !u.Removable():
		t.Fault(sense.InCDB(4, 1))
		return
	case loej && u.Prevented():
		t.Check(sense.RemovalPrevented)
		return
	case m.NotReady == sense.OperationInProgress, m.NotReady != sense.NoSense && start && !loej:
		t.Check(m.NotReady)
		return
	case loej && start && m.NotReady != sense.NoSense:
		m.NotReady = sense.NoSense
		u.Establish(sense.UAMediumChanged, t.ITL())
	case start, m.NotReady != sense.NoSense:
	case loej && flush:
		flushAndEject(t)
		return
	case loej:
		eject(t)
		return
	case flush:
		submitFlush(t, (*server.Task).Good)
		return
	}
	t.Good()
}

// ejection is the continuation of a command that ejects the medium. However that ends, the medium is
// out by then, or stays.
type ejection struct{ m *server.Medium }

// Release implements server.Continuation.
func (e *ejection) Release(*server.Task) {
	if e.m.NotReady == sense.OperationInProgress {
		e.m.NotReady = sense.NoSense
	}
}

// flushAndEject takes the medium out when what was acknowledged is on it. From now on, commands that need
// the medium are refused; those that have begun end first, then the device is flushed. If that fails, or
// the task is aborted, the medium stays.
func flushAndEject(t *server.Task) {
	u, tg := t.Unit(), t.Target()
	e := &ejection{u.Medium()}
	e.m.NotReady = sense.OperationInProgress
	t.Hold(e)
	w := server.NewWaiter(func() {
		if t.Held() == e { // else it has ended, and may be another command by now
			submitFlush(t, eject)
		}
	})
	u.Quiet(w, t, server.Step, func(_, _ *server.ITL, how server.Use) (byte, sense.Code) {
		if how == server.UsesData {
			return sam.StatusGood, sense.NoSense
		}
		return sam.StatusCheckCondition, sense.OperationInProgress
	})
	w.Less(tg)
}

// eject takes the medium out, unless a host has prevented that meanwhile.
func eject(t *server.Task) {
	if t.Unit().Prevented() {
		t.Check(sense.RemovalPrevented)
		return
	}
	m := t.Unit().Medium()
	m.NotReady = sense.MediumNotPresent
	m.Cycles++
	t.Good()
}

// submitFlush flushes the device; then is called when that has ended well.
func submitFlush(t *server.Task, then func(*server.Task)) {
	r := t.Request()
	r.Op, r.Origin, r.Flags, r.Range = block.OpFlush, block.OriginHost, 0, block.Range{}
	t.Submit(then)
}

// Bits of READ DEFECT DATA (SBC-4 5.17, 5.18): which lists, and in which format.
const DefectLists = 0x1F // REQ_PLIST, REQ_GLIST, DEFECT LIST FORMAT

// ReadDefects10 serves READ DEFECT DATA(10). An array hides the defects of its
// media: both lists are empty, in every format.
func ReadDefects10(t *server.Task) {
	t.Reply([]byte{0, t.CDB[2] & DefectLists, 0, 0}, int(binary.BigEndian.Uint16(t.CDB[7:])))
}

// ReadDefects12 serves READ DEFECT DATA(12).
func ReadDefects12(t *server.Task) {
	t.Reply([]byte{0, t.CDB[1] & DefectLists, 0, 0, 0, 0, 0, 0}, int(min(binary.BigEndian.Uint32(t.CDB[6:]), 1<<30)))
}
