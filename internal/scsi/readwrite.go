// Handlers of the commands that move data between host and medium: READ, WRITE, ORWRITE, WRITE
// ATOMIC, COMPARE AND WRITE; and of PRE-FETCH and SYNCHRONIZE CACHE, which move none. Each
// decodes and submits one request. READ and WRITE allocate nothing.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

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
		t.fault(sense.InCDB(lengthAt, 7))
		return
	}
	if !t.inRange(lba, n) {
		return
	}
	bytes := n * u.blockSize()
	t.OutTotal = int(2 * bytes)
	if uint64(block.VecLen(t.DataOut)) != 2*bytes {
		// Where the operands begin and end would be a guess: nothing is written.
		t.fault(sense.InCDB(lengthAt, 7))
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
	r.Compare, r.Data = sgl.Split(t.DataOut, bytes)
	t.submit((*Task).good)
}

// Fields of WRITE ATOMIC(16) (SBC-4 5.41).
const (
	atomicBoundary = 10
	atomicLength   = 12
)

// doWriteAtomic serves WRITE ATOMIC(16): after a crash all of it is there, or none.
func doWriteAtomic(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	lba, n := be.Uint64(t.CDB[2:]), uint64(be.Uint16(t.CDB[atomicLength:]))
	boundary := uint64(be.Uint16(t.CDB[atomicBoundary:]))
	if !t.unprotected() || !t.inRange(lba, n) {
		return
	}
	if boundary != 0 {
		t.fault(sense.InCDB(atomicBoundary, 7)) // MAXIMUM ATOMIC BOUNDARY SIZE is 0
		return
	}
	if n > u.atomicBlocks() {
		t.fault(sense.InCDB(atomicLength, 7))
		return
	}
	bytes := n * u.blockSize()
	if uint64(block.VecLen(t.DataOut)) < bytes {
		t.OutTotal = int(bytes)
		t.fault(sense.InCDB(atomicLength, 7)) // a part of it would not be atomic
		return
	}
	r := &t.state.req
	r.Op, r.Origin, r.Flags = block.OpWrite, block.OriginHost, block.Atomic
	if t.CDB[1]&bitFUA != 0 {
		r.Flags |= block.FUA
	}
	r.Range = block.Range{Start: lba << u.shift, Count: n << u.shift}
	if t.dataOut(bytes) {
		t.submit((*Task).good)
	}
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
