package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
)

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
		t.fault(inCDB(atomicBoundary, 7)) // MAXIMUM ATOMIC BOUNDARY SIZE is 0
		return
	}
	if n > u.atomicBlocks() {
		t.fault(inCDB(atomicLength, 7))
		return
	}
	bytes := n * u.blockSize()
	if uint64(block.VecLen(t.DataOut)) < bytes {
		t.OutTotal = int(bytes)
		t.fault(inCDB(atomicLength, 7)) // a part of it would not be atomic
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

// atomicBlocks is MAXIMUM ATOMIC TRANSFER LENGTH.
func (u *Unit) atomicBlocks() uint64 { return uint64(u.info.AtomicSectors) >> u.shift }
