// Counter rows in NVRAM: which row is whose. Who has found its row counts in place; a row that was
// dropped is given to the next that asks.

package nvlog

import (
	"slices"
	"unsafe"
)

// Counter rows live in NVRAM, so that what was counted survives the death of the process to the
// byte. A row has a head, which says what it counts, and cells. Rows have no checksum: a row is one
// line of the processor's cache and counts in place, without a copy.
//
// Row: 0 kind u8, key u8, group u16, id u32 | 8.. counters u64 x7.
//
// Kinds 1 to 4 and 6 are the user's. A row whose head is 0 was never used; one that was taken back
// has kind rowRetired.
const (
	rowBytes   = 64
	rowFree    = 0
	rowRetired = 5
	rowLast    = 6 // kind; a program that has more writes higher ones
	// RowCells is the number of counters of a row.
	RowCells = 7
)

// noID is the id of rows in which older programs counted together what NVRAM had no room for.
const noID = 1<<32 - 1

// Row is a counter row in place.
type Row struct {
	head  RowHead
	Cells [RowCells]uint64
}

// Head returns what the row counts.
func (r *Row) Head() RowHead { return r.head }

// RowHead says what a row counts.
type RowHead uint64

// HeadOf returns a row's head. The meaning of its parts is the user's.
func HeadOf(kind, key uint8, group uint16, id uint32) RowHead {
	return RowHead(uint64(kind) | uint64(key)<<8 | uint64(group)<<16 | uint64(id)<<32)
}

// Kind returns the kind of a head: 1 to 4 or 6, or one of a row that counts nothing.
func (h RowHead) Kind() uint8 { return uint8(h) }

// Key returns the key of a head.
func (h RowHead) Key() uint8 { return uint8(h >> 8) }

// Group returns the group of a head.
func (h RowHead) Group() uint16 { return uint16(h >> 16) }

// ID returns the id of a head.
func (h RowHead) ID() uint32 { return uint32(h >> 32) }

func (n *NVRAM) row(i int) *Row {
	return (*Row)(unsafe.Pointer(&n.counters[i*rowBytes]))
}

// Rows finds counter rows by head, makes them, and takes them back. It owns the heads, its users
// own the cells. A row stays where it is until Drop.
type Rows struct {
	nv   *NVRAM
	at   map[RowHead]*Row
	used int    // rows of NVRAM that were ever used
	free []*Row // of these, those that are free
	// extra are those for which NVRAM has no room: they count like all others, and end with the
	// process.
	extra []*Row
	// owned are the heads by who is counted.
	owned   map[uint64][]RowHead
	ownerOf func(RowHead) uint64
}

// OpenRows finds the rows that are there. ownerOf says who is counted by the row of a head.
func OpenRows(nv *NVRAM, ownerOf func(RowHead) uint64) *Rows {
	rs := &Rows{nv: nv, at: map[RowHead]*Row{}, owned: map[uint64][]RowHead{}, ownerOf: ownerOf}
	for i := range nv.Rows {
		if nv.row(i).head != rowFree {
			rs.used = i + 1
		}
	}
	for i := range rs.used {
		r := nv.row(i)
		switch kind := r.head.Kind(); {
		case rs.at[r.head] != nil || kind == rowFree || kind == rowRetired || kind > rowLast || r.head.ID() == noID:
			rs.give(r)
		default:
			rs.take(r)
		}
	}
	return rs
}

// take notes that a row is used.
func (rs *Rows) take(r *Row) {
	rs.at[r.head] = r
	owner := rs.ownerOf(r.head)
	rs.owned[owner] = append(rs.owned[owner], r.head)
}

// give takes a row of NVRAM back.
func (rs *Rows) give(r *Row) {
	r.head = rowRetired
	rs.free = append(rs.free, r)
}

// Find returns the row with this head, nil if it was never counted.
func (rs *Rows) Find(h RowHead) *Row { return rs.at[h] }

// Get returns the row with this head; a new one counts from 0.
func (rs *Rows) Get(h RowHead) *Row {
	if r := rs.at[h]; r != nil {
		return r
	}
	r := rs.fresh()
	r.Cells = [RowCells]uint64{}
	r.head = h // last: a process that dies before leaves a free row
	rs.take(r)
	return r
}

// fresh returns a row that nobody uses.
func (rs *Rows) fresh() *Row {
	if n := len(rs.free); n > 0 {
		r := rs.free[n-1]
		rs.free = rs.free[:n-1]
		return r
	}
	if rs.used < rs.nv.Rows {
		rs.used++
		return rs.nv.row(rs.used - 1)
	}
	r := &Row{}
	rs.extra = append(rs.extra, r)
	return r
}

// Drop takes back the rows of an owner that is gone for good: those of a kind, 0 is all.
func (rs *Rows) Drop(owner uint64, kind uint8) {
	kept := rs.owned[owner][:0]
	for _, h := range rs.owned[owner] {
		if kind != 0 && h.Kind() != kind {
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

// Owned returns the heads of an owner's rows. The slice is good until the next Get or Drop.
func (rs *Rows) Owned(owner uint64) []RowHead { return rs.owned[owner] }

// Owners returns who has rows, in ascending order.
func (rs *Rows) Owners() []uint64 {
	owners := make([]uint64, 0, len(rs.owned))
	for o := range rs.owned {
		owners = append(owners, o)
	}
	slices.Sort(owners)
	return owners
}

// Each calls fn for all rows of a kind, in an order that only depends on what was counted.
func (rs *Rows) Each(kind uint8, fn func(*Row)) {
	for i := range rs.used {
		if r := rs.nv.row(i); r.head.Kind() == kind {
			fn(r)
		}
	}
	for _, r := range rs.extra {
		if r.head.Kind() == kind {
			fn(r)
		}
	}
}
