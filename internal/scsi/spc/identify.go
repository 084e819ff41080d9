// Handlers of what hosts write on a unit's label: identifying information, which is durable, and
// the timestamp, which begins anew with the target.

package spc

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Types of identifying information (SPC-5 table 288), as they stand in byte 10.
const (
	identDevice    = 0x00 << 1
	identText      = 0x02 << 1
	identSupported = 0x7F << 1
	maxIdent       = 64
	maxIdentText   = 256
)

// ReportIdentifyingInformation serves REPORT IDENTIFYING INFORMATION.
func ReportIdentifyingInformation(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	b := make([]byte, 4)
	switch t.CDB[10] & 0xFE {
	case identDevice:
		b = append(b, u.Label().Ident...)
	case identText:
		b = append(b, u.Label().Text...)
	case identSupported:
		for _, d := range [][2]int{{identDevice, maxIdent}, {identText, maxIdentText}, {identSupported, 0}} {
			b = be.AppendUint16(append(b, byte(d[0]), 0), uint16(d[1]))
		}
	default:
		t.Fault(sense.InCDB(10, 7))
		return
	}
	be.PutUint16(b[2:], uint16(len(b)-4))
	t.Reply(b, int(min(be.Uint32(t.CDB[6:]), 1<<30)))
}

// SetIdentifyingInformation serves SET IDENTIFYING INFORMATION.
func SetIdentifyingInformation(t *server.Task) {
	u := t.Unit()
	n := binary.BigEndian.Uint32(t.CDB[6:])
	at, most := &u.Label().Ident, uint32(maxIdent)
	switch t.CDB[10] & 0xFE {
	case identDevice:
	case identText:
		at, most = &u.Label().Text, maxIdentText
	default:
		t.Fault(sense.InCDB(10, 7))
		return
	}
	if n > most {
		t.Fault(sense.InCDB(6, 7))
		return
	}
	b, ok := paramlist.Of(t, int(n))
	if !ok {
		return
	}
	if at == &u.Label().Text && n > 0 && b[n-1] != 0 { // a text ends with a NUL
		t.Fault(sense.InList(sense.InvalidFieldInList, int(n-1)))
		return
	}
	*at = slices.Clone(b)
	u.Establish(sense.UAIdentifier, t.ITL())
	t.GoodWhenSaved()
}

// Parameter data of REPORT TIMESTAMP and SET TIMESTAMP (SPC-5 6.38, 6.47).
const (
	timestampLen   = 12
	timestampAt    = 4 // 6 bytes, milliseconds
	timestampSince = 0 // TIMESTAMP ORIGIN: since power on
	timestampSet   = 2 // set by SET TIMESTAMP
	nsPerMilli     = 1_000_000
)

// ReportTimestamp serves REPORT TIMESTAMP.
func ReportTimestamp(t *server.Task) {
	u := t.Unit()
	var b [timestampLen]byte
	b[1] = timestampLen - 2
	b[2] = timestampSince
	if u.Label().ClockSet {
		b[2] = timestampSet
	}
	now := uint64(u.Target().Exec().Now()/nsPerMilli) + u.Label().Clock
	var v [8]byte
	binary.BigEndian.PutUint64(v[:], now)
	copy(b[timestampAt:], v[2:])
	t.Reply(b[:], int(min(binary.BigEndian.Uint32(t.CDB[6:]), 1<<30)))
}

// SetTimestamp serves SET TIMESTAMP.
func SetTimestamp(t *server.Task) {
	u := t.Unit()
	n := binary.BigEndian.Uint32(t.CDB[6:])
	switch {
	case n == 0:
		t.Good()
		return
	case n != timestampLen:
		t.Check(sense.ParameterListLength)
		return
	}
	b, ok := paramlist.Of(t, timestampLen)
	if !ok {
		return
	}
	var v [8]byte
	copy(v[2:], b[timestampAt:timestampAt+6])
	u.Label().Clock = binary.BigEndian.Uint64(v[:]) - uint64(u.Target().Exec().Now()/nsPerMilli)
	u.Label().ClockSet = true
	u.Establish(sense.UATimestamp, t.ITL())
	t.Good()
}
