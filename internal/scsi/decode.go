// Stage 4 of a command, decode, as far as commands have it in common: the extent of a block
// command, its protection and its length, Data-Out and parameter lists. A helper that returns
// false has ended the task. Whatever a peer sends, nothing here or in a handler reads behind it.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// Limits that the Block Limits VPD page reports.
const (
	maxTransferBytes  = 32 << 20
	optTransferBytes  = 1 << 20
	maxCompareBlocks  = 128
	maxUnmapRanges    = 1024
	maxUnmapBlocks    = 1<<32 - 1
	maxWriteSame      = 1<<32 - 1
	maxPatternSectors = 16 << 20 >> block.SectorShift // of WRITE SAME with a pattern, at a time
)

// Bits of byte 1 of READ, WRITE and their kind (SBC-4 5.11, 5.40).
const (
	bitFUA      = 0x08
	maskProtect = 0xE0
)

// extent reads the LOGICAL BLOCK ADDRESS and the transfer length of the block
// commands of all lengths.
func extent(cdb []byte) (lba, n uint64) {
	be := binary.BigEndian
	switch cdbLength(cdb[0]) {
	case 6:
		lba, n = uint64(be.Uint32(cdb)&0x1FFFFF), uint64(cdb[4])
		if n == 0 { // SBC-3 5.8: 0 means 256
			n = 256
		}
	case 10:
		lba, n = uint64(be.Uint32(cdb[2:])), uint64(be.Uint16(cdb[7:]))
	case 12:
		lba, n = uint64(be.Uint32(cdb[2:])), uint64(be.Uint32(cdb[6:]))
	case 16:
		lba, n = be.Uint64(cdb[2:]), uint64(be.Uint32(cdb[10:]))
	case 32:
		lba, n = be.Uint64(cdb[12:]), uint64(be.Uint32(cdb[28:]))
	}
	return lba, n
}

// lengthOffset is where extent's length stands, for field pointers.
func lengthOffset(cdb []byte) int {
	switch cdbLength(cdb[0]) {
	case 6:
		return 4
	case 10:
		return 7
	case 12:
		return 6
	case 32:
		return 28
	}
	return 10
}

// flagsOffset is the byte with the flags of a block command.
func flagsOffset(cdb []byte) int {
	if cdb[0] == opVariable {
		return 10
	}
	return 1
}

// inRange checks [lba, lba+n) against the capacity; otherwise the task ends with
// LOGICAL BLOCK ADDRESS OUT OF RANGE and the first block that is not there.
func (t *Task) inRange(lba, n uint64) bool {
	u := t.state.u
	if lba <= u.blocks && n <= u.blocks-lba {
		if n > 0 || lba < u.blocks {
			return true
		}
		// SBC-4 4.7: an LBA behind the last is wrong even with no blocks.
	}
	t.fault(sense.LBAOutOfRange.WithInfo(max(lba, u.blocks)))
	return false
}

// unprotected refuses RDPROTECT, WRPROTECT and VRPROTECT: the units are not
// formatted with protection information.
func (t *Task) unprotected() bool {
	if at := flagsOffset(t.CDB); len(t.state.row.usage) > 6 && t.CDB[at]&maskProtect != 0 {
		t.fault(sense.InCDB(at, 7))
		return false
	}
	return true
}

// transfer is what READ and WRITE commands have in common: it checks the CDB and
// prepares the request. It returns the bytes that the CDB describes.
func (t *Task) transfer(op block.Op) (bytes uint64, ok bool) {
	st := &t.state
	u := st.u
	lba, n := extent(t.CDB)
	if !t.unprotected() || !t.inRange(lba, n) {
		return 0, false
	}
	bytes = n * u.blockSize()
	if bytes > maxTransferBytes {
		t.fault(sense.InCDB(lengthOffset(t.CDB), 7))
		return 0, false
	}
	r := &st.req
	r.Op, r.Origin, r.Flags = op, block.OriginHost, 0
	if len(st.row.usage) > 6 && t.CDB[1]&bitFUA != 0 && st.row.usage[1]&bitFUA != 0 {
		r.Flags = block.FUA
	}
	r.Range = block.Range{Start: lba << u.shift, Count: n << u.shift}
	return bytes, true
}

// dataOut prepares the request's Data: the blocks that came, at most what the CDB
// describes. It returns false when there is nothing to write, and has then ended
// the task. Less than the CDB describes is taken when whole blocks came (with a
// residual); what ends inside a block is refused, because half a block is none.
func (t *Task) dataOut(bytes uint64) bool {
	t.OutTotal = int(bytes)
	r := &t.state.req
	have := uint64(block.VecLen(t.DataOut))
	r.Data = t.DataOut
	if have != bytes {
		use := min(have, bytes)
		if use&(t.state.u.blockSize()-1) != 0 {
			t.check(sense.WrongOperand)
			return false
		}
		r.Data = sgl.Clip(t.DataOut, 0, use)
		r.Range.Count = use >> block.SectorShift
		bytes = use
	}
	if bytes == 0 {
		t.good()
		return false
	}
	return true
}

// list gathers a parameter list of n bytes from Data-Out; ok is false, and the
// task has ended, when less came.
func (t *Task) list(n int) (b []byte, ok bool) {
	t.OutTotal = n
	if n > 0 && block.VecLen(t.DataOut) < n {
		t.check(sense.ParameterListLength)
		return nil, false
	}
	if len(t.DataOut) > 0 && len(t.DataOut[0]) >= n {
		return t.DataOut[0][:n], true
	}
	b = make([]byte, 0, n)
	for _, v := range t.DataOut {
		b = append(b, v[:min(len(v), n-len(b))]...)
	}
	return b, true
}

// parameters begins a command whose parameter list has n bytes: it gathers the list, at most longest
// bytes of it, of which the first head must have come. ok is false when the task has ended: well
// when there is no list, else with PARAMETER LIST LENGTH ERROR.
func (t *Task) parameters(n, longest, head int) (b []byte, ok bool) {
	if n == 0 {
		t.good()
		return nil, false
	}
	if b, ok = t.list(min(n, longest)); !ok {
		return nil, false
	}
	t.OutTotal = n
	if len(b) < head {
		t.check(sense.ParameterListLength)
		return nil, false
	}
	return b, true
}
