// Package copylist is what hosts and the copy manager say to each other about copies: the parameter list of
// EXTENDED COPY, and the limits that RECEIVE COPY OPERATING PARAMETERS and the Third-party Copy VPD page
// report.
package copylist

import (
	"bytes"
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Limits of EXTENDED COPY, as RECEIVE COPY OPERATING PARAMETERS and the
// Third-party Copy VPD page report them.
const (
	MaxCSCDs           = 64
	MaxSegments        = 256
	MaxSegment         = 256 << 20 // bytes
	MaxDescriptorBytes = MaxCSCDs*CSCDLen + MaxSegments*SegmentOffsetLen
	MaxCopiesOfNexus   = 32 // started on one I_T_L nexus and not over
	Granularity        = 9  // log2 of bytes
)

// Descriptor type codes.
const (
	SegmentBlocks = 0x02 // block device to block device
	SegmentOffset = 0x0A // block device with offset to block device with offset
	CSCDIdent     = 0xE4 // identification descriptor CSCD
)

// DescriptorCodes are the supported descriptor type codes, ascending.
var DescriptorCodes = [...]byte{SegmentBlocks, SegmentOffset, CSCDIdent}

// Lengths and fields of parameter lists. That of EXTENDED COPY(LID1) (SPC-4 6.4.3):
//
//	| list id | usage | CSCD bytes (2) | 4 | segment bytes (4) | inline bytes (4) | CSCDs | segments |
const (
	Header          = 16
	copyListID      = 0
	copyUsage       = 1
	copyCSCDBytes   = 2
	copySegBytes    = 8
	copyInlineBytes = 12

	// Header4 and what follows are of EXTENDED COPY(LID4) (SPC-4 6.4.4):
	//
	//	| 1 | usage | header CSCD bytes (2) | 11 | flags | FFh | 3 | list id (4) | 18 |
	//	| CSCD bytes (2) | segment bytes (2) | inline bytes (2) | CSCDs | segments |
	Header4          = 48
	copyFormat4      = 0 // 01h
	copyHeadBytes4   = 2 // 0020h
	copyFlags4       = 15
	copyImmed4       = 0x01
	copyGSense4      = 0x02 // has no effect: it asks for sense data with GOOD
	copyHeadType4    = 16
	copyListID4      = 20
	copyCSCDBytes4   = 42
	copySegBytes4    = 44
	copyInlineBytes4 = 46
	headCSCDType     = 0xFF

	CSCDLen          = 32
	SegmentBlocksLen = 28
	SegmentOffsetLen = 32
	SegmentSource    = 4
	SegmentTarget    = 6
)

// LIST ID USAGE.
const (
	usageHold    = 0
	UsageDiscard = 2
	UsageNone    = 3
)

// SACopyLID1 is the service action of THIRD-PARTY COPY OUT whose list has the short header.
const SACopyLID1 = 0x00

// CSCDSelf is the CSCD descriptor ID of the unit that got the command.
const CSCDSelf = 0xFFFF

// Segment is a segment descriptor.
type Segment struct {
	Raw      []byte
	Src, Dst int // CSCD descriptor IDs
}

// List is a parsed parameter list. Its CSCDs are whoever's who parsed it.
type List struct {
	ID       uint32
	IDAt     int // where it stands
	Usage    byte
	Priority byte // 0 is the highest
	Immed    bool
	Segments []Segment
}

// lengths are those of the parts of a parameter list, and where they stand.
type lengths struct {
	head                    int
	cscds, segments, inline uint32
	cscdsAt, segsAt, inAt   int
}

// header parses the fixed part of a list. sa says which.
func (l *List) header(b []byte, sa byte) (lengths, sense.Data) {
	be := binary.BigEndian
	l.Usage, l.Priority = b[copyUsage]>>3&3, b[copyUsage]&7
	if sa == SACopyLID1 {
		l.ID, l.IDAt = uint32(b[copyListID]), copyListID
		return lengths{Header, uint32(be.Uint16(b[copyCSCDBytes:])), be.Uint32(b[copySegBytes:]), be.Uint32(b[copyInlineBytes:]),
			copyCSCDBytes, copySegBytes, copyInlineBytes}, sense.Data{}
	}
	if len(b) < Header4 {
		return lengths{}, sense.Data{Code: sense.ParameterListLength}
	}
	l.ID, l.IDAt = be.Uint32(b[copyListID4:]), copyListID4
	l.Immed = b[copyFlags4]&copyImmed4 != 0
	switch {
	case b[copyFormat4] != 1:
		return lengths{}, sense.InList(sense.InvalidFieldInList, copyFormat4)
	case be.Uint16(b[copyHeadBytes4:]) != CSCDLen:
		return lengths{}, sense.InList(sense.InvalidFieldInList, copyHeadBytes4)
	case b[copyHeadType4] != headCSCDType:
		return lengths{}, sense.InList(sense.InvalidFieldInList, copyHeadType4)
	case l.Immed && (l.Usage == UsageNone || b[copyFlags4]&copyGSense4 != 0):
		// SPC-4 6.4.2: nobody could ask how the copy has ended. It is no field of the CDB, but so it says.
		return lengths{}, sense.Data{Code: sense.InvalidFieldInCDB}
	}
	return lengths{Header4, uint32(be.Uint16(b[copyCSCDBytes4:])), uint32(be.Uint16(b[copySegBytes4:])), uint32(be.Uint16(b[copyInlineBytes4:])),
		copyCSCDBytes4, copySegBytes4, copyInlineBytes4}, sense.Data{}
}

// Parse parses b, which came with a service action, and has cscd take each CSCD descriptor with its offset. Only what
// makes the whole list unusable is an error here.
func (l *List) Parse(b []byte, sa byte, cscd func(b []byte, at int) sense.Data) sense.Data {
	be := binary.BigEndian
	if len(b) < Header {
		return sense.Data{Code: sense.ParameterListLength}
	}
	p, s := l.header(b, sa)
	if s.Code != sense.NoSense {
		return s
	}
	cscdBytes, segBytes := int(p.cscds), p.segments
	switch {
	case l.Usage == 1:
		return sense.InList(sense.InvalidFieldInList, copyUsage)
	case l.Usage == UsageNone && l.ID != 0:
		return sense.InList(sense.InvalidFieldInList, l.IDAt)
	case uint64(cscdBytes)+uint64(segBytes) > MaxDescriptorBytes:
		return sense.InList(sense.ParameterListLength, p.cscdsAt)
	case p.inline != 0:
		return sense.InList(sense.InlineDataExceeded, p.inAt)
	case cscdBytes%CSCDLen != 0:
		return sense.InList(sense.ParameterListLength, p.cscdsAt)
	case cscdBytes/CSCDLen > MaxCSCDs:
		return sense.InList(sense.TooManyCSCDs, p.cscdsAt)
	case p.head+cscdBytes+int(segBytes) > len(b):
		return sense.Data{Code: sense.ParameterListLength}
	}
	for at := p.head; at < p.head+cscdBytes; at += CSCDLen {
		if s := cscd(b[at:at+CSCDLen], at); s.Code != sense.NoSense {
			return s
		}
	}
	first := p.head + cscdBytes
	for at := first; at < first+int(segBytes); {
		rest := b[at : first+int(segBytes)]
		if len(rest) < 8 {
			return sense.Data{Code: sense.ParameterListLength}
		}
		if len(l.Segments) == MaxSegments {
			return sense.InList(sense.TooManySegments, p.segsAt)
		}
		size := SegmentBlocksLen
		switch rest[0] {
		case SegmentBlocks:
		case SegmentOffset:
			size = SegmentOffsetLen
		default:
			return sense.InList(sense.UnsupportedSegment, at)
		}
		if int(be.Uint16(rest[2:])) != size-4 {
			return sense.InList(sense.InvalidFieldInList, at+2)
		}
		if len(rest) < size {
			return sense.Data{Code: sense.ParameterListLength}
		}
		// The list outlives its buffer when the copy goes on in the background.
		l.Segments = append(l.Segments, Segment{bytes.Clone(rest[:size]),
			int(be.Uint16(rest[SegmentSource:])), int(be.Uint16(rest[SegmentTarget:]))})
		at += size
	}
	return sense.Data{}
}
