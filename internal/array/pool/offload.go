// Offloads as they are counted: by primitive, path, source and destination.

package pool

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
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
