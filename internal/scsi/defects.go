package scsi

import "encoding/binary"

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
