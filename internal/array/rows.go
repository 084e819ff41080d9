package array

import (
	"slices"
	"unsafe"

	"github.com/arraysim/arraysim/internal/block"
)

// Counter rows live in NVRAM, so that what was counted survives the death of the
// process to the byte.
const (
	rowFree    = 0 // never used
	rowCache   = 1 // key origin, id volume; cells below
	rowBackend = 2 // key direction<<7 | origin<<3 | reason, id mdisk; cells 0 operations, 1 bytes
	rowShort   = 4 // key origin, id volume; cell 0: bytes of cellWriteThrough for lack of memory
	rowOffload = 3 // key primitive<<4 | path, pool source, id volume, or rowsOfGone; cells 0 operations, 1 bytes
	rowGone    = 5 // used for what is deleted; free
)

const (
	cellFast = iota
	cellWriteThrough
	cellRecovered
	cellDestaged
	cellOverwritten
	cellDiscarded
	cellFlushThrough
	rowCells = 7
)

// row is a counter row in place.
type row struct {
	head  uint64
	cells [rowCells]uint64
}

func rowHead(kind, key uint8, pool uint16, id uint32) uint64 {
	return uint64(kind) | uint64(key)<<8 | uint64(pool)<<16 | uint64(id)<<32
}

func (n *nvram) row(i int) *row {
	return (*row)(unsafe.Pointer(&n.b[rowsOffset+i*rowBytes]))
}

// rowsOfGone plus the number of a pool is in the place of a volume's number in the rows that have the offloads
// to the pool's deleted volumes: what is counted by pool never gets less.
const rowsOfGone = 0xff << 24

// rows finds counter rows by head, makes them, and takes them back.
type rows struct {
	nv   *nvram
	at   map[uint64]*row
	used int    // rows of NVRAM that were ever used
	free []*row // of these, those that are free
	// extra are those for which NVRAM has no room: they count like all others, and end with the process.
	extra []*row
	// owned are the heads by who is counted: ownerOf.
	owned map[uint64][]uint64
}

// ownerOf returns whose row this is: bit 32 is set for an mdisk, else it is a volume.
func ownerOf(head uint64) uint64 {
	owner := head >> 32
	if uint8(head) == rowBackend {
		owner |= 1 << 32
	}
	return owner
}

func openRows(nv *nvram) *rows {
	rs := &rows{nv: nv, at: map[uint64]*row{}, owned: map[uint64][]uint64{}}
	for i := range nv.rows {
		if nv.row(i).head != rowFree {
			rs.used = i + 1
		}
	}
	for i := range rs.used {
		r := nv.row(i)
		switch {
		// Older programs counted together what was over.
		case rs.at[r.head] != nil || uint8(r.head) == rowFree || uint8(r.head) >= rowGone || r.head>>32 == 1<<32-1:
			rs.give(r)
		default:
			rs.take(r)
		}
	}
	return rs
}

// take notes that a row is used.
func (rs *rows) take(r *row) {
	rs.at[r.head] = r
	owner := ownerOf(r.head)
	rs.owned[owner] = append(rs.owned[owner], r.head)
}

// give takes a row of NVRAM back.
func (rs *rows) give(r *row) {
	r.head = rowGone
	rs.free = append(rs.free, r)
}

// get returns the row with this head.
func (rs *rows) get(kind, key uint8, pool uint16, id uint32) *row {
	h := rowHead(kind, key, pool, id)
	if r := rs.at[h]; r != nil {
		return r
	}
	r := rs.fresh()
	r.cells = [rowCells]uint64{}
	r.head = h // last: a process that dies before leaves a free row
	rs.take(r)
	return r
}

// fresh returns a row that nobody uses.
func (rs *rows) fresh() *row {
	if n := len(rs.free); n > 0 {
		r := rs.free[n-1]
		rs.free = rs.free[:n-1]
		return r
	}
	if rs.used < rs.nv.rows {
		rs.used++
		return rs.nv.row(rs.used - 1)
	}
	r := &row{}
	rs.extra = append(rs.extra, r)
	return r
}

