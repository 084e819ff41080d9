// Handler of EXTENDED COPY, stage 1 of a copy: its parameter list is parsed, its CSCDs are found
// among the LUNs of the nexus that sent it and nowhere else, and an operation is started
// (copystart.go). Only what makes the whole list unusable is an error here; the rest is found
// when the segment runs.

package copymgr

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Limits of EXTENDED COPY, as RECEIVE COPY OPERATING PARAMETERS and the
// Third-party Copy VPD page report them.
const (
	maxCSCDs           = 64
	maxSegments        = 256
	maxSegment         = 256 << 20 // bytes
	maxDescriptorBytes = maxCSCDs*cscdLen + maxSegments*segmentOffsetLen
	maxCopies          = 128 // at the same time
	maxCopiesOfNexus   = 32  // of them, started on one I_T_L nexus and not over
	maxCopiesOfHost    = 64  // of them, of one initiator, by however many sessions and LUNs
	maxHeld            = 32  // results kept for an I_T_L nexus
	segmentGranularity = 9   // log2 of bytes
)

// Descriptor type codes.
const (
	segmentBlocks = 0x02 // block device to block device
	segmentOffset = 0x0A // block device with offset to block device with offset
	cscdIdent     = 0xE4 // identification descriptor CSCD
)

// copyDescriptorCodes are the supported descriptor type codes, ascending.
var copyDescriptorCodes = [...]byte{segmentBlocks, segmentOffset, cscdIdent}

// Parameter list of EXTENDED COPY(LID1) (SPC-4 6.4.3):
//
//	| list id | usage | CSCD bytes (2) | 4 | segment bytes (4) | inline bytes (4) | CSCDs | segments |
const (
	copyHeader      = 16
	copyListID      = 0
	copyUsage       = 1
	copyCSCDBytes   = 2
	copySegBytes    = 8
	copyInlineBytes = 12

	// Parameter list of EXTENDED COPY(LID4) (SPC-4 6.4.4):
	//
	//	| 1 | usage | header CSCD bytes (2) | 11 | flags | FFh | 3 | list id (4) | 18 |
	//	| CSCD bytes (2) | segment bytes (2) | inline bytes (2) | CSCDs | segments |
	copyHeader4      = 48
	copyFormat4      = 0 // 01h
	copyHeadBytes4   = 2 // 0020h
	copyFlags4       = 15
	copyImmed4       = 0x02
	copyHeadType4    = 16
	copyListID4      = 20
	copyCSCDBytes4   = 42
	copySegBytes4    = 44
	copyInlineBytes4 = 46
	headCSCDType     = 0xFF

	cscdLen          = 32
	cscdFlags        = 1 // LU ID TYPE (ignored since SPC-4), NUL, PERIPHERAL DEVICE TYPE
	cscdNUL          = 0x20
	cscdPDT          = 0x1F
	cscdCodeSet      = 4
	cscdKind         = 5
	cscdIDLen        = 7
	cscdID           = 8
	cscdIDMax        = 20
	cscdBlockLen     = 28 // its low three bytes
	segmentBlocksLen = 28
	segmentOffsetLen = 32
	segmentSource    = 4
	segmentTarget    = 6
)

// LIST ID USAGE.
const (
	usageHold    = 0
	usageDiscard = 2
	usageNone    = 3
)

// Service actions of THIRD-PARTY COPY OUT.
const (
	SACopyLID1      = 0x00
	SACopyLID4      = 0x01
	SAPopulateToken = 0x10
	SAWriteToken    = 0x11
	SACopyAbort     = 0x1C
)

// ExtendedCopy serves EXTENDED COPY(LID1) and (LID4).
func ExtendedCopy(t *server.Task) {
	const longest = copyHeader4 + maxDescriptorBytes + cscdLen + segmentOffsetLen
	// A list that is too long is still read as far as its header needs.
	b, ok := t.Parameters(int(binary.BigEndian.Uint32(t.CDB[10:])), longest, copyHeader)
	if !ok {
		return
	}
	l, s := parseCopyList(t.ITL(), b, t.CDB[1]&0x1F)
	if s.Code != sense.NoSense {
		t.Fault(s)
		return
	}
	m := managerOf(t)
	wants := slices.ContainsFunc(l.cscds, func(c cscd) bool { return c.want != nil })
	if !wants || !m.asksPeers(t.Nexus()) {
		l.start(t)
		return
	}
	pause := t.Pause()
	m.findUnits(t.Nexus(), l, func() {
		if pause.Over(t) {
			l.dismiss()
			return
		}
		for i := range l.cscds {
			if c := &l.cscds[i]; c.far != nil && c.want.length != 0 && c.want.length != block.SectorSize<<c.far.shift {
				l.dismiss()
				t.Fault(sense.InList(sense.InvalidFieldInList, c.offset+cscdBlockLen+1))
				return
			}
		}
		l.start(t)
	})
}

