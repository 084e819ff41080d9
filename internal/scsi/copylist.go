package scsi

import (
	"bytes"
	"encoding/binary"
)

// Limits of EXTENDED COPY, as RECEIVE COPY OPERATING PARAMETERS and the
// Third-party Copy VPD page report them.
const (
	maxCSCDs           = 64
	maxSegments        = 256
	maxSegment         = 256 << 20 // bytes
	maxDescriptorBytes = maxCSCDs*cscdLen + maxSegments*segmentOffsetLen
	maxCopies          = 128 // at the same time
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

// cscd is a copy source or copy destination, resolved inside the LUN map of the
// nexus. why tells what is wrong with it; it matters once a segment uses it.
type cscd struct {
	x      *itl
	why    code
	offset int // in the parameter list
}

// segment is a segment descriptor.
type segment struct {
	raw      []byte
	src, dst int
}

// copyList is a parsed parameter list.
type copyList struct {
	id, usage byte
	cscds     []cscd
	segments  []segment
}

// parseCopyList parses b for a nexus. Only what makes the whole list unusable is
// an error here; the rest is found when the segment runs.
func parseCopyList(n *Nexus, b []byte) (*copyList, sense) {
	be := binary.BigEndian
	if len(b) < copyHeader {
		return nil, sense{code: parameterListLength}
	}
	l := &copyList{id: b[copyListID], usage: b[copyUsage] >> 3 & 3}
	cscdBytes := int(be.Uint16(b[copyCSCDBytes:]))
	segBytes := be.Uint32(b[copySegBytes:])
	switch {
	case l.usage == 1:
		return nil, inList(invalidFieldInList, copyUsage)
	case l.usage == usageNone && l.id != 0:
		return nil, inList(invalidFieldInList, copyListID)
	case uint64(cscdBytes)+uint64(segBytes) > maxDescriptorBytes:
		return nil, inList(parameterListLength, copyCSCDBytes)
	case be.Uint32(b[copyInlineBytes:]) != 0:
		return nil, inList(inlineDataExceeded, copyInlineBytes)
	case cscdBytes%cscdLen != 0:
		return nil, inList(parameterListLength, copyCSCDBytes)
	case cscdBytes/cscdLen > maxCSCDs:
		return nil, inList(tooManyCSCDs, copyCSCDBytes)
	case copyHeader+cscdBytes+int(segBytes) > len(b):
		return nil, sense{code: parameterListLength}
	}
	for at := copyHeader; at < copyHeader+cscdBytes; at += cscdLen {
		c, s := parseCSCD(n, b[at:at+cscdLen], at)
		if s.code != noSense {
			return nil, s
		}
		l.cscds = append(l.cscds, c)
	}
	first := copyHeader + cscdBytes
	for at := first; at < first+int(segBytes); {
		rest := b[at : first+int(segBytes)]
		if len(rest) < 8 {
			return nil, sense{code: parameterListLength}
		}
		if len(l.segments) == maxSegments {
			return nil, inList(tooManySegments, copySegBytes)
		}
		size := segmentBlocksLen
		switch rest[0] {
		case segmentBlocks:
		case segmentOffset:
			size = segmentOffsetLen
		default:
			return nil, inList(unsupportedSegment, at)
		}
		if int(be.Uint16(rest[2:])) != size-4 {
			return nil, inList(invalidFieldInList, at+2)
		}
		if len(rest) < size {
			return nil, sense{code: parameterListLength}
		}
		l.segments = append(l.segments, segment{rest[:size],
			int(be.Uint16(rest[segmentSource:])), int(be.Uint16(rest[segmentTarget:]))})
		at += size
	}
	return l, sense{}
}

func parseCSCD(n *Nexus, b []byte, at int) (cscd, sense) {
	if b[0] != cscdIdent {
		return cscd{}, inList(unsupportedCSCD, at)
	}
	if b[cscdIDLen] > cscdIDMax {
		return cscd{}, inList(invalidFieldInList, at+cscdIDLen)
	}
	c := cscd{offset: at}
	if b[cscdFlags]&cscdPDT != 0 {
		c.why = copyIncorrectType
		return c, sense{}
	}
	c.why = copyNotReachable
	if b[cscdFlags]&cscdNUL != 0 {
		return c, sense{}
	}
	c.x = n.named(b[cscdCodeSet]&0x0F, b[cscdKind]&0x3F, b[cscdID:cscdID+int(b[cscdIDLen])])
	if c.x == nil {
		return c, sense{}
	}
	c.why = noSense
	if size := uint64(binary.BigEndian.Uint32(b[cscdBlockLen:]) & 0xFFFFFF); size != 0 && size != c.x.u.blockSize() {
		return c, inList(invalidFieldInList, at+cscdBlockLen+1)
	}
	return c, sense{}
}

// named finds the unit of a designator among the LUNs that the nexus can see, and
// nowhere else: LUN masking holds for copies too. kind includes the association.
func (n *Nexus) named(codeSet, kind byte, id []byte) *itl {
	for _, x := range n.luns {
		if x == nil {
			continue
		}
		for i := range x.u.names {
			d := &x.u.names[i]
			if d.codeSet == codeSet && d.kind == kind && bytes.Equal(d.id, id) {
				return x
			}
		}
	}
	return nil
}
