// The counter rows of NVRAM, and how the last of a deleted volume goes: what counts it leaves with
// it.

package pool

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/wcache"
)

// What the counter rows of NVRAM count. The package nvlog keeps them and knows no kind; here is
// what heads and cells mean. A volume and an mdisk find their rows once and then count in place.
const (
	rowCache   = wcache.RowBytes
	rowBackend = backend.RowKind
	rowOffload = 3 // key primitive<<4 | path, pool source, id volume, or rowsOfGone; cells 0 operations, 1 bytes
	rowShort   = wcache.RowShort
	rowDiscard = backend.RowDiscards
)

// rowsOfGone plus the number of a pool is in the place of a volume's number in the rows that have
// the offloads to the pool's deleted volumes: what is counted by pool never gets less.
const rowsOfGone = 0xff << 24

// ownerOfMdisk is set in the owner of an mdisk's rows; without it, the owner is a volume.
const ownerOfMdisk = 1 << 32

// ownerOf returns whose row this is.
func ownerOf(h nvlog.RowHead) uint64 {
	owner := uint64(h.ID())
	if h.Kind() == rowBackend || h.Kind() == rowDiscard {
		owner |= ownerOfMdisk
	}
	return owner
}

// OpenRows finds the rows that NVRAM has.
func (set *Set) OpenRows(nv *nvlog.NVRAM) { set.Rows = nvlog.OpenRows(nv, ownerOf) }

// DropUnknown takes back the rows of volumes and mdisks that are not there any more.
func (set *Set) DropUnknown() {
	mdisks := map[uint32]bool{}
	for _, p := range set.Pools() {
		for _, d := range p.Mdisks {
			mdisks[d.ID()] = true
		}
	}
	for _, owner := range set.Rows.Owners() {
		id := uint32(owner)
		switch {
		case owner>>32 != 0 && mdisks[id], owner>>32 == 0 && int(id) < len(set.Vols) && set.Vols[id] != nil:
		case owner>>32 == 0 && id >= rowsOfGone && int(id-rowsOfGone) < len(set.pools) && set.pools[id-rowsOfGone] != nil:
		default:
			set.Rows.Drop(owner, 0)
		}
	}
}

// retire forgets a deleted volume of which nothing is dirty any more and no grain is marked as a
// home.
func (set *Set) retire(v *Volume) {
	set.Rows.Drop(uint64(v.id), 0)
	v.Cached.ForgetRows()
	v.Map.Remove()
	set.ForgetVolume(v)
}

// FoldOffloads adds the offloads to a volume that is being deleted to those to its pool's deleted
// volumes, and returns what takes that back.
func (set *Set) FoldOffloads(v *Volume) (unfold func()) {
	of := func(r *nvlog.Row, id uint32) *nvlog.Row {
		return set.Rows.Get(nvlog.HeadOf(rowOffload, r.Head().Key(), r.Head().Group(), id))
	}
	gone := rowsOfGone + uint32(v.pool.id)
	var folded []nvlog.Row
	for _, h := range set.Rows.Owned(uint64(v.id)) {
		if h.Kind() == rowOffload {
			folded = append(folded, *set.Rows.Find(h))
		}
	}
	for i := range folded {
		to := of(&folded[i], gone)
		to.Cells[0] += folded[i].Cells[0]
		to.Cells[1] += folded[i].Cells[1]
	}
	set.Rows.Drop(uint64(v.id), rowOffload)
	return func() {
		for i := range folded {
			of(&folded[i], v.id).Cells = folded[i].Cells
			from := of(&folded[i], gone)
			from.Cells[0] -= folded[i].Cells[0]
			from.Cells[1] -= folded[i].Cells[1]
		}
	}
}

// Leaving reports whether RetireAll has something to do.
func (set *Set) Leaving() bool { return len(set.leaving) > 0 }

// RetireAll forgets the deleted volumes whose last dirty page and last home have gone.
func (set *Set) RetireAll() {
	for _, v := range set.leaving {
		if v.empty() && set.Vols[v.id] == v {
			set.retire(v)
		}
	}
	clear(set.leaving)
	set.leaving = set.leaving[:0]
}

// empty reports whether neither the cache nor the space of the pool knows the volume any more.
func (v *Volume) empty() bool { return v.Cached.Dirty() == 0 && v.Map.Tenant().Marked == 0 }

// Forget says that the deletion of the volume is durable: the last that goes of it takes it along.
func (v *Volume) Forget() {
	v.forgotten = true
	v.Cached.Leave()
}

// ForgetVolume takes a volume of which there is nothing left out of the array.
func (set *Set) ForgetVolume(v *Volume) {
	set.Cache.RemoveOwner(v.Cached)
	set.Vols[v.id] = nil
	p := v.pool
	at := p.place(v.id)
	p.members = slices.Delete(slices.Clone(p.members), at, at+1) // who walks over them goes on with the old list
}

// Left hears that a volume may be empty now.
func (v *Volume) Left() {
	if v.forgotten && v.empty() {
		v.Set.leaving = append(v.Set.leaving, v)
	}
}
