// Handler of INQUIRY: standard data, and the vital product data pages. They name the limits that
// the other files keep, from the same constants.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Standard INQUIRY data (SPC-5 6.7.2).
const (
	inquiryLen       = 96
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
)

// TPGS of standard INQUIRY data: whether access states change by themselves, or by command.
const (
	inquiryImplicit = 0x10
	inquiryExplicit = 0x20
)

// standards are the version descriptors: SAM-5, SPC-4, SBC-3, iSCSI.
var standards = [...]uint16{0x00A0, 0x0460, 0x04C0, 0x0960}

// doInquiry serves INQUIRY.
func doInquiry(t *Task) {
	allocation := int(binary.BigEndian.Uint16(t.CDB[3:]))
	page := t.CDB[2]
	if t.CDB[1]&1 == 0 {
		if page != 0 {
			t.fault(sense.InCDB(2, 7))
			return
		}
		var b [inquiryLen]byte
		t.state.itl.inquiry(b[:])
		t.reply(b[:], allocation)
		return
	}
	for i := range pages {
		if pages[i].code == page {
			t.reply(t.state.u.page(&pages[i], t.state.n), allocation)
			return
		}
	}
	t.fault(sense.InCDB(2, 7))
}

func (x *itl) inquiry(b []byte) {
	u := x.u
	if u.opt.Removable {
		b[1] = inquiryRMB
	}
	u.t.describe(b)
	b[5] = inquiryImplicit | inquiry3PC
	if x.n.setsGroups() {
		b[5] |= inquiryExplicit
	}
	if u.t.groups.Several() {
		b[6] = inquiryMultiP
	}
	b[7] = inquiryCmdQue
}

// describe fills in what standard INQUIRY data say of every unit alike, and of
// LUNs without a unit.
func (t *Target) describe(b []byte) {
	b[2] = inquiryVersion
	b[3] = inquiryHiSup | inquiryFormat
	b[4] = inquiryLen - 5
	copy(b[inquiryVendor:], names.Pad(t.opt.Vendor, 8))
	copy(b[inquiryProduct:], names.Pad(t.opt.Product, 16))
	copy(b[inquiryRevision:], names.Pad(t.opt.Revision, 4))
	for i, v := range standards {
		binary.BigEndian.PutUint16(b[inquiryStandards+2*i:], v)
	}
}

// vpd is a vital product data page; its codes are in ascending order.
type vpd struct {
	code byte
	make func(u *Unit, n *Nexus, b []byte) []byte // appends the page behind its header
}

var pages []vpd

func init() {
	pages = []vpd{
		{0x00, vpdSupported}, {0x80, vpdSerial}, {0x83, vpdIdentification}, {0x86, vpdExtended},
		{0x8F, vpdThirdParty}, {0xB0, vpdBlockLimits}, {0xB1, vpdCharacteristics}, {0xB2, vpdProvisioning},
	}
}

func (u *Unit) page(p *vpd, n *Nexus) []byte {
	b := p.make(u, n, append(make([]byte, 0, 256), 0, p.code, 0, 0))
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return b
}

func vpdSupported(_ *Unit, _ *Nexus, b []byte) []byte {
	for i := range pages {
		b = append(b, pages[i].code)
	}
	return b
}

func vpdSerial(u *Unit, _ *Nexus, b []byte) []byte { return append(b, u.info.Serial...) }

func vpdIdentification(u *Unit, n *Nexus, b []byte) []byte {
	for i := range u.names {
		b = u.names[i].AppendTo(b, true)
	}
	for _, d := range names.PortDesignators(u.t.opt.Name, n.targetPort, n.group.ID, !n.fabric) {
		b = d.AppendTo(b, !n.fabric)
	}
	return b
}

func vpdExtended(_ *Unit, _ *Nexus, b []byte) []byte {
	var p [60]byte
	p[5-4] = 0x07 // HEADSUP, ORDSUP, SIMPSUP
	p[6-4] = 0x01 // V_SUP: there is a volatile cache
	p[7-4] = 0x01 // LUICLR: a cleared I_T nexus loss clears for the nexus alone
	p[13-4] = sksLen
	return append(b, p[:]...)
}

// sksLen is MAXIMUM SUPPORTED SENSE DATA LENGTH.
const sksLen = 64

// Third-party copy descriptor types (SPC-5 7.7.18).
const (
	tpcRODLimits   = 0x0000
	tpcCommands    = 0x0001
	tpcParameters  = 0x0004
	tpcDescriptors = 0x0008
	tpcCSCDIDs     = 0x000C
	tpcRODFeatures = 0x0106
	tpcRODTypes    = 0x0108
	tpcGeneral     = 0x8001
)

