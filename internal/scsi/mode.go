// Handlers of MODE SENSE and MODE SELECT. Package pages has the mode pages; the values are the
// unit's. Nothing is changed unless the whole parameter list is right.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
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
func (u *Unit) modes() pages.Modes {
	d := pages.Modes{Current: u.mode, Saved: u.savedMode, Saves: u.opt.Save != nil, WriteProtected: u.writeProtected(),
		Blocks: u.blocks, BlockSize: uint32(u.blockSize())}
	if used, available, ok := u.provisioned(); ok {
		d.Threshold, d.HasThreshold = uint32((uint64(used)+uint64(available))*softThreshold/100), true
	}
	return d
}

// doModeSense serves MODE SENSE(6) and (10) (SPC-5 6.13, 6.14).
func doModeSense(t *Task) {
	u := t.state.u
	pc, code, subpage := pages.Control(t.CDB[2]>>6), t.CDB[2]&0x3F, t.CDB[3]
	if pc == pages.Saved && u.opt.Save == nil {
		t.check(sense.SavingNotSupported)
		return
	}
	d := u.modes()
	body, s := d.Sense(pc, code, subpage)
	if s.Code != sense.NoSense {
		t.fault(s)
		return
	}
	short := t.CDB[0] == modeSense6
	long, allocation := false, int(t.CDB[4])
	if !short {
		long, allocation = t.CDB[1]&bitLLBAA != 0, int(binary.BigEndian.Uint16(t.CDB[7:]))
	}
	head := d.Header(short, t.CDB[1]&bitDBD == 0, long, len(body))
	t.reply(append(head, body...), allocation)
}

// doModeSelect serves MODE SELECT(6) and (10) (SPC-5 6.11, 6.12).
func doModeSelect(t *Task) {
	u := t.state.u
	short := t.CDB[0] == modeSelect6
	n := int(t.CDB[4])
	if !short {
		n = int(binary.BigEndian.Uint16(t.CDB[7:]))
	}
	save := t.CDB[1]&bitSP != 0
	if save && u.opt.Save == nil {
		t.fault(sense.InCDB(1, 0))
		return
	}
	if t.CDB[1]&bitPF == 0 {
		t.fault(sense.InCDB(1, 4))
		return
	}
	b, ok := t.parameters(n, n, pages.ModeHead(short))
	if !ok {
		return
	}
	d := u.modes()
	next, s := d.Select(b, short)
	if s.Code != sense.NoSense {
		t.fault(s)
		return
	}
	if next != u.mode {
		u.mode = next
		u.establish(sense.UAModeChanged, t.state.itl)
	}
	if save {
		u.savedMode = next
		t.goodWhenSaved()
		return
	}
	t.good()
}
