// What an mdisk has moved, in counter rows of NVRAM. It finds its rows once and counts in place.

package backend

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// What an mdisk has moved is in counter rows of NVRAM, one for each direction, origin and reason:
// an mdisk finds its rows once and then counts in place.

// RowKind is the kind of the rows: key direction<<7 | origin<<3 | reason, group pool, id mdisk;
// cells cellOperations, cellBytes.
const RowKind = 2

const (
	cellOperations = iota
	cellBytes
)

// dir is 0 for a read, 1 for a write.
func (x *Op) dir() int {
	if x.IO.Write {
		return 1
	}
	return 0
}

// count books the bytes by origin; the operation is booked to the origin that has most of them.
func (d *Mdisk) count(x *Op) {
	dir := x.dir()
	most := block.OriginHost
	for o := range block.NumOrigins {
		if n := x.Bytes[o]; n > 0 {
			d.row(dir, o, x.Reason).Cells[cellBytes] += uint64(n)
			if n > x.Bytes[most] {
				most = o
			}
		}
	}
	d.row(dir, most, x.Reason).Cells[cellOperations]++
}

func (d *Mdisk) row(dir int, o block.Origin, why block.Reason) *nvlog.Row {
	if d.detached {
		return &nvlog.Row{}
	}
	r := &d.rows[dir][o][why]
	if *r == nil {
		*r = d.b.rows.Get(d.rowHead(dir, o, why))
	}
	return *r
}

// counted returns the row with these numbers, nil if there is nothing in it.
func (d *Mdisk) counted(dir int, o block.Origin, why block.Reason) *nvlog.Row {
	if r := d.rows[dir][o][why]; r != nil {
		return r
	}
	return d.b.rows.Find(d.rowHead(dir, o, why))
}

func (d *Mdisk) rowHead(dir int, o block.Origin, why block.Reason) nvlog.RowHead {
	return nvlog.HeadOf(RowKind, uint8(dir)<<7|uint8(o)<<3|uint8(why), d.pool, d.id)
}

// Moved returns how many operations have read or written for an origin and a reason, and their
// bytes.
func (d *Mdisk) Moved(write bool, o block.Origin, why block.Reason) (operations, bytes uint64) {
	dir := 0
	if write {
		dir = 1
	}
	r := d.counted(dir, o, why)
	if r == nil {
		return 0, 0
	}
	return r.Cells[cellOperations], r.Cells[cellBytes]
}

// Emit emits the mdisk's counters under the name of its pool.
func (d *Mdisk) Emit(e metrics.Emitter, pool string) {
	e.Value(metrics.BackendQueue, float64(d.depth), pool, d.name)
	d.emitDiscards(e, pool)
	for dir, name := range [...]string{"read", "write"} {
		if d.duration[dir].Count > 0 {
			e.Histogram(metrics.BackendDuration, &d.duration[dir], pool, d.name, name)
		}
		for o := range block.NumOrigins {
			for why := range block.NumReasons {
				if r := d.counted(dir, o, why); r != nil {
					e.Value(metrics.BackendOperations, float64(r.Cells[cellOperations]), pool, d.name, name, o.String(), why.String())
					e.Value(metrics.BackendBytes, float64(r.Cells[cellBytes]), pool, d.name, name, o.String(), why.String())
				}
			}
		}
	}
}
