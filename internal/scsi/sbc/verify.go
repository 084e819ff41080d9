// Handlers of VERIFY and WRITE AND VERIFY. They read into memory that all of them share: a
// command has a part of it for one piece of its range, then queues again, so that a long VERIFY
// neither holds much nor keeps others out.

package sbc

import (
	"bytes"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/scratch"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// Values of BYTCHK (SBC-4 5.36).
const (
	bytchkMedium = 0 // the medium is read, nothing is compared
	bytchkAll    = 1 // Data-Out is compared block by block
	bytchkOne    = 3 // one block of Data-Out is compared with each block
)

// verification is the state of VERIFY and WRITE AND VERIFY: it reads the range piece by
// piece, into memory that it has for that piece only, and compares.
type verification struct {
	pieces
	from uint64   // sectors that are done
	data [][]byte // what to compare with; nil only reads
	each bool     // data is one block, to be compared with each
	vec  [1][]byte
}

// Verify serves VERIFY(10), (12), (16).
func Verify(t *server.Task) {
	mode := t.CDB[1] >> 1 & 3
	if mode == 2 {
		t.Fault(sense.InCDB(1, 2))
		return
	}
	bytes, ok := transfer(t, block.OpRead)
	if !ok {
		return
	}
	v := &verification{pieces: pieces{task: t, pool: t.Target().Scratch().Compare(), rest: t.Request().Range}}
	switch {
	case bytes == 0:
	case mode == bytchkAll:
		if !operand(t, bytes) {
			return
		}
		v.data = t.Request().Data
	case mode == bytchkOne:
		if !operand(t, t.Unit().BlockSize()) {
			return
		}
		v.data, v.each = t.Request().Data, true
	}
	verify(t, v)
}

// operand is dataOut for what is compared: too little is refused even as whole blocks, because GOOD
// would say of all blocks that they are as they should be.
func operand(t *server.Task, bytes uint64) bool {
	if uint64(block.VecLen(t.DataOut)) < bytes {
		t.OutTotal = int(bytes)
		t.Check(sense.WrongOperand)
		return false
	}
	return dataOut(t, bytes)
}

// WriteVerify serves WRITE AND VERIFY(10), (12), (16): what was written is read
// back, with BYTCHK=1 also compared.
func WriteVerify(t *server.Task) {
	mode := t.CDB[1] >> 1 & 3
	if mode > bytchkAll {
		t.Fault(sense.InCDB(1, 2))
		return
	}
	bytes, ok := transfer(t, block.OpWrite)
	if !ok || !dataOut(t, bytes) {
		return
	}
	t.Request().Flags = block.FUA // the medium itself is to be verified
	v := &verification{pieces: pieces{task: t, pool: t.Target().Scratch().Compare(), rest: t.Request().Range}}
	if mode == bytchkAll {
		v.data = t.Request().Data
	}
	t.Hold(v)
	t.Submit(func(t *server.Task) { verify(t, v) })
}

func verify(t *server.Task, v *verification) {
	t.Hold(v)
	if v.rest.Count == 0 {
		t.Good()
		return
	}
	v.start = readPiece
	v.pool.Want(&v.pieces)
}

// readPiece reads the next piece into the memory that the command has.
func readPiece(t *server.Task) {
	v := t.Held().(*verification)
	n := min(v.rest.Count, scratch.PieceLen>>block.SectorShift)
	v.vec[0] = v.scratch[:n<<block.SectorShift]
	r := t.Request()
	r.Op, r.Flags, r.Data = block.OpRead, block.FUA, v.vec[:]
	r.Range = block.Range{Start: v.rest.Start, Count: n}
	t.Submit(verifyRead)
}

func verifyRead(t *server.Task) {
	v := t.Held().(*verification)
	got := v.vec[0]
	done := v.from << block.SectorShift
	if off := v.differs(got, done, t.Unit().BlockSize()); off >= 0 {
		t.Fault(sense.MiscompareVerify.WithInfo(done + uint64(off)))
		return
	}
	v.from += t.Request().Range.Count
	v.next()
}

// differs returns the offset in got of the first byte that is not as it should
// be, or -1. got stands at byte offset from of the range.
func (v *verification) differs(got []byte, from, blockSize uint64) int {
	if v.data == nil {
		return -1
	}
	step := uint64(len(got))
	if v.each {
		step = blockSize
	}
	for off := uint64(0); off < uint64(len(got)); off += step {
		at := from + off
		if v.each {
			at = 0
		}
		i := off
		for _, want := range sgl.Clip(v.data, at, step) {
			have := got[i : i+uint64(len(want))]
			if !bytes.Equal(have, want) {
				for j := range want {
					if have[j] != want[j] {
						return int(i) + j
					}
				}
			}
			i += uint64(len(want))
		}
	}
	return -1
}