// start begins the operation.
func (l *copyList) start(t *server.Task) {
	if !operate(t, &copying{list: l}, l.id, l.usage != usageNone, l.usage == usageDiscard, l.immed, -l.idAt) {
		l.dismiss()
	}
}

func (l *copyList) dismiss() {
	for _, g := range l.guests() {
		g.dismiss()
	}
}

// cscd is a copy source or copy destination, resolved inside the LUN map of the
// nexus. why tells what is wrong with it; it matters once a segment uses it.
type cscd struct {
	x      *server.ITL // nil: the target does not show it
	want   *wanted     // then: what other groups may have,
	far    *guest      // and one of them has
	why    sense.Code
	offset int // in the parameter list
}

// shift is log2 of sectors per logical block.
func (d *cscd) shift() uint8 {
	if d.far != nil {
		return d.far.shift
	}
	return d.x.Unit().Shift()
}

func (d *cscd) volume() string {
	if d.far != nil {
		return d.far.volume
	}
	return d.x.Unit().Volume()
}

// first returns the sector of an LBA. One whose sectors would overflow is out of range: it stays so.
func (d *cscd) first(lba uint64) uint64 {
	if s := d.shift(); d.far != nil && lba > 1<<60>>s || d.far == nil && lba > d.x.Unit().Blocks() {
		return 1 << 60
	} else {
		return lba << s
	}
}

// segment is a segment descriptor.
type segment struct {
	raw      []byte
	src, dst int
}

// copyList is a parsed parameter list.
type copyList struct {
	id       uint32
	idAt     int // where it stands
	usage    byte
	priority byte // 0 is the highest
	immed    bool
	cscds    []cscd
	self     cscd // the unit that got the command: CSCD descriptor ID FFFFh
	segments []segment
}

// cscdSelf is the CSCD descriptor ID of the unit that got the command.
const cscdSelf = 0xFFFF

// lengths are those of the parts of a parameter list, and where they stand.
type lengths struct {
	head                    int
	cscds, segments, inline uint32
	cscdsAt, segsAt, inAt   int
}

// header parses the fixed part of a list. sa says which.
func (l *copyList) header(b []byte, sa byte) (lengths, sense.Data) {
	be := binary.BigEndian
	l.usage, l.priority = b[copyUsage]>>3&3, b[copyUsage]&7
	if sa == SACopyLID1 {
		l.id, l.idAt = uint32(b[copyListID]), copyListID
		return lengths{copyHeader, uint32(be.Uint16(b[copyCSCDBytes:])), be.Uint32(b[copySegBytes:]), be.Uint32(b[copyInlineBytes:]),
			copyCSCDBytes, copySegBytes, copyInlineBytes}, sense.Data{}
	}
	if len(b) < copyHeader4 {
		return lengths{}, sense.Data{Code: sense.ParameterListLength}
	}
	l.id, l.idAt = be.Uint32(b[copyListID4:]), copyListID4
	l.immed = b[copyFlags4]&copyImmed4 != 0
	switch {
	case b[copyFormat4] != 1:
		return lengths{}, sense.InList(sense.InvalidFieldInList, copyFormat4)
	case be.Uint16(b[copyHeadBytes4:]) != cscdLen:
		return lengths{}, sense.InList(sense.InvalidFieldInList, copyHeadBytes4)
	case b[copyHeadType4] != headCSCDType:
		return lengths{}, sense.InList(sense.InvalidFieldInList, copyHeadType4)
	}
	return lengths{copyHeader4, uint32(be.Uint16(b[copyCSCDBytes4:])), uint32(be.Uint16(b[copySegBytes4:])), uint32(be.Uint16(b[copyInlineBytes4:])),
		copyCSCDBytes4, copySegBytes4, copyInlineBytes4}, sense.Data{}
}

