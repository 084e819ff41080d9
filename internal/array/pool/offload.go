// Offloads as they are counted: by primitive, path, source and destination.

package pool

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/lab/plug"
)

// Offload primitives and paths, as counted.
const (
	PrimWriteSame = iota
	PrimUnmap
	primXCopy
	primODX
)

const (
	PathMetadata = iota
	PathCopy
	pathRejected
)

var (
	primNames = [...]string{"write_same", "unmap", "xcopy", "odx"}
	pathNames = [...]string{"metadata", "copy", "rejected"}
)

// OtherGroup is the number by which the pools of all other arrays are counted as sources.
const OtherGroup = 1<<16 - 1

// otherGroup is their name.
const otherGroup = "(another I/O group)"

// CountOffload books an offload that covered so many bytes of v, with data from the pool of number
// src.
func (v *Volume) CountOffload(prim, path int, src uint16, bytes uint64) {
	r := v.Set.Rows.Get(nvlog.HeadOf(rowOffload, uint8(prim<<4|path), src, v.id))
	r.Cells[0]++
	r.Cells[1] += bytes
}

// PrimOf returns the primitive that data of an origin is counted for.
func PrimOf(g block.Origin) int {
	if g == block.OriginODX {
		return primODX
	}
	return primXCopy
}

// EditOf returns what a WRITE SAME of zeros or an UNMAP makes which ranges, and the primitive that it is
// counted for: zeros of a WRITE USING TOKEN are its own. The ranges may lie in one.
func (v *Volume) EditOf(r *block.Request, one *[1]block.Range) (ranges []block.Range, state block.State, prim int) {
	ranges, state, prim = r.Ranges, block.Zero, PrimWriteSame
	switch {
	case r.Op == block.OpUnmap:
		prim = PrimUnmap
	case r.Origin == block.OriginODX:
		prim = primODX
	}
	if r.Op != block.OpUnmap {
		one[0] = r.Range
		ranges = one[:]
	}
	if r.Op == block.OpUnmap || r.Flags&block.Deallocate != 0 {
		state = v.DeallocState(r.Flags&block.Anchor != 0)
	}
	return ranges, state, prim
}

// Moves reports whether so many bytes of a copy to a volume out of its own pool have their data moved,
// and not shared.
func (v *Volume) Moves(bytes uint64) bool {
	p := v.pool
	used, limit := p.Fullness()
	return p.Set.Placement.Place(plug.Copy{Now: p.Set.Exec.Now(), To: int(v.id), Bytes: int64(bytes), Moves: p.CopyData,
		Used: used, Limit: limit}) != plug.Reference
}
