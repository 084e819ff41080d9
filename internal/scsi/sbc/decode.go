// Package sbc has the handlers of block commands (SBC-4): they read and write the medium, unmap it,
// compare it, erase it, and say how large it is. A handler decodes its CDB, prepares the task's
// request and submits it. Whatever a peer sends, none reads behind it.
package sbc

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// Limits that the Block Limits VPD page reports.
const (
	maxTransferBytes  = 32 << 20
	optTransferBytes  = 1 << 20
	maxCompareBlocks  = 128
	maxCompareBytes   = 256 << 10 // what the array writes as one, see block.Atomic
	maxUnmapRanges    = 1024
	maxUnmapBlocks    = 1<<32 - 1 // what its descriptors say, and no fewer (SBC-4 6.6.4)
	maxWriteSame      = 1<<32 - 1
	maxPatternSectors = 16 << 20 >> block.SectorShift // of WRITE SAME with a pattern, at a time
)

// maxCompare returns the most blocks of a COMPARE AND WRITE to a unit.
func maxCompare(u *server.Unit) uint64 { return min(maxCompareBlocks, maxCompareBytes/u.BlockSize()) }

// Bits of byte 1 of READ, WRITE and their kind (SBC-4 5.11, 5.40).
const (
	bitFUA      = 0x08
	maskProtect = 0xE0
)

// inRange checks [lba, lba+n) against the capacity; otherwise the task ends with
// LOGICAL BLOCK ADDRESS OUT OF RANGE and the first block that is not there.
func inRange(t *server.Task, lba, n uint64) bool {
	u := t.Unit()
	if lba <= u.Blocks() && n <= u.Blocks()-lba {
		if n > 0 || lba < u.Blocks() {
			return true
		}
		// SBC-4 4.7: an LBA behind the last is wrong even with no blocks.
	}
	t.Fault(sense.LBAOutOfRange.WithInfo(max(lba, u.Blocks())))
	return false
}

// unprotected refuses RDPROTECT, WRPROTECT and VRPROTECT: the units are not
// formatted with protection information.
func unprotected(t *server.Task) bool {
	if at := cdb.FlagsOffset(t.CDB); len(t.Command().Usage) > 6 && t.CDB[at]&maskProtect != 0 {
		t.Fault(sense.InCDB(at, 7))
		return false
	}
	return true
}

// transfer is what READ and WRITE commands have in common: it checks the CDB and
// prepares the request. It returns the bytes that the CDB describes.
func transfer(t *server.Task, op block.Op) (bytes uint64, ok bool) {
	u := t.Unit()
	lba, n := cdb.Extent(t.CDB)
	if !unprotected(t) || !inRange(t, lba, n) {
		return 0, false
	}
	bytes = n * u.BlockSize()
	if bytes > maxTransferBytes {
		t.Fault(sense.InCDB(cdb.LengthOffset(t.CDB), 7))
		return 0, false
	}
	r := t.Request()
	r.Op, r.Origin, r.Flags = op, block.OriginHost, 0
	if len(t.Command().Usage) > 6 && t.CDB[1]&bitFUA != 0 && t.Command().Usage[1]&bitFUA != 0 {
		r.Flags = block.FUA
	}
	r.Range = block.Range{Start: lba << u.Shift(), Count: n << u.Shift()}
	return bytes, true
}

// dataOut prepares the request's Data: the blocks that came, at most what the CDB
// describes. It returns false when there is nothing to write, and has then ended
// the task. Less than the CDB describes is taken when whole blocks came (with a
// residual); what ends inside a block is refused, because half a block is none.
func dataOut(t *server.Task, bytes uint64) bool {
	t.OutTotal = int(bytes)
	r := t.Request()
	have := uint64(block.VecLen(t.DataOut))
	r.Data = t.DataOut
	if have != bytes {
		use := min(have, bytes)
		if use&(t.Unit().BlockSize()-1) != 0 {
			t.Check(sense.WrongOperand)
			return false
		}
		r.Data = sgl.Clip(t.DataOut, 0, use)
		r.Range.Count = use >> block.SectorShift
		bytes = use
	}
	if bytes == 0 {
		t.Good()
		return false
	}
	return true
}
