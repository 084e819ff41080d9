package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
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
	t.fault(lbaOutOfRange.withInfo(max(lba, u.blocks)))
	return false
}

// flagsOffset is the byte with the flags of a block command.
func flagsOffset(cdb []byte) int {
	if cdb[0] == opVariable {
		return 10
	}
	return 1
}

// unprotected refuses RDPROTECT, WRPROTECT and VRPROTECT: the units are not
// formatted with protection information.
func (t *Task) unprotected() bool {
	if at := flagsOffset(t.CDB); cdbLength(t.CDB[0]) > 6 && t.CDB[at]&maskProtect != 0 {
		t.fault(inCDB(at, 7))
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
		t.fault(inCDB(lengthOffset(t.CDB), 7))
		return 0, false
	}
	r := &st.req
	r.Op, r.Origin, r.Flags = op, block.OriginHost, 0
	if cdbLength(t.CDB[0]) > 6 && t.CDB[1]&bitFUA != 0 && st.row.usage[1]&bitFUA != 0 {
		r.Flags = block.FUA
	}
	r.Range = block.Range{Start: lba << u.shift, Count: n << u.shift}
	return bytes, true
}

// doRead serves READ(6), (10), (12), (16).
func doRead(t *Task) {
	bytes, ok := t.transfer(block.OpRead)
	if !ok {
		return
	}
	st := &t.state
	t.InTotal = int(bytes)
	want := min(int(bytes), max(t.MaxIn, 0))
	if want == 0 {
		t.good()
		return
	}
	// A buffer that is too small still receives whole blocks from the device.
	bs := int(st.u.blockSize())
	whole := (want + bs - 1) / bs * bs
	buf := t.Bufs.Get(whole)[:whole]
	st.req.Range.Count = uint64(whole) >> block.SectorShift
	st.vec[0] = buf
	st.req.Data = st.vec[:]
	st.in[0] = buf[:want]
	t.submit(readDone)
}

func readDone(t *Task) {
	t.DataIn = t.state.in[:]
	t.good()
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
			t.check(wrongOperand)
			return false
		}
		r.Data = clip(t.DataOut, 0, use)
		r.Range.Count = use >> block.SectorShift
		bytes = use
	}
	if bytes == 0 {
		t.good()
		return false
	}
	return true
}

// clip returns the n bytes of v from off on, without copying them.
func clip(v [][]byte, off, n uint64) [][]byte {
	var out [][]byte
	for _, b := range v {
		if off >= uint64(len(b)) {
			off -= uint64(len(b))
			continue
		}
		b = b[off:]
		off = 0
		if uint64(len(b)) > n {
			b = b[:n]
		}
		if n -= uint64(len(b)); len(b) > 0 {
			out = append(out, b)
		}
		if n == 0 {
			break
		}
	}
	return out
}

// doWrite serves WRITE(6), (10), (12), (16).
func doWrite(t *Task) {
	if bytes, ok := t.transfer(block.OpWrite); ok && t.dataOut(bytes) {
		t.submit((*Task).good)
	}
}

// doOrWrite serves ORWRITE(16).
func doOrWrite(t *Task) {
	if bytes, ok := t.transfer(block.OpOrWrite); ok && t.dataOut(bytes) {
		t.submit((*Task).good)
	}
}

// doCompareAndWrite serves COMPARE AND WRITE (SBC-4 5.3): Data-Out is what to
// compare with, then what to write.
func doCompareAndWrite(t *Task) {
	const lengthAt = 13
	st := &t.state
	u := st.u
	lba, n := binary.BigEndian.Uint64(t.CDB[2:]), uint64(t.CDB[lengthAt])
	if !t.unprotected() {
		return
	}
	if n > maxCompareBlocks {
		t.fault(inCDB(lengthAt, 7))
		return
	}
	if !t.inRange(lba, n) {
		return
	}
	bytes := n * u.blockSize()
	t.OutTotal = int(2 * bytes)
	if uint64(block.VecLen(t.DataOut)) != 2*bytes {
		// Where the operands begin and end would be a guess: nothing is written.
		t.fault(inCDB(lengthAt, 7))
		return
	}
	if n == 0 {
		t.good()
		return
	}
	r := &st.req
	r.Op, r.Origin, r.Flags = block.OpCompareWrite, block.OriginCAW, 0
	if t.CDB[1]&bitFUA != 0 {
		r.Flags = block.FUA
	}
	r.Range = block.Range{Start: lba << u.shift, Count: n << u.shift}
	r.Compare, r.Data = clip(t.DataOut, 0, bytes), clip(t.DataOut, bytes, bytes)
	t.submit((*Task).good)
}

// bitImmed is IMMED of PRE-FETCH, SYNCHRONIZE CACHE (byte 1).
const bitImmed = 0x02

// doPreFetch serves PRE-FETCH: the range is checked, the cache is left alone. GOOD
// and not CONDITION MET says that not all blocks are in it (SBC-4 5.8).
func doPreFetch(t *Task) {
	if lba, n := extent(t.CDB); t.inRange(lba, n) {
		t.good()
	}
}

// doSynchronize serves SYNCHRONIZE CACHE (SBC-4 5.34). The whole cache of the
// unit is flushed, whatever the range.
func doSynchronize(t *Task) {
	st := &t.state
	lba, n := extent(t.CDB)
	if !t.inRange(lba, n) {
		return
	}
	if t.CDB[1]&bitImmed != 0 {
		// The flush outlives the task, so it has a request of its own.
		st.u.dev.Submit([]*block.Request{{Op: block.OpFlush, Host: st.n.host.id, Done: func(*block.Request) {}}})
		t.good()
		return
	}
	r := &st.req
	r.Op, r.Origin, r.Flags, r.Range = block.OpFlush, block.OriginHost, 0, block.Range{}
	t.submit((*Task).good)
}
