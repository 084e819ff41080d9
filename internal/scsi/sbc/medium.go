// Handlers of what concerns the medium as a thing: START STOP UNIT and READ DEFECT DATA. A medium can be
// ejected from a removable unit only.

package sbc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Bits of START STOP UNIT byte 4 (SBC-4 5.31).
const (
	bitStart      = 0x01
	bitLOEJ       = 0x02
	maskCondition = 0xF0
)

// StartStop serves START STOP UNIT. Power conditions, and stopping without
// ejecting, are accepted and have no effect: an array does not spin down a volume.
func StartStop(t *server.Task) {
	u := t.Unit()
	b := t.CDB[4]
	start, loej := b&bitStart != 0, b&bitLOEJ != 0
	switch {
	case b&maskCondition != 0:
	case loej && !u.Removable():
		t.Fault(sense.InCDB(4, 1))
		return
	case loej && u.Prevented():
		t.Check(sense.RemovalPrevented)
		return
	case loej:
		if start && u.Medium().Ejected {
			u.Establish(sense.UAMediumChanged, t.ITL())
		}
		if !start && !u.Medium().Ejected {
			u.Medium().Cycles++
		}
		u.Medium().Ejected = !start
	case start && u.Medium().Ejected:
		t.Check(sense.MediumNotPresent)
		return
	}
	t.Good()
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
