// Package pages encodes the parameter data by which a logical unit describes itself: INQUIRY with
// its vital product data, mode pages and log pages. Each is a pure function of a description, so
// that it can be read, and tested, without a unit. The limits in them come from whoever keeps them.
package pages

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/names"
)

// Standard INQUIRY data (SPC-5 6.7.2).
const (
	InquiryLen       = 96
	inquiryNoUnit    = 0x7F // PERIPHERAL QUALIFIER 011b, type 1Fh
	inquiryRMB       = 0x80
	inquiryVersion   = 0x06 // SPC-4
	inquiryHiSup     = 0x10
	inquiryFormat    = 0x02
	inquiry3PC       = 0x08
	inquiryMultiP    = 0x10
	inquiryCmdQue    = 0x02
	inquiryVendor    = 8
	inquiryProduct   = 16
	inquiryRevision  = 32
	inquiryStandards = 58
	// TPGS: whether access states change by themselves, or by command.
	inquiryImplicit = 0x10
	inquiryExplicit = 0x20
)

// standards are the version descriptors: SAM-5, SPC-4, SBC-3, iSCSI.
var standards = [...]uint16{0x00A0, 0x0460, 0x04C0, 0x0960}

// Product is what standard INQUIRY data say of all units of a target alike.
type Product struct{ Vendor, Product, Revision string }

// encode fills in what is said of LUNs without a unit too.
func (p *Product) encode(b []byte) {
	b[2] = inquiryVersion
	b[3] = inquiryHiSup | inquiryFormat
	b[4] = InquiryLen - 5
	copy(b[inquiryVendor:], names.Pad(p.Vendor, 8))
	copy(b[inquiryProduct:], names.Pad(p.Product, 16))
	copy(b[inquiryRevision:], names.Pad(p.Revision, 4))
	for i, v := range standards {
		binary.BigEndian.PutUint16(b[inquiryStandards+2*i:], v)
	}
}

// NoUnit fills b, InquiryLen zeros, with the standard INQUIRY data of a LUN without a unit.
func (p *Product) NoUnit(b []byte) {
	p.encode(b)
	b[0] = inquiryNoUnit
}

// Unit is what they say of a unit as one I_T nexus sees it.
type Unit struct {
	Removable    bool
	SetsGroups   bool // the nexus may change the states of target port groups
	SeveralPorts bool
}

// Standard fills b, InquiryLen zeros, with the standard INQUIRY data of a unit.
func (p *Product) Standard(b []byte, u Unit) {
	if u.Removable {
		b[1] = inquiryRMB
	}
	p.encode(b)
	b[5] = inquiryImplicit | inquiry3PC
	if u.SetsGroups {
		b[5] |= inquiryExplicit
	}
	if u.SeveralPorts {
		b[6] = inquiryMultiP
	}
	b[7] = inquiryCmdQue
}

// vpdHead is the length of the header of a vital product data page.
const vpdHead = 4

// BeginVPD begins a vital product data page.
func BeginVPD(code byte) []byte { return append(make([]byte, 0, 256), 0, code, 0, 0) }

// EndVPD writes the length of a page to which everything has been appended.
func EndVPD(b []byte) []byte {
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-vpdHead))
	return b
}

// AppendIdentification appends the Device Identification page: the names of the unit, and those of
// the port through which it is seen. A fabric's port has no names of iSCSI.
func AppendIdentification(b []byte, unit, port []names.Designator, fabric bool) []byte {
	for i := range unit {
		b = unit[i].AppendTo(b, true)
	}
	for i := range port {
		b = port[i].AppendTo(b, !fabric)
	}
	return b
}

// AppendExtended appends the Extended INQUIRY Data page.
func AppendExtended(b []byte) []byte {
	var p [60]byte
	p[5-4] = 0x07 // HEADSUP, ORDSUP, SIMPSUP
	p[6-4] = 0x01 // V_SUP: there is a volatile cache
	p[7-4] = 0x01 // LUICLR: a cleared I_T nexus loss clears for the nexus alone
	p[13-4] = maxSense
	return append(b, p[:]...)
}

// maxSense is MAXIMUM SUPPORTED SENSE DATA LENGTH.
const maxSense = 64

// Limits are what the Block Limits page says. All but the flags are in logical blocks.
type Limits struct {
	Compare     byte   // of COMPARE AND WRITE
	Granularity uint16 // of transfers
	Transfer    uint32 // at most
	Optimal     uint32
	Thin        bool // the four fields of UNMAP mean something
	Unmap       uint32
	UnmapRanges uint32 // descriptors
	Granule     uint32 // of UNMAP, aligned to 0
	WriteSame   uint64
	Atomic      uint32 // of WRITE ATOMIC, of any alignment and granularity, without boundaries
}

// AppendLimits appends the Block Limits page (SBC-4 6.6.4).
func AppendLimits(b []byte, l Limits) []byte {
	be := binary.BigEndian
	p := make([]byte, 64)
	p[5] = l.Compare
	be.PutUint16(p[6:], l.Granularity)
	be.PutUint32(p[8:], l.Transfer)
	be.PutUint32(p[12:], l.Optimal)
	if l.Thin {
		const alignmentValid = 1 << 31
		be.PutUint32(p[20:], l.Unmap)
		be.PutUint32(p[24:], l.UnmapRanges)
		be.PutUint32(p[28:], l.Granule)
		be.PutUint32(p[32:], alignmentValid)
	}
	be.PutUint64(p[36:], l.WriteSame)
	be.PutUint32(p[44:], l.Atomic)
	return append(b, p[vpdHead:]...)
}

// AppendCharacteristics appends the Block Device Characteristics page: the medium does not rotate
// (SBC-4 6.6.3).
func AppendCharacteristics(b []byte) []byte {
	var p [60]byte
	p[1] = 1    // MEDIUM ROTATION RATE: 0001h
	p[3] = 0x50 // WABEREQ, WACEREQ: what SANITIZE erased can be read
	return append(b, p[:]...)
}

// ThinProvisioned is LBPME and LBPRZ, as READ CAPACITY(16) and ROD tokens say them of a thin unit.
const ThinProvisioned = 0x80 | 0x40

// AppendProvisioning appends the Logical Block Provisioning page (SBC-4 6.6.7). exponent is that of
// a threshold set, 0 for a unit without thresholds.
func AppendProvisioning(b []byte, thin bool, exponent byte) []byte {
	if !thin {
		return append(b, 0, 0, 0, 0)
	}
	const lbpu, lbpws, lbpws10, lbprz, ancSup, kind = 0x80, 0x40, 0x20, 0x04, 0x02, 2
	return append(b, exponent, lbpu|lbpws|lbpws10|lbprz|ancSup, kind, 0)
}
