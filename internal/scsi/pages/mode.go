// Mode pages (SPC-5 7.5) and what MODE SENSE and MODE SELECT carry besides: headers and block
// descriptors. All I_T nexuses share one set of values. A parameter list is applied to a copy, which
// replaces the values when the whole list is right.

package pages

import (
	"bytes"
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Mode is what MODE SELECT can change.
type Mode struct {
	DSense bool // D_SENSE: sense data in descriptor format
	SWP    bool // SWP: software write protection
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

const (
	bitPS        = 0x80 // the page can be saved
	deviceWP     = 0x80
	deviceDPOFUA = 0x10
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

// Modes describes the mode parameters of a unit.
type Modes struct {
	Current, Saved Mode
	Saves          bool // MODE SELECT can save
	WriteProtected bool
	// Threshold is the number of threshold sets in use from which the pool's use is reported, where
	// there is one. Hosts cannot change it.
	Threshold    uint32
	HasThreshold bool
	Blocks       uint64
	BlockSize    uint32
}

func (d *Modes) pages() []modePage {
	list := []modePage{
		{[]byte{0x01, 10, 0xC0, 11: 0}, []byte{0x01, 10, 11: 0}},
		{[]byte{0x08, 18, 0x04, 19: 0}, []byte{0x08, 18, 19: 0}},
		{[]byte{pageControl, 10, bitGLTSD, reorderFreely, 0, bitTAS, 11: 0}, []byte{pageControl, 10, bitDSense, 0, bitSWP, 11: 0}},
		{[]byte{pageExceptions, 10, 0x08, 11: 0}, []byte{pageExceptions, 10, 11: 0}},
	}
	if d.HasThreshold {
		p := thresholdPage(d.Threshold)
		list = append(list, modePage{p, append(bytes.Clone(p[:4]), make([]byte, len(p)-4)...)})
	}
	return list
}

// thresholdPage is the logical block provisioning mode page (SBC-4 6.5.8): which thresholds raise
// 38/07, in threshold sets. The array has one.
func thresholdPage(sets uint32) []byte {
	const (
		enabled    = 0x80
		increasing = 0x01 // THRESHOLD ARMING
		usedLBAs   = 0x02 // THRESHOLD RESOURCE
		size       = 24
	)
	b := []byte{pageExceptions | modeSPF, subpageProvisioning, 0, size - 4, 16: enabled | increasing, usedLBAs, 0, 0}
	return binary.BigEndian.AppendUint32(b, sets)
}

// current returns the page's current values.
func (m *Mode) current(p modePage) []byte {
	b := bytes.Clone(p.defaults)
	if b[0] == pageControl {
		if m.DSense {
			b[controlFlags] |= bitDSense
		}
		if m.SWP {
			b[controlSWP] |= bitSWP
		}
	}
	return b
}

// Control is which values MODE SENSE asks for (PC).
type Control byte

// Values that MODE SENSE can ask for.
const (
	Current Control = iota
	Changeable
	Default
	Saved
)

// Sense returns the mode pages that a MODE SENSE asks for by page and subpage code, or the fault of
// its CDB.
func (d *Modes) Sense(pc Control, code, subpage byte) (body []byte, fault sense.Data) {
	there := code == pageAll && subpage == 0 // else a subpage that is not there is a fault of the subpage
	for _, p := range d.pages() {
		if code != pageAll && code != p.defaults[0]&^modeSPF {
			continue
		}
		there = true
		if subpage != subpageAll && subpage != p.subpage() || code == pageAll && subpage != 0 && subpage != subpageAll {
			continue
		}
		at := len(body)
		switch pc {
		case Changeable:
			body = append(body, p.changeable...)
		case Default:
			body = append(body, p.defaults...)
		case Saved:
			body = append(body, d.Saved.current(p)...)
		default:
			body = append(body, d.Current.current(p)...)
		}
		if d.Saves {
			body[at] |= bitPS
		}
	}
	switch {
	case body != nil:
		return body, sense.Data{}
	case there:
		return nil, sense.InCDB(3, 7)
	}
	return nil, sense.InCDB(2, 5)
}

// Header returns the mode parameter header of MODE SENSE(10), or the short one of MODE SENSE(6), and
// the block descriptor, if there is to be one, that stand before n bytes of pages (SPC-5 7.5.5).
func (d *Modes) Header(short, descriptor, long bool, n int) []byte {
	device := byte(deviceDPOFUA)
	if d.WriteProtected {
		device |= deviceWP
	}
	var desc []byte
	if descriptor {
		desc = d.blockDescriptor(long)
	}
	if short {
		return append([]byte{byte(3 + len(desc) + n), 0, device, byte(len(desc))}, desc...)
	}
	b := make([]byte, 8, 8+len(desc)+n)
	binary.BigEndian.PutUint16(b, uint16(6+len(desc)+n))
	b[3] = device
	if long && descriptor {
		b[4] = 1
	}
	binary.BigEndian.PutUint16(b[6:], uint16(len(desc)))
	return append(b, desc...)
}

// blockDescriptor is a mode parameter block descriptor (SBC-4 6.5.2).
func (d *Modes) blockDescriptor(long bool) []byte {
	be := binary.BigEndian
	if long {
		b := be.AppendUint64(nil, d.Blocks)
		return be.AppendUint32(append(b, 0, 0, 0, 0), d.BlockSize)
	}
	b := be.AppendUint32(nil, uint32(min(d.Blocks, 1<<32-1)))
	return be.AppendUint32(b, d.BlockSize)
}

// Select returns the values that the parameter list b of a MODE SELECT makes of the current ones,
// or what is wrong with it. short says that the list has the header of MODE SELECT(6).
func (d *Modes) Select(b []byte, short bool) (Mode, sense.Data) {
	wrong := func(s sense.Data) (Mode, sense.Data) { return Mode{}, s }
	be := binary.BigEndian
	head := ModeHead(short)
	descLen, long := int(b[3]), false
	if !short {
		descLen, long = int(be.Uint16(b[6:])), b[4]&1 != 0
	}
	if len(b) < head+descLen {
		return wrong(sense.Data{Code: sense.ParameterListLength})
	}
	if descLen != 0 && !d.sameGeometry(b[head:head+descLen], long) {
		return wrong(sense.InList(sense.InvalidFieldInList, head))
	}
	next := d.Current
	for at := head + descLen; at < len(b); {
		s, size := next.apply(d.pages(), b[at:], at)
		if s.Code != sense.NoSense {
			return wrong(s)
		}
		at += size
	}
	return next, sense.Data{}
}

// ModeHead returns the length of a mode parameter header.
func ModeHead(short bool) int {
	if short {
		return 4
	}
	return 8
}

// sameGeometry reports whether a block descriptor asks for what the unit has.
func (d *Modes) sameGeometry(b []byte, long bool) bool {
	be := binary.BigEndian
	switch {
	case long && len(b) == 16:
		n := be.Uint64(b)
		return (n == 0 || n == d.Blocks || n == 1<<64-1) && be.Uint32(b[12:]) == d.BlockSize
	case !long && len(b) == 8:
		n := uint64(be.Uint32(b))
		return (n == 0 || n == min(d.Blocks, 1<<32-1) || n == 1<<32-1) && be.Uint32(b[4:])&0xFFFFFF == d.BlockSize
	}
	return false
}

// apply takes over the page at the start of b, which stands at offset at of the
// parameter list, and returns its size. pages are those that there are.
func (m *Mode) apply(pages []modePage, b []byte, at int) (sense.Data, int) {
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
			m.DSense = b[controlFlags]&bitDSense != 0
			m.SWP = b[controlSWP]&bitSWP != 0
		}
		return sense.Data{}, size
	}
	return sense.InList(sense.InvalidFieldInList, at), 0
}
