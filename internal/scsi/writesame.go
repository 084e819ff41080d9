// Handler of WRITE SAME. A block of zeros is one request without data, which the device can serve
// from its map alone; any other pattern goes to the device piece by piece, each submitted when
// the one before has ended.

package scsi

import "github.com/arraysim/arraysim/internal/block"

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

// patterned is the state of a WRITE SAME with a pattern that is not zero: it goes
// to the device in pieces, so that one command does not hold it for long.
type patterned struct {
	rest block.Range
	data [][]byte
	size uint64 // bytes, of the whole command
}

func (*patterned) release(*Task) {}

// doWriteSame serves WRITE SAME(10), (16) and (32). A block of zeros becomes a
// request without data, which a device can serve from its map alone.
func doWriteSame(t *Task) {
	st := &t.state
	u := st.u
	at := flagsOffset(t.CDB)
	bits := t.CDB[at]
	ndob := t.CDB[0] != 0x41 && bits&bitNDOB != 0
	if !t.unprotected() {
		return
	}
	switch {
	case bits&bitPBDATA != 0:
		t.fault(inCDB(at, 2))
		return
	case bits&bitLBDATA != 0:
		t.fault(inCDB(at, 1))
		return
	case bits&bitAnchor != 0 && bits&bitUnmap == 0:
		t.fault(inCDB(at, 4))
		return
	case bits&bitUnmap != 0 && !u.info.Thin:
		t.fault(inCDB(at, 3))
		return
	}
	lba, n := extent(t.CDB)
	if n == 0 && lba < u.blocks { // WSNZ=0: 0 means all to the end
		n = u.blocks - lba
	}
	if !t.inRange(lba, n) {
		return
	}
	if n > maxWriteSame {
		t.fault(inCDB(lengthOffset(t.CDB), 7))
		return
	}
	r := &st.req
	r.Op, r.Origin, r.Flags, r.Data = block.OpWriteSame, block.OriginWriteSame, 0, nil
	r.Range = block.Range{Start: lba << u.shift, Count: n << u.shift}
	var pattern [][]byte
	if !ndob {
		size := u.blockSize()
		t.OutTotal = int(size)
		if uint64(block.VecLen(t.DataOut)) != size {
			// It is not known which block is meant to be repeated.
			t.check(wrongOperand)
			return
		}
		pattern = t.DataOut
		if zero(pattern) {
			pattern = nil
		}
	}
	t.describe(opWriteSame, u, r.Range.Bytes())
	if pattern == nil {
		// Zeros are what LBPRZ makes of an unmapped block, so UNMAP may be obeyed.
		if bits&bitUnmap != 0 {
			r.Flags |= block.Deallocate
		}
		if bits&bitAnchor != 0 {
			r.Flags |= block.Anchor
		}
		t.submit((*Task).good)
		return
	}
	p := &patterned{rest: r.Range, data: pattern, size: r.Range.Bytes()}
	st.continuation = p
	p.next(t)
}

func (p *patterned) next(t *Task) {
	if p.rest.Count == 0 {
		t.good()
		return
	}
	r := &t.state.req
	r.Data = p.data
	r.Range = block.Range{Start: p.rest.Start, Count: min(p.rest.Count, maxPatternSectors)}
	p.rest.Start += r.Range.Count
	p.rest.Count -= r.Range.Count
	t.submit(func(t *Task) { p.next(t) })
}
