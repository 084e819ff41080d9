// Handlers of MODE SENSE and MODE SELECT, and the mode pages (SPC-5 7.5). All I_T nexuses share
// one set of values. A MODE SELECT is applied to a copy, which replaces the values when the whole
// list is right.

package scsi

import (
	"bytes"
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// modeState is what MODE SELECT can change; it is shared by all I_T nexuses.
type modeState struct {
	dsense bool // D_SENSE: sense data in descriptor format
	swp    bool // SWP: software write protection
}

// Offsets and bits of the control mode page (SPC-5 7.5.10).
const (
	controlFlags  = 2
	controlQueue  = 3
	controlSWP    = 4
	controlTAS    = 5
	bitDSense     = 0x04
	bitGLTSD      = 0x02
	bitSWP        = 0x08
	bitTAS        = 0x40
	reorderFreely = 0x10 // QUEUE ALGORITHM MODIFIER 1h
)

// modePage is a mode page: its default and its changeable values, both with the
// header, of two bytes or, of a subpage, of four.
type modePage struct {
	defaults, changeable []byte
}

// header returns the length of the page's header.
func (p modePage) header() int {
	if p.defaults[0]&modeSPF != 0 {
		return 4
	}
	return 2
}

// subpage returns the page's subpage code.
func (p modePage) subpage() byte {
	if p.defaults[0]&modeSPF != 0 {
		return p.defaults[1]
	}
	return 0
}

// Mode pages: read-write error recovery, caching (WCE=1), control, informational
// exceptions (DEXCPT=1), logical block provisioning.
const (
	pageControl         = 0x0A
	pageExceptions      = 0x1C
	subpageProvisioning = 0x02
	pageAll             = 0x3F
	subpageAll          = 0xFF
	modeSPF             = 0x40 // the page has a subpage code
)

func (u *Unit) modePages() []modePage {
	pages := []modePage{
		{[]byte{0x01, 10, 0xC0, 11: 0}, []byte{0x01, 10, 11: 0}},
		{[]byte{0x08, 18, 0x04, 19: 0}, []byte{0x08, 18, 19: 0}},
		{[]byte{pageControl, 10, bitGLTSD, reorderFreely, 0, bitTAS, 11: 0}, []byte{pageControl, 10, bitDSense, 0, bitSWP, 11: 0}},
		{[]byte{pageExceptions, 10, 0x08, 11: 0}, []byte{pageExceptions, 10, 11: 0}},
	}
	if p := u.thresholdPage(); p != nil {
		pages = append(pages, modePage{p, append(bytes.Clone(p[:4]), make([]byte, len(p)-4)...)})
	}
	return pages
}

// thresholdPage is the logical block provisioning mode page (SBC-4 6.5.8): which thresholds raise
// 38/07, in threshold sets. The array has one, which hosts cannot change; nil for a unit without
// thresholds.
func (u *Unit) thresholdPage() []byte {
	used, available, ok := u.provisioned()
	if !ok {
		return nil
	}
	const (
		enabled    = 0x80
		increasing = 0x01 // THRESHOLD ARMING
		usedLBAs   = 0x02 // THRESHOLD RESOURCE
		size       = 24
	)
	b := []byte{pageExceptions | modeSPF, subpageProvisioning, 0, size - 4, 16: enabled | increasing, usedLBAs, 0, 0}
	return binary.BigEndian.AppendUint32(b, uint32((uint64(used)+uint64(available))*softThreshold/100))
}

// current returns the page's current values.
func (m *modeState) current(p modePage) []byte {
	b := bytes.Clone(p.defaults)
	if b[0] == pageControl {
		if m.dsense {
			b[controlFlags] |= bitDSense
		}
		if m.swp {
			b[controlSWP] |= bitSWP
		}
	}
	return b
}

// Page control values of MODE SENSE.
const (
	pcCurrent = iota
	pcChangeable
	pcDefault
	pcSaved
)

const (
	modeSense6   = 0x1A
	modeSelect6  = 0x15
	bitDBD       = 0x08
	bitLLBAA     = 0x10
	bitPF        = 0x10
	bitSP        = 0x01
	bitPS        = 0x80
	deviceWP     = 0x80
	deviceDPOFUA = 0x10
)

// doModeSense serves MODE SENSE(6) and (10) (SPC-5 6.13, 6.14).
func doModeSense(t *Task) {
	u := t.state.u
	pc, code, subpage := t.CDB[2]>>6, t.CDB[2]&0x3F, t.CDB[3]
	if pc == pcSaved && u.opt.Save == nil {
		t.check(sense.SavingNotSupported)
		return
	}
	var body []byte
	there := code == pageAll && subpage == 0 // else a subpage that is not there is a fault of the subpage
	for _, p := range u.modePages() {
		if code != pageAll && code != p.defaults[0]&^modeSPF {
			continue
		}
		there = true
		if subpage != subpageAll && subpage != p.subpage() || code == pageAll && subpage != 0 && subpage != subpageAll {
			continue
		}
		at := len(body)
		switch pc {
		case pcChangeable:
			body = append(body, p.changeable...)
		case pcDefault:
			body = append(body, p.defaults...)
		case pcSaved:
			body = append(body, u.savedMode.current(p)...)
		default:
			body = append(body, u.mode.current(p)...)
		}
		if u.opt.Save != nil {
			body[at] |= bitPS
		}
	}
	if body == nil {
		if there {
			t.fault(sense.InCDB(3, 7))
		} else {
			t.fault(sense.InCDB(2, 5))
		}
		return
	}
	device := byte(deviceDPOFUA)
	if u.writeProtected() {
		device |= deviceWP
	}
	var desc []byte
	short := t.CDB[0] == modeSense6
	long := !short && t.CDB[1]&bitLLBAA != 0
	if t.CDB[1]&bitDBD == 0 {
		desc = u.blockDescriptor(long)
	}
	if short {
		b := append([]byte{byte(3 + len(desc) + len(body)), 0, device, byte(len(desc))}, desc...)
		t.reply(append(b, body...), int(t.CDB[4]))
		return
	}
	b := make([]byte, 8, 8+len(desc)+len(body))
	binary.BigEndian.PutUint16(b, uint16(6+len(desc)+len(body)))
	b[3] = device
	if long && desc != nil {
		b[4] = 1
	}
	binary.BigEndian.PutUint16(b[6:], uint16(len(desc)))
	t.reply(append(append(b, desc...), body...), int(binary.BigEndian.Uint16(t.CDB[7:])))
}

// blockDescriptor is a mode parameter block descriptor (SBC-4 6.5.2).
func (u *Unit) blockDescriptor(long bool) []byte {
	be := binary.BigEndian
	if long {
		b := be.AppendUint64(nil, u.blocks)
		return be.AppendUint32(append(b, 0, 0, 0, 0), uint32(u.blockSize()))
	}
	b := be.AppendUint32(nil, uint32(min(u.blocks, 1<<32-1)))
	return be.AppendUint32(b, uint32(u.blockSize()))
}

// doModeSelect serves MODE SELECT(6) and (10) (SPC-5 6.11, 6.12). Nothing is
// changed unless the whole list is right.
func doModeSelect(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	n, head := int(t.CDB[4]), 4
	if t.CDB[0] != modeSelect6 {
		n, head = int(be.Uint16(t.CDB[7:])), 8
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
	b, ok := t.list(n)
	if !ok {
		return
	}
	if n == 0 {
		t.good()
		return
	}
	if n < head {
		t.check(sense.ParameterListLength)
		return
	}
	descLen, long := int(b[3]), false
	if head == 8 {
		descLen, long = int(be.Uint16(b[6:])), b[4]&1 != 0
	}
	if n < head+descLen {
		t.check(sense.ParameterListLength)
		return
	}
	if descLen != 0 && !u.sameGeometry(b[head:head+descLen], long) {
		t.fault(sense.InList(sense.InvalidFieldInList, head))
		return
	}
	next := u.mode
	for at := head + descLen; at < n; {
		s, size := next.apply(u.modePages(), b[at:], at)
		if s.Code != sense.NoSense {
			t.fault(s)
			return
		}
		at += size
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

// sameGeometry reports whether a block descriptor asks for what the unit has.
func (u *Unit) sameGeometry(b []byte, long bool) bool {
	be := binary.BigEndian
	switch {
	case long && len(b) == 16:
		n := be.Uint64(b)
		return (n == 0 || n == u.blocks || n == 1<<64-1) && uint64(be.Uint32(b[12:])) == u.blockSize()
	case !long && len(b) == 8:
		n := uint64(be.Uint32(b))
		return (n == 0 || n == min(u.blocks, 1<<32-1) || n == 1<<32-1) && uint64(be.Uint32(b[4:])&0xFFFFFF) == u.blockSize()
	}
	return false
}

// apply takes over the page at the start of b, which stands at offset at of the
// parameter list, and returns its size. pages are those that there are.
func (m *modeState) apply(pages []modePage, b []byte, at int) (sense.Data, int) {
	if len(b) < 2 {
		return sense.Data{Code: sense.ParameterListLength}, 0
	}
	for _, p := range pages {
		if b[0]&^bitPS != p.defaults[0] || p.subpage() != 0 && b[1] != p.subpage() {
			continue
		}
		size, head := len(p.defaults), p.header()
		if len(b) < head {
			return sense.Data{Code: sense.ParameterListLength}, 0
		}
		if !bytes.Equal(b[1:head], p.defaults[1:head]) {
			return sense.InList(sense.InvalidFieldInList, at+head-1), 0
		}
		if len(b) < size {
			return sense.Data{Code: sense.ParameterListLength}, 0
		}
		now := m.current(p)
		for i := head; i < size; i++ {
			if (b[i]^now[i])&^p.changeable[i] != 0 {
				return sense.InList(sense.InvalidFieldInList, at+i), 0
			}
		}
		if b[0]&0x3F == pageControl {
			m.dsense = b[controlFlags]&bitDSense != 0
			m.swp = b[controlSWP]&bitSWP != 0
		}
		return sense.Data{}, size
	}
	return sense.InList(sense.InvalidFieldInList, at), 0
}
