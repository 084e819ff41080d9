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

// OtherGroup is the number by which the pools of all other I/O groups are counted as sources, OtherArray that of the pools of
// all other arrays.
const (
	OtherGroup = 1<<16 - 1
	OtherArray = 1<<16 - 2
)

// These are their names.
const (
	otherGroup = "(another I/O group)"
	otherArray = "(another array)"
)

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

// Moves reports whether so many bytes of a copy to a volume out of its own pool have their data moved,
// and not shared.
func (v *Volume) Moves(bytes uint64) bool {
	p := v.pool
	used, limit := p.Fullness()
	return p.Set.Placement.Place(plug.Copy{Now: p.Set.Exec.Now(), To: int(v.id), Bytes: int64(bytes), Moves: p.CopyData,
		Used: used, Limit: limit}) != plug.Reference
}
