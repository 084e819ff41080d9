// The objects of an array as they are now: pools, their mdisks and volumes, found by number and by name.
// What belongs to a pool has one owner each, and all of them hang here; who changes which objects
// there are is the directory of the array, who uses them its requests.
//
// Invariants: a number is an index, and is never used again; nothing here knows a request, and what
// requests have to hear of goes through hooks that are set once.

package array

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// poolHooks are what a set tells its user.
type poolHooks struct {
	// Step: a timer or a call has changed something; it is the end of a step.
	Step func()
	// Changed: other rules hold, under which anybody may go on who waits.
	Changed func()
	// Space: a grain of a pool was freed that only transfers kept.
	Space func(p *Pool)
}

// poolSet is the pools of an array with all that belongs to them.
type poolSet struct {
	exec    block.Executor
	store   block.Store
	payload bool
	uuid    uint64 // of the array, in the names that volumes have
	up      poolHooks

	pools   []*Pool       // by id
	vols    []*poolVolume // by id; nil where an id was never used in this store
	leaving []*poolVolume // deleted ones that may have nothing dirty any more

	arena *extent.Arena
	cache *wcache.Cache
	gate  *admission.Gate // to the cache
	rows  *nvlog.Rows
	back  *backend.Backend

	freeUnit      *destageUnit
	garbageQueued bool
	garbageFn     func()
}

// newSet returns a set without pools. Its hooks, rows, cache, gate and back end are to be given before there are any.
func newSet(exec block.Executor, store block.Store) *poolSet {
	set := &poolSet{exec: exec, store: store, payload: store.Payload()}
	set.arena = extent.NewArena(set.scheduleGarbage)
	set.garbageFn = set.runGarbage
	return set
}

// ByID returns the pool with this number, nil if there is none any more.
func (set *poolSet) ByID(id uint16) *Pool {
	if int(id) >= len(set.pools) {
		return nil
	}
	return set.pools[id]
}

// VolumeByID returns the volume with this number, nil if there is none any more. It may be one that is being made, or
// of whose deletion not all has gone.
func (set *poolSet) VolumeByID(id uint32) *poolVolume {
	if int(id) >= len(set.vols) {
		return nil
	}
	return set.vols[id]
}

// RemovePool takes a pool out of which there is nothing left.
func (set *poolSet) RemovePool(p *Pool) {
	set.pools[p.id] = nil
	p.part.Close()
}

// Detach takes the mdisks and the counters of a pool away that was removed.
func (set *poolSet) Detach(p *Pool) {
	set.rows.Drop(rowsOfGone+uint64(p.id), 0)
	for i, d := range p.mdisks {
		p.part.Hold(i, false)
		set.back.Detach(d.Mdisk)
		set.rows.Drop(ownerOfMdisk|uint64(d.ID()), 0)
	}
}

// Pools returns the pools in the order of their making.
func (set *poolSet) Pools() []*Pool {
	var out []*Pool
	for _, p := range set.pools {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Pool returns the pool with this name, nil if there is none.
func (set *poolSet) Pool(name string) *Pool {
	for _, p := range set.pools {
		if p != nil && p.name == name {
			return p
		}
	}
	return nil
}

// volumes returns the volumes in the order of their making.
func (set *poolSet) volumes() []*poolVolume {
	var out []*poolVolume
	for _, v := range set.vols {
		if v != nil && v.there() {
			out = append(out, v)
		}
	}
	return out
}

// volume returns the volume with this name, nil if there is none.
func (set *poolSet) volume(name string) *poolVolume {
	for _, v := range set.vols {
		if v != nil && v.there() && v.spec.Name == name {
			return v
		}
	}
	return nil
}

// there tells whether the volume is one of the array's: it is from when its making is durable until its deletion is.
func (v *poolVolume) there() bool { return !v.making && !v.deleted }

// nameTaken tells whether a volume has a name, or is being made under it.
func (set *poolSet) nameTaken(name string) bool {
	return slices.ContainsFunc(set.vols, func(v *poolVolume) bool { return v != nil && !v.deleted && v.spec.Name == name })
}

// initVolume makes a volume of a pool known: dev is what hosts have of it, v a part of that.
func (set *poolSet) initVolume(v *poolVolume, dev block.Device, spec directory.VolumeSpec, p *Pool) {
	*v = poolVolume{set: set, dev: dev, id: spec.ID, pool: p, spec: spec, size: spec.Sectors, limit: spec.Sectors,
		cached: set.cache.AddOwner(spec.ID, p.part.Partition)}
	v.m = set.arena.NewMap(extent.Config{Space: p.space, Volume: spec.ID, Sectors: spec.Sectors, Thick: !spec.Thin, Drop: p.dropSectors})
	for len(set.vols) <= int(spec.ID) {
		set.vols = append(set.vols, nil)
	}
	set.vols[spec.ID] = v
	p.volumes++
}

// tellHealth tells all volumes that what all of them need got worse or better.
func (set *poolSet) tellHealth() {
	for _, v := range set.volumes() {
		v.tell(block.EventHealth)
	}
}

// newPool opens the mdisks of a pool.
func (set *poolSet) newPool(spec directory.PoolSpec) (*Pool, error) {
	p := &Pool{set: set, id: spec.ID, name: spec.Name, copyData: spec.CopyData}
	p.spaceWait.Of = ticket.Space
	counts := make([]int, len(spec.Mdisks))
	for i, m := range spec.Mdisks {
		size := m.Size &^ (layout.ExtentBytes - 1)
		medium, err := set.store.Medium(fmt.Sprintf("%s.%s", spec.Name, m.Name), size)
		if err != nil {
			return nil, err
		}
		d := set.back.NewMdisk(backend.Config{ID: m.ID, Pool: spec.ID, Number: i, Name: m.Name, Size: size,
			Limits: backend.Limits{Bandwidth: m.Bandwidth, IOPS: m.IOPS}}, medium)
		p.mdisks = append(p.mdisks, &mdisk{Mdisk: d, pool: p})
		counts[i] = int(size / layout.ExtentBytes)
	}
	p.space = alloc.New(counts, alloc.Events{Freed: p.grainFreed, Left: func() { set.up.Space(p) }, Vacated: func(vol uint32) { set.vols[vol].left() }})
	p.part = set.gate.AddPool(set.cache.AddPartition(p.id, p.space, len(p.mdisks)))
	return p, nil
}

// addPool makes a pool known.
func (set *poolSet) addPool(p *Pool) {
	for len(set.pools) <= int(p.id) {
		set.pools = append(set.pools, nil)
	}
	set.pools[p.id] = p
	p.part.Open()
	for _, d := range p.mdisks {
		set.back.Attach(d.Mdisk)
	}
}

// grainFreed drops what is dirty of a grain that nothing refers to any more.
func (p *Pool) grainFreed(g uint64) {
	if p.part.Empty() && p.set.back.Bad.Len() == 0 {
		return
	}
	k := layout.KeyOf(p.id, g<<layout.WindowShift)
	for i := range layout.PageKey(layout.GrainPages) {
		p.set.drop(k+i, 0xff)
	}
}

// dropSectors drops what is dirty of the sectors of a layer that lost its only reference to them.
func (p *Pool) dropSectors(base uint64, mask layout.Mask) {
	if p.part.Empty() && p.set.back.Bad.Len() == 0 {
		return
	}
	for i := mask.Next(0); i < layout.WindowSectors; i = mask.Next(i + 1) {
		s := base + i
		p.set.drop(layout.KeyOf(p.id, s), 1<<(s%layout.PageSectors))
	}
}