// vpdThirdParty makes the Third-party Copy page (SPC-5 7.7.18).
func vpdThirdParty(u *Unit, _ *Nexus, b []byte) []byte {
	be := binary.BigEndian
	add := func(kind uint16, body []byte) {
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		b = be.AppendUint16(be.AppendUint16(b, kind), uint16(len(body)))
		b = append(b, body...)
	}
	bs := u.blockSize()
	limits := make([]byte, 32) // behind 6 vendor specific bytes
	be.PutUint16(limits[6:], maxTokenRanges)
	be.PutUint32(limits[8:], maxTokenTimeout)
	be.PutUint32(limits[12:], tokenTimeout)
	be.PutUint64(limits[16:], maxTokenBytes/bs)
	be.PutUint64(limits[24:], bestTransferBytes/bs)
	add(tpcRODLimits, limits)
	var list []byte
	for _, op := range []byte{0x83, 0x84} {
		sas := servedOps[op].sas
		list = append(list, op, byte(len(sas)))
		for _, c := range sas {
			list = append(list, byte(c.sa))
		}
	}
	add(tpcCommands, append([]byte{byte(len(list))}, list...))
	p := make([]byte, 28)
	be.PutUint16(p[4:], maxCSCDs)
	be.PutUint16(p[6:], maxSegments)
	be.PutUint32(p[8:], maxDescriptorBytes)
	be.PutUint32(p[12:], 0) // no inline data
	add(tpcParameters, p)
	add(tpcDescriptors, append([]byte{byte(len(copyDescriptorCodes))}, copyDescriptorCodes[:]...))
	add(tpcCSCDIDs, []byte{0, 2, cscdSelf >> 8, cscdSelf & 0xFF})
	features := make([]byte, 44+48)
	be.PutUint32(features[12:], 1)               // MINIMUM TOKEN LIFETIME
	be.PutUint32(features[16:], 1<<32-1)         // MAXIMUM TOKEN LIFETIME: as long as it is used
	be.PutUint32(features[20:], maxTokenTimeout) // MAXIMUM TOKEN INACTIVITY TIMEOUT
	be.PutUint16(features[42:], 48)
	block := features[44:] // block ROD device type specific features
	be.PutUint16(block[2:], 44)
	be.PutUint16(block[6:], uint16(max(u.info.GranuleSectors>>u.shift, 1)))
	be.PutUint64(block[8:], maxTokenBytes)
	be.PutUint64(block[16:], bestTransferBytes)
	be.PutUint64(block[24:], bestTransferBytes) // to a token
	be.PutUint64(block[32:], bestTransferBytes) // from a token
	add(tpcRODFeatures, features)
	const tokenOut, tokenIn = 0x01, 0x02
	types := make([]byte, 4+2*64)
	be.PutUint16(types[2:], 2*64)
	be.PutUint32(types[4:], rodPointInTime)
	types[4+4] = tokenOut | tokenIn
	be.PutUint32(types[4+64:], rodBlockZero)
	types[4+64+4] = tokenIn
	add(tpcRODTypes, types)
	g := make([]byte, 32)
	be.PutUint32(g[0:], maxCopiesOfNexus) // TOTAL CONCURRENT COPIES
	be.PutUint32(g[4:], maxCopiesOfNexus) // MAXIMUM IDENTIFIED CONCURRENT COPIES
	be.PutUint32(g[8:], maxSegment)       // MAXIMUM SEGMENT LENGTH
	g[12] = segmentGranularity
	add(tpcGeneral, g)
	return b
}

// vpdBlockLimits makes the Block Limits page (SBC-4 6.6.4).
func vpdBlockLimits(u *Unit, _ *Nexus, b []byte) []byte {
	be := binary.BigEndian
	p := make([]byte, 64)
	bs := uint32(u.blockSize())
	p[5] = maxCompareBlocks
	be.PutUint16(p[6:], 1<<min(u.info.PhysicalExp, 15))
	be.PutUint32(p[8:], maxTransferBytes/bs)
	be.PutUint32(p[12:], optTransferBytes/bs)
	if u.info.Thin {
		granule := max(u.info.GranuleSectors>>u.shift, 1)
		be.PutUint32(p[20:], maxUnmapBlocks)
		be.PutUint32(p[24:], maxUnmapRanges)
		be.PutUint32(p[28:], granule)
		be.PutUint32(p[32:], 1<<31) // UGAVALID, alignment 0
	}
	be.PutUint64(p[36:], maxWriteSame)
	be.PutUint32(p[44:], uint32(u.atomicBlocks())) // of any alignment and granularity, without boundaries
	return append(b, p[4:]...)
}

// vpdCharacteristics says that the medium does not rotate (SBC-4 6.6.3).
func vpdCharacteristics(_ *Unit, _ *Nexus, b []byte) []byte {
	var p [60]byte
	p[1] = 1    // MEDIUM ROTATION RATE: 0001h
	p[3] = 0x50 // WABEREQ, WACEREQ: what SANITIZE erased can be read
	return append(b, p[:]...)
}

// vpdProvisioning makes the Logical Block Provisioning page (SBC-4 6.6.7).
func vpdProvisioning(u *Unit, _ *Nexus, b []byte) []byte {
	if !u.info.Thin {
		return append(b, 0, 0, 0, 0)
	}
	const lbpu, lbpws, lbpws10, lbprz, ancSup, thin = 0x80, 0x40, 0x20, 0x04, 0x02, 2
	var exponent byte
	if u.provisioner != nil {
		exponent = u.thresholdExponent()
	}
	return append(b, exponent, lbpu|lbpws|lbpws10|lbprz|ancSup, thin, 0)
}
