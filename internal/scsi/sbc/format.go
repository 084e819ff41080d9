// Handlers of SANITIZE and FORMAT UNIT. They say what is to become of the medium; the operation
// that does it is the unit's.

package sbc

import (
	"encoding/binary"
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/erase"
	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// Service actions and bits of SANITIZE (SBC-4 5.30).
const (
	SanitizeOverwrite = 0x01
	SanitizeBlock     = 0x02
	SanitizeCrypto    = 0x03
	SanitizeExit      = 0x1F
	SanitizeImmed     = 0x80
	SanitizeAUSE      = 0x20
	overwriteHeader   = 4
	overwriteInvert   = 0x80
	overwriteCount    = 0x1F
)

// Sanitize serves SANITIZE. BLOCK ERASE and CRYPTOGRAPHIC ERASE both drop the
// map of the unit: what it named can be reached by nothing afterwards.
func Sanitize(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	n := int(be.Uint16(t.CDB[7:]))
	sa := t.CDB[1] & 0x1F
	what := erase.Parameters{Unrestricted: t.CDB[1]&SanitizeAUSE != 0}
	switch {
	case sa == SanitizeOverwrite:
		if n <= overwriteHeader || n > overwriteHeader+int(u.BlockSize()) {
			t.Fault(sense.InCDB(7, 7))
			return
		}
		b, ok := paramlist.Begin(t, n, n, overwriteHeader)
		if !ok {
			return
		}
		length := int(be.Uint16(b[2:]))
		what.Passes, what.Invert = int(b[0]&overwriteCount), b[0]&overwriteInvert != 0
		switch {
		case what.Passes == 0:
			t.Fault(sense.InList(sense.InvalidFieldInList, 0))
			return
		case length == 0 || length != n-overwriteHeader:
			t.Fault(sense.InList(sense.InvalidFieldInList, 2))
			return
		}
		what.Pattern = sgl.Repeat(b[overwriteHeader:], int(u.BlockSize()))
	case n != 0:
		t.Fault(sense.InCDB(7, 7))
		return
	case sa == SanitizeExit:
		if f := u.FailedErase(); f != nil && !f.Format {
			if !f.Unrestricted {
				t.Fault(sense.InCDB(1, 4))
				return
			}
			u.ClearFailedErase()
		}
		t.GoodWhenSaved()
		return
	}
	begin(t, what, t.CDB[1]&SanitizeImmed != 0)
}

// Bits of FORMAT UNIT and its parameter list (SBC-4 5.5).
const (
	formatPInfo     = 0xC0 // FMTPINFO
	formatValid     = 0x80 // FOV: the options below count
	formatOptions   = formatDPRY | formatDCRT | formatSTPF | formatInit | formatDSP
	formatDSP       = 0x04 // obsolete since SBC-3
	formatLong      = 0x20
	formatData      = 0x10
	formatImmed     = 0x02
	formatInit      = 0x08 // IP
	formatDPRY      = 0x40
	formatSTPF      = 0x10
	formatDCRT      = 0x20
	formatShortHead = 4
	formatLongHead  = 8
	formatInitHead  = 4
)

// FormatUnit serves FORMAT UNIT: protection type 0, no defect list. Without an
// initialization pattern a thin unit is unmapped, another one reads zeros.
func FormatUnit(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	if t.CDB[1]&formatPInfo != 0 {
		t.Fault(sense.InCDB(1, 7))
		return
	}
	what := erase.Parameters{Format: true}
	if t.CDB[1]&formatData == 0 {
		begin(t, what, false)
		return
	}
	head := formatShortHead
	if t.CDB[1]&formatLong != 0 {
		head = formatLongHead
	}
	if _, ok := paramlist.Begin(t, head, head, head); !ok { // the CDB says of no length
		return
	}
	b := sgl.Joined(t.DataOut, formatLongHead+formatInitHead+int(u.BlockSize()))
	defects := uint32(be.Uint16(b[2:]))
	if head == formatLongHead {
		defects = be.Uint32(b[4:])
	}
	switch flags := b[1]; {
	case b[0]&7 != 0: // PROTECTION FIELD USAGE
		t.Fault(sense.InList(sense.InvalidFieldInList, 0))
		return
	case flags&formatOptions != 0 && flags&formatValid == 0:
		t.Fault(sense.BitInList(sense.InvalidFieldInList, 1, bits.Len8(flags&formatOptions)-1))
		return
	case head == formatLongHead && b[3] != 0:
		t.Fault(sense.InList(sense.InvalidFieldInList, 3))
		return
	case defects != 0:
		t.Fault(sense.InList(sense.InvalidFieldInList, head-2))
		return
	case flags&formatInit != 0:
		d := b[head:]
		if len(d) < formatInitHead {
			t.Check(sense.ParameterListLength)
			return
		}
		kind, length := d[1], int(be.Uint16(d[2:]))
		t.OutTotal = head + formatInitHead + length
		switch {
		case d[0] != 0:
			t.Fault(sense.BitInList(sense.InvalidFieldInList, head, unservedBit(d[0])))
			return
		case kind > 1 || kind == 0 && length != 0:
			t.Fault(sense.InList(sense.InvalidFieldInList, head+1))
			return
		case kind == 1 && (length == 0 || length > int(u.BlockSize())):
			t.Fault(sense.InList(sense.InvalidFieldInList, head+2))
			return
		case len(d) < formatInitHead+length:
			t.Check(sense.ParameterListLength)
			return
		case kind == 1:
			what.Passes, what.Pattern = 1, sgl.Repeat(d[formatInitHead:formatInitHead+length], int(u.BlockSize()))
		}
	}
	begin(t, what, b[1]&formatImmed != 0)
}

// unservedBit returns where the first field begins that is set in the first byte of an initialization pattern descriptor:
// none is served. The obsolete IP MODIFIER, of two bits, asks for addresses in the blocks, and SI for blocks to be
// overwritten that hosts cannot address, which SANITIZE does.
func unservedBit(b byte) int {
	if b&0xC0 != 0 {
		return 7
	}
	return bits.Len8(b) - 1
}

// begin starts the operation of the task's command.
func begin(t *server.Task, what erase.Parameters, immed bool) {
	u := t.Unit()
	t.Unit().Describe(counters.Erase, what.Bytes(u.Info().Sectors<<block.SectorShift))
	if immed {
		u.Erase(what, nil)
		t.GoodWhenSaved() // it goes on after a loss of power
		return
	}
	u.Erase(what, t)
}