// drop takes back the rows of a volume or an mdisk that is gone for good: those of a kind, 0 is all.
func (rs *rows) drop(owner uint64, kind uint8) {
	kept := rs.owned[owner][:0]
	for _, h := range rs.owned[owner] {
		if kind != 0 && uint8(h) != kind {
			kept = append(kept, h)
			continue
		}
		r := rs.at[h]
		delete(rs.at, h)
		if i := slices.Index(rs.extra, r); i >= 0 {
			rs.extra = slices.Delete(rs.extra, i, i+1)
		} else {
			rs.give(r)
		}
	}
	if rs.owned[owner] = kept; len(kept) == 0 {
		delete(rs.owned, owner)
	}
}

// each calls fn for all rows of a kind, in an order that only depends on what was counted.
func (rs *rows) each(kind uint8, fn func(*row)) {
	for i := range rs.used {
		if r := rs.nv.row(i); uint8(r.head) == kind {
			fn(r)
		}
	}
	for _, r := range rs.extra {
		if uint8(r.head) == kind {
			fn(r)
		}
	}
}

// dropUnknown takes back the rows of volumes and mdisks that are not there any more.
func (a *Array) dropUnknown() {
	mdisks := map[uint32]bool{}
	for _, p := range a.Pools() {
		for _, d := range p.mdisks {
			mdisks[d.id] = true
		}
	}
	var gone []uint64
	for owner := range a.rows.owned {
		id := uint32(owner)
		switch {
		case owner>>32 != 0 && mdisks[id], owner>>32 == 0 && int(id) < len(a.vols) && a.vols[id] != nil:
		case owner>>32 == 0 && id >= rowsOfGone && int(id-rowsOfGone) < len(a.pools) && a.pools[id-rowsOfGone] != nil:
		default:
			gone = append(gone, owner)
		}
	}
	slices.Sort(gone)
	for _, owner := range gone {
		a.rows.drop(owner, 0)
	}
}

// retire forgets a deleted volume of which nothing is dirty any more and no grain is marked as a home.
func (a *Array) retire(v *Volume) {
	a.rows.drop(uint64(v.id), 0)
	v.rows, v.short = [block.NumOrigins]*row{}, [block.NumOrigins]*row{}
	v.m.Remove()
	a.vols[v.id] = nil
}

// foldOffloads adds the offloads to a volume that is being deleted to those to its pool's deleted volumes, and returns
// what takes that back.
func (a *Array) foldOffloads(v *Volume) (unfold func()) {
	gone := rowsOfGone + uint32(v.pool.id)
	var folded []row
	for _, h := range a.rows.owned[uint64(v.id)] {
		if uint8(h) == rowOffload {
			folded = append(folded, *a.rows.at[h])
		}
	}
	for _, r := range folded {
		to := a.rows.get(rowOffload, uint8(r.head>>8), uint16(r.head>>16), gone)
		to.cells[0] += r.cells[0]
		to.cells[1] += r.cells[1]
	}
	a.rows.drop(uint64(v.id), rowOffload)
	return func() {
		for _, r := range folded {
			key, src := uint8(r.head>>8), uint16(r.head>>16)
			a.rows.get(rowOffload, key, src, v.id).cells = r.cells
			from := a.rows.get(rowOffload, key, src, gone)
			from.cells[0] -= r.cells[0]
			from.cells[1] -= r.cells[1]
		}
	}
}

// retireAll forgets the deleted volumes whose last dirty page and last home have gone.
func (a *Array) retireAll() {
	for _, v := range a.leaving {
		if v.empty() && a.vols[v.id] == v {
			a.retire(v)
		}
	}
	clear(a.leaving)
	a.leaving = a.leaving[:0]
}

// empty reports whether neither the cache nor the space of the pool knows the volume any more.
func (v *Volume) empty() bool { return v.dirtyTotal() == 0 && v.m.Tenant().Marked == 0 }

// left hears that a volume may be empty now.
func (v *Volume) left() {
	if v.forgotten && v.empty() {
		v.a.leaving = append(v.a.leaving, v)
	}
}
