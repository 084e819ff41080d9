// Handlers of what hosts write on a unit's label: identifying information, which is durable, and
// the timestamp, which begins anew with the target.

package scsi

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Types of identifying information (SPC-5 table 288), as they stand in byte 10.
const (
	identDevice    = 0x00 << 1
	identText      = 0x02 << 1
	identSupported = 0x7F << 1
	maxIdent       = 64
	maxIdentText   = 256
)

// label is what hosts have written on a unit.
type label struct {
	ident, text []byte // peripheral device identifying information, and text; durable
	clock       uint64 // the timestamp, in milliseconds, at the zero of the executor's clock
	clockSet    bool   // by SET TIMESTAMP
}

// doReportIdent serves REPORT IDENTIFYING INFORMATION.
func doReportIdent(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	b := make([]byte, 4)
	switch t.CDB[10] & 0xFE {
	case identDevice:
		b = append(b, u.label.ident...)
	case identText:
		b = append(b, u.label.text...)
	case identSupported:
		for _, d := range [][2]int{{identDevice, maxIdent}, {identText, maxIdentText}, {identSupported, 0}} {
			b = be.AppendUint16(append(b, byte(d[0]), 0), uint16(d[1]))
		}
	default:
		t.fault(sense.InCDB(10, 7))
		return
	}
	be.PutUint16(b[2:], uint16(len(b)-4))
	t.reply(b, int(min(be.Uint32(t.CDB[6:]), 1<<30)))
}

// doSetIdent serves SET IDENTIFYING INFORMATION.
func doSetIdent(t *Task) {
	u := t.state.u
	n := binary.BigEndian.Uint32(t.CDB[6:])
	at, most := &u.label.ident, uint32(maxIdent)
	switch t.CDB[10] & 0xFE {
	case identDevice:
	case identText:
		at, most = &u.label.text, maxIdentText
	default:
		t.fault(sense.InCDB(10, 7))
		return
	}
	if n > most {
		t.fault(sense.InCDB(6, 7))
		return
	}
	b, ok := t.list(int(n))
	if !ok {
		return
	}
	if at == &u.label.text && n > 0 && b[n-1] != 0 { // a text ends with a NUL
		t.fault(sense.InList(sense.InvalidFieldInList, int(n-1)))
		return
	}
	*at = slices.Clone(b)
	u.establish(sense.UAIdentifier, t.state.itl)
	t.goodWhenSaved()
}

// Parameter data of REPORT TIMESTAMP and SET TIMESTAMP (SPC-5 6.38, 6.47).
const (
	timestampLen   = 12
	timestampAt    = 4 // 6 bytes, milliseconds
	timestampSince = 0 // TIMESTAMP ORIGIN: since power on
	timestampSet   = 2 // set by SET TIMESTAMP
	nsPerMilli     = 1_000_000
)

// doReportTimestamp serves REPORT TIMESTAMP.
func doReportTimestamp(t *Task) {
	u := t.state.u
	var b [timestampLen]byte
	b[1] = timestampLen - 2
	b[2] = timestampSince
	if u.label.clockSet {
		b[2] = timestampSet
	}
	now := uint64(u.t.exec.Now()/nsPerMilli) + u.label.clock
	var v [8]byte
	binary.BigEndian.PutUint64(v[:], now)
	copy(b[timestampAt:], v[2:])
	t.reply(b[:], int(min(binary.BigEndian.Uint32(t.CDB[6:]), 1<<30)))
}

// doSetTimestamp serves SET TIMESTAMP.
func doSetTimestamp(t *Task) {
	u := t.state.u
	n := binary.BigEndian.Uint32(t.CDB[6:])
	switch {
	case n == 0:
		t.good()
		return
	case n != timestampLen:
		t.check(sense.ParameterListLength)
		return
	}
	b, ok := t.list(timestampLen)
	if !ok {
		return
	}
	var v [8]byte
	copy(v[2:], b[timestampAt:timestampAt+6])
	u.label.clock = binary.BigEndian.Uint64(v[:]) - uint64(u.t.exec.Now()/nsPerMilli)
	u.label.clockSet = true
	u.establish(sense.UATimestamp, t.state.itl)
	t.good()
}
