// Handlers of the commands that move data between host and medium: READ, WRITE, WRITE ATOMIC,
// COMPARE AND WRITE; and of PRE-FETCH and SYNCHRONIZE CACHE, which move none. Each decodes and
// submits one request. READ and WRITE allocate nothing.

package sbc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// Scattered is server.Buffers whose memory may lie in pieces, which a READ takes as they are.
type Scattered interface {
	server.Buffers
	// Pieces returns n bytes of memory, in order, or nil: then Get is asked. The list is the task's
	// like its memory.
	Pieces(n int) [][]byte
}

// Read serves READ(6), (10), (12), (16).
func Read(t *server.Task) {
	bytes, ok := transfer(t, block.OpRead)
	if !ok {
		return
	}
	t.InTotal = int(bytes)
	want := min(int(bytes), max(t.MaxIn, 0))
	if want == 0 {
		t.Good()
		return
	}
	// A buffer that is too small still receives whole blocks from the device.
	bs := int(t.Unit().BlockSize())
	whole := (want + bs - 1) / bs * bs
	t.Request().Range.Count = uint64(whole) >> block.SectorShift
	if s, ok := t.Bufs.(Scattered); ok && whole == want {
		if pieces := s.Pieces(want); pieces != nil {
			t.Request().Data = pieces
			t.Submit(piecesDone)
			return
		}
	}
	t.DataInFrom(t.Bufs.Get(whole)[:whole], want)
	t.Submit(readDone)
}

func piecesDone(t *server.Task) {
	t.DataIn = t.Request().Data
	t.Good()
}

func readDone(t *server.Task) {
	t.SendDataIn()
	t.Good()
}

// Write serves WRITE(6), (10), (12), (16).
func Write(t *server.Task) {
	if bytes, ok := transfer(t, block.OpWrite); ok && dataOut(t, bytes) {
		t.Submit((*server.Task).Good)
	}
}

// CompareAndWrite serves COMPARE AND WRITE (SBC-4 5.3): Data-Out is what to
// compare with, then what to write.
func CompareAndWrite(t *server.Task) {
	const lengthAt = 13
	u := t.Unit()
	lba, n := binary.BigEndian.Uint64(t.CDB[2:]), uint64(t.CDB[lengthAt])
	if !unprotected(t) {
		return
	}
	if n > maxCompare(u) {
		t.Fault(sense.InCDB(lengthAt, 7))
		return
	}
	if !inRange(t, lba, n) {
		return
	}
	bytes := n * u.BlockSize()
	t.OutTotal = int(2 * bytes)
	if uint64(block.VecLen(t.DataOut)) != 2*bytes {
		// Where the operands begin and end would be a guess: nothing is written.
		t.Fault(sense.InCDB(lengthAt, 7))
		return
	}
	if n == 0 {
		t.Good()
		return
	}
	r := t.Request()
	r.Op, r.Origin, r.Flags = block.OpCompareWrite, block.OriginCAW, 0
	if t.CDB[1]&bitFUA != 0 {
		r.Flags = block.FUA
	}
	r.Range = block.Range{Start: lba << u.Shift(), Count: n << u.Shift()}
	r.Compare, r.Data = sgl.Split(t.DataOut, bytes)
	t.Submit((*server.Task).Good)
}

// Fields of WRITE ATOMIC(16) (SBC-4 5.41).
const (
	atomicBoundary = 10
	atomicLength   = 12
)

// WriteAtomic serves WRITE ATOMIC(16): after a crash all of it is there, or none.
func WriteAtomic(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	lba, n := be.Uint64(t.CDB[2:]), uint64(be.Uint16(t.CDB[atomicLength:]))
	boundary := uint64(be.Uint16(t.CDB[atomicBoundary:]))
	if !unprotected(t) || !inRange(t, lba, n) {
		return
	}
	if boundary != 0 {
		t.Fault(sense.InCDB(atomicBoundary, 7)) // MAXIMUM ATOMIC BOUNDARY SIZE is 0
		return
	}
	if n > u.AtomicBlocks() {
		t.Fault(sense.InCDB(atomicLength, 7))
		return
	}
	bytes := n * u.BlockSize()
	if uint64(block.VecLen(t.DataOut)) < bytes {
		t.OutTotal = int(bytes)
		t.Fault(sense.InCDB(atomicLength, 7)) // a part of it would not be atomic
		return
	}
	r := t.Request()
	r.Op, r.Origin, r.Flags = block.OpWrite, block.OriginHost, block.Atomic
	if t.CDB[1]&bitFUA != 0 {
		r.Flags |= block.FUA
	}
	r.Range = block.Range{Start: lba << u.Shift(), Count: n << u.Shift()}
	if dataOut(t, bytes) {
		t.Submit((*server.Task).Good)
	}
}

// PreFetch serves PRE-FETCH: the range is checked, the cache is left alone. GOOD
// and not CONDITION MET says that not all blocks are in it (SBC-4 5.8).
func PreFetch(t *server.Task) {
	if lba, n := cdb.Extent(t.CDB); inRange(t, lba, n) {
		t.Good()
	}
}

// Synchronize serves SYNCHRONIZE CACHE (SBC-4 5.34). The whole cache of the
// unit is flushed, whatever the range. With IMMED=1, too, it ends with the flush: so flushes are
// bounded as tasks are, they can be aborted, and the host hears of one that fails.
func Synchronize(t *server.Task) {
	lba, n := cdb.Extent(t.CDB)
	if !inRange(t, lba, n) {
		return
	}
	submitFlush(t, (*server.Task).Good)
}
