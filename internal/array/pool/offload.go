// Offloads as they are counted: by primitive, path, source and destination.

package pool

import (
	"github.com/arraysim/arraysim/internal/array/layout"
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

// Edit is what a WRITE SAME of zeros or an UNMAP does in one step.
type Edit struct {
	Ranges []block.Range
	State  block.State // that they become
	Prim   int         // what it is counted for: zeros of a WRITE USING TOKEN are its own
	Last   bool
	Bytes  uint64 // of all steps, if it is the last
}

// What an edit of a range costs: a window is released, or above the windows a node is cut off. A range of
// any length has ends that are as wide as a node at each height.
const (
	mostOfRange  = 1024 // windows
	windowsOfOne = 16 * mostOfRange
)

// EditOf returns the next step of such a request behind so many of its ranges, which may lie in one. An
// UNMAP of many long ranges goes in several, unless it anchors, which is refused as a whole.
func (v *Volume) EditOf(r *block.Request, one *[1]block.Range, done uint64) Edit {
	if r.Op != block.OpUnmap {
		one[0] = r.Range
		x := Edit{Ranges: one[:], State: block.Zero, Prim: PrimWriteSame, Bytes: r.Range.Bytes(), Last: true}
		if r.Origin == block.OriginODX {
			x.Prim = primODX
		}
		if r.Flags&block.Deallocate != 0 {
			x.State = v.DeallocState(r.Flags&block.Anchor != 0)
		}
		return x
	}
	x := Edit{Ranges: r.Ranges[done:], State: v.DeallocState(r.Flags&block.Anchor != 0), Prim: PrimUnmap}
	if n := affordable(x.Ranges); x.State == block.Unmapped || !v.Spec.Thin {
		x.Ranges = x.Ranges[:n]
	}
	if x.Last = int(done)+len(x.Ranges) == len(r.Ranges); x.Last {
		for _, g := range r.Ranges {
			x.Bytes += g.Bytes()
		}
	}
	return x
}

// affordable returns how many of some ranges one step edits: all, if they are short or few.
func affordable(ranges []block.Range) int {
	cost := uint64(0)
	for i, g := range ranges {
		if cost += min(g.Count>>layout.WindowShift+2, mostOfRange); cost > windowsOfOne && i > 0 {
			return i
		}
	}
	return len(ranges)
}

// Moves reports whether so many bytes of a copy to a volume out of its own pool have their data moved,
// and not shared.
func (v *Volume) Moves(bytes uint64) bool {
	p := v.pool
	used, limit := p.Fullness()
	return p.Set.Placement.Place(plug.Copy{Now: p.Set.Exec.Now(), To: int(v.id), Bytes: int64(bytes), Moves: p.CopyData,
		Used: used, Limit: limit}) != plug.Reference
}