// parseCopyList parses b, which came with service action sa on x. Only what makes
// the whole list unusable is an error here; the rest is found when the segment
// runs.
func parseCopyList(x *server.ITL, b []byte, sa byte) (*copyList, sense.Data) {
	be := binary.BigEndian
	if len(b) < copyHeader {
		return nil, sense.Data{Code: sense.ParameterListLength}
	}
	l := &copyList{self: cscd{x: x}}
	p, s := l.header(b, sa)
	if s.Code != sense.NoSense {
		return nil, s
	}
	cscdBytes, segBytes := int(p.cscds), p.segments
	switch {
	case l.usage == 1:
		return nil, sense.InList(sense.InvalidFieldInList, copyUsage)
	case l.usage == usageNone && l.id != 0:
		return nil, sense.InList(sense.InvalidFieldInList, l.idAt)
	case uint64(cscdBytes)+uint64(segBytes) > maxDescriptorBytes:
		return nil, sense.InList(sense.ParameterListLength, p.cscdsAt)
	case p.inline != 0:
		return nil, sense.InList(sense.InlineDataExceeded, p.inAt)
	case cscdBytes%cscdLen != 0:
		return nil, sense.InList(sense.ParameterListLength, p.cscdsAt)
	case cscdBytes/cscdLen > maxCSCDs:
		return nil, sense.InList(sense.TooManyCSCDs, p.cscdsAt)
	case p.head+cscdBytes+int(segBytes) > len(b):
		return nil, sense.Data{Code: sense.ParameterListLength}
	}
	for at := p.head; at < p.head+cscdBytes; at += cscdLen {
		c, s := parseCSCD(x.Nexus(), b[at:at+cscdLen], at)
		if s.Code != sense.NoSense {
			return nil, s
		}
		l.cscds = append(l.cscds, c)
	}
	first := p.head + cscdBytes
	for at := first; at < first+int(segBytes); {
		rest := b[at : first+int(segBytes)]
		if len(rest) < 8 {
			return nil, sense.Data{Code: sense.ParameterListLength}
		}
		if len(l.segments) == maxSegments {
			return nil, sense.InList(sense.TooManySegments, p.segsAt)
		}
		size := segmentBlocksLen
		switch rest[0] {
		case segmentBlocks:
		case segmentOffset:
			size = segmentOffsetLen
		default:
			return nil, sense.InList(sense.UnsupportedSegment, at)
		}
		if int(be.Uint16(rest[2:])) != size-4 {
			return nil, sense.InList(sense.InvalidFieldInList, at+2)
		}
		if len(rest) < size {
			return nil, sense.Data{Code: sense.ParameterListLength}
		}
		// The list outlives its buffer when the copy goes on in the background.
		l.segments = append(l.segments, segment{bytes.Clone(rest[:size]),
			int(be.Uint16(rest[segmentSource:])), int(be.Uint16(rest[segmentTarget:]))})
		at += size
	}
	return l, sense.Data{}
}

func parseCSCD(n *server.Nexus, b []byte, at int) (cscd, sense.Data) {
	if b[0] != cscdIdent {
		return cscd{}, sense.InList(sense.UnsupportedCSCD, at)
	}
	if b[cscdIDLen] > cscdIDMax {
		return cscd{}, sense.InList(sense.InvalidFieldInList, at+cscdIDLen)
	}
	c := cscd{offset: at}
	if b[cscdFlags]&cscdPDT != 0 {
		c.why = sense.CopyIncorrectType
		return c, sense.Data{}
	}
	c.why = sense.CopyNotReachable
	if b[cscdFlags]&cscdNUL != 0 {
		return c, sense.Data{}
	}
	c.x = named(n, b[cscdCodeSet]&0x0F, b[cscdKind]&0x3F, b[cscdID:cscdID+int(b[cscdIDLen])])
	size := uint64(binary.BigEndian.Uint32(b[cscdBlockLen:]) & 0xFFFFFF)
	if c.x == nil {
		c.want = &wanted{codeSet: b[cscdCodeSet] & 0x0F, kind: b[cscdKind] & 0x3F, id: bytes.Clone(b[cscdID : cscdID+int(b[cscdIDLen])]), length: size}
		return c, sense.Data{}
	}
	c.why = sense.NoSense
	if size != 0 && size != c.x.Unit().BlockSize() {
		return c, sense.InList(sense.InvalidFieldInList, at+cscdBlockLen+1)
	}
	return c, sense.Data{}
}

// named finds the unit of a designator among the LUNs that the nexus can see, and
// nowhere else: LUN masking holds for copies too. kind includes the association.
func named(n *server.Nexus, codeSet, kind byte, id []byte) *server.ITL {
	for _, x := range n.ITLs() {
		if x == nil {
			continue
		}
		for i := range x.Unit().Names() {
			d := &x.Unit().Names()[i]
			if d.CodeSet == codeSet && d.Type == kind && bytes.Equal(d.ID, id) {
				return x
			}
		}
	}
	return nil
}
