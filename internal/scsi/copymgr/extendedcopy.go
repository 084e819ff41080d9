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
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Limits of copies beside those that hosts are told (package copylist).
const (
	maxCopies       = 256 // at the same time
	maxCopiesOfHost = 64  // of them, of one initiator, by however many sessions and LUNs, and no more than it leaves to others
	maxHeld         = 32  // results kept for an I_T_L nexus
)

// Fields of a CSCD descriptor.
const (
	cscdFlags    = 1 // LU ID TYPE (ignored since SPC-4), NUL, PERIPHERAL DEVICE TYPE
	cscdNUL      = 0x20
	cscdPDT      = 0x1F
	cscdCodeSet  = 4
	cscdKind     = 5
	cscdIDLen    = 7
	cscdID       = 8
	cscdIDMax    = 20
	cscdBlockLen = 28 // its low three bytes
)

// Service actions of THIRD-PARTY COPY OUT.
const (
	SACopyLID1      = copylist.SACopyLID1
	SACopyLID4      = 0x01
	SAPopulateToken = 0x10
	SAWriteToken    = 0x11
	SACopyAbort     = 0x1C
)

// ExtendedCopy serves EXTENDED COPY(LID1) and (LID4).
func ExtendedCopy(t *server.Task) {
	const longest = copylist.Header4 + copylist.MaxDescriptorBytes + copylist.CSCDLen + copylist.SegmentOffsetLen
	// A list that is too long is still read as far as its header needs.
	b, ok := paramlist.Begin(t, int(binary.BigEndian.Uint32(t.CDB[10:])), longest, copylist.Header)
	if !ok {
		return
	}
	l := &copyList{self: cscd{x: t.ITL()}}
	s := l.Parse(b, t.CDB[1]&0x1F, func(b []byte, at int) sense.Data {
		c, s := parseCSCD(t.Nexus(), b, at)
		l.cscds = append(l.cscds, c)
		return s
	})
	if s.Code != sense.NoSense {
		t.Fault(s)
		return
	}
	m := managerOf(t)
	wants := slices.ContainsFunc(l.cscds, func(c cscd) bool { return c.want != nil })
	if !wants || !m.asksPeers() {
		l.start(t)
		return
	}
	host := t.Nexus().HostID()
	if !m.search(host) {
		t.End(sam.StatusBusy)
		return
	}
	pause := t.Pause()
	m.findUnits(t.Nexus(), l, func() {
		m.searched(host)
		if pause.Over(t) {
			l.dismiss()
			return
		}
		for i := range l.cscds {
			if c := &l.cscds[i]; c.far != nil && c.want.Length != 0 && c.want.Length != block.SectorSize<<c.far.far().shift {
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
	if !operate(t, &copying{list: l}, l.ID, l.Usage != copylist.UsageNone, l.Usage == copylist.UsageDiscard, l.Immed, -l.IDAt) {
		l.dismiss()
	}
}

func (l *copyList) dismiss() {
	for _, g := range l.farUnits() {
		g.dismiss()
	}
}

// cscd is a copy source or copy destination, resolved inside the LUN map of the
// nexus. why tells what is wrong with it; it matters once a segment uses it.
type cscd struct {
	x      *server.ITL        // nil: the target does not show it
	want   *copysource.Wanted // then: what peers may have,
	far    farUnit            // and one of them has
	why    sense.Code
	offset int // in the parameter list
}

// copyList is a parameter list with its CSCDs.
type copyList struct {
	copylist.List
	cscds []cscd
	self  cscd // the unit that got the command: CSCD descriptor ID FFFFh
}

func parseCSCD(n *server.Nexus, b []byte, at int) (cscd, sense.Data) {
	if b[0] != copylist.CSCDIdent {
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
		c.want = &copysource.Wanted{CodeSet: b[cscdCodeSet] & 0x0F, Kind: b[cscdKind] & 0x3F, ID: bytes.Clone(b[cscdID : cscdID+int(b[cscdIDLen])]), Length: size}
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
