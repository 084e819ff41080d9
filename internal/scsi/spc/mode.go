// Handlers of MODE SENSE and MODE SELECT. Package pages has the mode pages; the values are the
// unit's. Nothing is changed unless the whole parameter list is right.

package spc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/threshold"
)

const (
	modeSense6  = 0x1A
	modeSelect6 = 0x15
	bitDBD      = 0x08
	bitLLBAA    = 0x10
	bitPF       = 0x10
	bitSP       = 0x01
)

// modes describes the unit's mode parameters.
func modes(u *server.Unit) pages.Modes {
	d := pages.Modes{Current: u.Mode(), Saved: u.SavedMode(), Saves: u.CanSave(), WriteProtected: u.WriteProtected(),
		Blocks: u.Blocks(), BlockSize: uint32(u.BlockSize())}
	if used, available, ok := u.Pool().Sets(); ok && u.Info().Thin {
		d.Threshold, d.HasThreshold = uint32((uint64(used)+uint64(available))*threshold.Soft/100), true
	}
	return d
}

// ModeSense serves MODE SENSE(6) and (10) (SPC-5 6.13, 6.14).
func ModeSense(t *server.Task) {
	u := t.Unit()
	pc, code, subpage := pages.Control(t.CDB[2]>>6), t.CDB[2]&0x3F, t.CDB[3]
	if pc == pages.Saved && !u.CanSave() {
		t.Check(sense.SavingNotSupported)
		return
	}
	d := modes(u)
	body, s := d.Sense(pc, code, subpage)
	if s.Code != sense.NoSense {
		t.Fault(s)
		return
	}
	short := t.CDB[0] == modeSense6
	long, allocation := false, int(t.CDB[4])
	if !short {
		long, allocation = t.CDB[1]&bitLLBAA != 0, int(binary.BigEndian.Uint16(t.CDB[7:]))
	}
	head := d.Header(short, t.CDB[1]&bitDBD == 0, long, len(body))
	t.Reply(append(head, body...), allocation)
}

// ModeSelect serves MODE SELECT(6) and (10) (SPC-5 6.11, 6.12).
func ModeSelect(t *server.Task) {
	u := t.Unit()
	short := t.CDB[0] == modeSelect6
	n := int(t.CDB[4])
	if !short {
		n = int(binary.BigEndian.Uint16(t.CDB[7:]))
	}
	save := t.CDB[1]&bitSP != 0
	if save && !u.CanSave() {
		t.Fault(sense.InCDB(1, 0))
		return
	}
	if t.CDB[1]&bitPF == 0 {
		t.Fault(sense.InCDB(1, 4))
		return
	}
	b, ok := paramlist.Begin(t, n, n, pages.ModeHead(short))
	if !ok {
		return
	}
	d := modes(u)
	next, s := d.Select(b, short)
	if s.Code != sense.NoSense {
		t.Fault(s)
		return
	}
	if next != u.Mode() {
		u.SetMode(next)
		u.Establish(sense.UAModeChanged, t.ITL())
	}
	if save {
		u.SetSavedMode(next)
		t.GoodWhenSaved()
		return
	}
	t.Good()
}
