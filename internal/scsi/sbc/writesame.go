// Handler of WRITE SAME. A block of zeros is one request without data, which the device can serve
// from its map alone; any other pattern goes to the device piece by piece, each submitted when
// the one before has ended.

package sbc

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// Bits of WRITE SAME(10) and (16) byte 1, and (32) byte 10 (SBC-4 5.48 to 5.50).
const (
	bitAnchor = 0x10
	bitUnmap  = 0x08
	bitNDOB   = 0x01 // not in WRITE SAME(10)
	// PBDATA and LBDATA of SBC-2 want the address of each block in its first bytes. They are
	// obsolete, and not done; a unit that ignored them would write something else than was asked
	// for.
	bitPBDATA = 0x04
	bitLBDATA = 0x02
)

// SAWriteSame32 is the service action of WRITE SAME(32).
const SAWriteSame32 = 0x0D

// WriteSame serves WRITE SAME(10), (16) and (32).
func WriteSame(t *server.Task) {
	bits, ok := writeSameBits(t)
	if !ok || !writeSameRange(t) {
		return
	}
	pattern, ok := writeSameBlock(t, bits)
	if !ok {
		return
	}
	r := t.Request()
	t.Unit().Describe(counters.WriteSame, r.Range.Bytes())
	if pattern != nil {
		t.Hold(&patterned{rest: r.Range, data: pattern, size: r.Range.Bytes()})
		nextPiece(t)
		return
	}
	// Zeros are what LBPRZ makes of an unmapped block, so UNMAP may be obeyed.
	if bits&bitUnmap != 0 {
		r.Flags |= block.Deallocate
	}
	if bits&bitAnchor != 0 {
		r.Flags |= block.Anchor
	}
	t.Submit((*server.Task).Good)
}

// writeSameBits returns the flags of the CDB. NDOB is gone from those of a CDB that has none.
func writeSameBits(t *server.Task) (bits byte, ok bool) {
	at := cdb.FlagsOffset(t.CDB)
	bits = t.CDB[at]
	if t.CDB[0] == 0x41 {
		bits &^= bitNDOB
	}
	if !unprotected(t) {
		return 0, false
	}
	switch {
	case bits&bitPBDATA != 0:
		t.Fault(sense.InCDB(at, 2))
	case bits&bitLBDATA != 0:
		t.Fault(sense.InCDB(at, 1))
	case bits&bitAnchor != 0 && bits&bitUnmap == 0:
		t.Fault(sense.InCDB(at, 4))
	case bits&bitUnmap != 0 && !t.Unit().Info().Thin:
		t.Fault(sense.InCDB(at, 3))
	default:
		return bits, true
	}
	return 0, false
}

// writeSameRange prepares the request for the whole range.
func writeSameRange(t *server.Task) bool {
	u := t.Unit()
	lba, n := cdb.Extent(t.CDB)
	if n == 0 && lba < u.Blocks() { // WSNZ=0: 0 means all to the end
		n = u.Blocks() - lba
	}
	if !inRange(t, lba, n) {
		return false
	}
	if n > maxWriteSame {
		t.Fault(sense.InCDB(cdb.LengthOffset(t.CDB), 7))
		return false
	}
	r := t.Request()
	r.Op, r.Origin, r.Flags, r.Data = block.OpWriteSame, block.OriginWriteSame, 0, nil
	r.Range = block.Range{Start: lba << u.Shift(), Count: n << u.Shift()}
	return true
}

// writeSameBlock returns the block that is to be repeated, nil for one of zeros.
func writeSameBlock(t *server.Task, bits byte) (pattern [][]byte, ok bool) {
	if bits&bitNDOB != 0 {
		return nil, true
	}
	size := t.Unit().BlockSize()
	t.OutTotal = int(size)
	if uint64(block.VecLen(t.DataOut)) != size {
		// It is not known which block is meant to be repeated.
		t.Check(sense.WrongOperand)
		return nil, false
	}
	if sgl.IsZero(t.DataOut) {
		return nil, true
	}
	return t.DataOut, true
}

// patterned is the continuation of a WRITE SAME with a pattern that is not zero.
type patterned struct {
	rest block.Range // not yet submitted
	data [][]byte
	size uint64 // bytes, of the whole command
}

func (*patterned) Release(*server.Task) {}

// Progress implements the interface of that name.
func (p *patterned) Progress(piece *block.Request) (done, total uint64) {
	return p.size - p.rest.Bytes() - piece.Range.Bytes(), p.size
}

// nextPiece submits the next piece of a pattern, or ends the task.
func nextPiece(t *server.Task) {
	p := t.Held().(*patterned)
	if p.rest.Count == 0 {
		t.Good()
		return
	}
	r := t.Request()
	r.Data = p.data
	r.Range = block.Range{Start: p.rest.Start, Count: min(p.rest.Count, maxPatternSectors)}
	p.rest.Start += r.Range.Count
	p.rest.Count -= r.Range.Count
	t.Submit(nextPiece)
}
