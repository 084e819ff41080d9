package array

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// Offload primitives and paths, as counted.
const (
	primWriteSame = iota
	primUnmap
	primXCopy
	primODX
)

const (
	pathMetadata = iota
	pathCopy
	pathRejected
)

var (
	primNames = [...]string{"write_same", "unmap", "xcopy", "odx"}
	pathNames = [...]string{"metadata", "copy", "rejected"}
)

// countOffload books an offload that covered so many bytes of v, with data from src.
func (v *poolVolume) countOffload(prim, path int, src *Pool, bytes uint64) {
	r := v.set.rows.Get(nvlog.HeadOf(rowOffload, uint8(prim<<4|path), src.id, v.id))
	r.Cells[0]++
	r.Cells[1] += bytes
}

func primOf(g block.Origin) int {
	if g == block.OriginODX {
		return primODX
	}
	return primXCopy
}
