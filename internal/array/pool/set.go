// The objects of an array as they are now: pools, their mdisks and volumes, found by number and by
// name. What belongs to a pool has one owner each, and all of them hang here. Provision and a start
// change which objects there are; requests use them.
//
// Invariants: a number is an index, and is never used again; nothing here knows a request, and what
// requests have to hear of goes through hooks that are set once.

package pool

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/crosspool"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/lab/plug"
)

// Hooks are what a set tells its user.
type Hooks struct {
	// Step: a timer or a call has changed something; it is the end of a step.
	Step func()
	// Changed: other rules hold, under which anybody may go on who waits.
	Changed func()
	// Space: a grain of a pool was freed that only transfers kept.
	Space func(p *Pool)
}

// Set is the pools of an array with all that belongs to them.
type Set struct {
	Exec    block.Executor
	store   block.Store
	Payload bool
	UUID    uint64 // of the array, in the names that volumes have
	Up      Hooks  // set once
	// Placement decides how copies inside a pool are carried out.
	Placement plug.Placement

	pools   []*Pool   // by id
	Vols    []*Volume // all pools', by id; nil where an id was never used in this store
	leaving []*Volume // deleted ones that may have nothing dirty any more

	Arena *extent.Arena
	Cache *wcache.Cache
	Link  *crosspool.Link // to what pools share
	Rows  *nvlog.Rows
	Back  *backend.Backend

	freeUnit      *Unit
	garbageQueued bool
	badStored     bool // the last checkpoint has bad sectors
	discards      discarding
	garbageFn     func()
	evictQueued   bool
	evictFn       func()
}

// NewSet returns a set without pools. Its hooks, rows, cache, link and back end are to be given
// before there are any.
func NewSet(exec block.Executor, store block.Store) *Set {
	set := &Set{Exec: exec, store: store, Payload: store.Payload()}
	set.Arena = extent.NewArena(set.scheduleGarbage)
	set.garbageFn, set.evictFn = set.runGarbage, set.evict
	return set
}

// ByID returns the pool with this number, nil if there is none any more.
func (set *Set) ByID(id uint16) *Pool {
	if int(id) >= len(set.pools) {
		return nil
	}
	return set.pools[id]
}

// NameOf returns the name of the pool with this number, which there is.
func (set *Set) NameOf(id uint16) string { return set.pools[id].name }

// VolumeByID returns the volume with this number, nil if there is none any more. It may be one that
// is being made, or of whose deletion not all has gone.
func (set *Set) VolumeByID(id uint32) *Volume {
	if int(id) >= len(set.Vols) {
		return nil
	}
	return set.Vols[id]
}

// RemovePool takes a pool out of which there is nothing left.
func (set *Set) RemovePool(p *Pool) {
	set.pools[p.id] = nil
	set.Arena.Account().Close(p.Alloc)
	p.Part.Close()
}

// Detach takes the mdisks and the counters of a pool away that was removed.
func (set *Set) Detach(p *Pool) {
	set.Rows.Drop(rowsOfGone+uint64(p.id), 0)
	for i, d := range p.Mdisks {
		p.Part.Hold(i, false)
		set.Back.Detach(d.Mdisk)
		set.Rows.Drop(ownerOfMdisk|uint64(d.ID()), 0)
	}
}

// Pools returns the pools in the order of their making.
func (set *Set) Pools() []*Pool {
	var out []*Pool
	for _, p := range set.pools {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Pool returns the pool with this name, nil if there is none.
func (set *Set) Pool(name string) *Pool {
	for _, p := range set.pools {
		if p != nil && p.name == name {
			return p
		}
	}
	return nil
}

// Volumes returns the volumes in the order of their making.
func (set *Set) Volumes() []*Volume { return there(set.Vols) }

// Volume returns the volume with this name, nil if there is none.
func (set *Set) Volume(name string) *Volume {
	for _, v := range set.Vols {
		if v != nil && v.There() && v.Spec.Name == name {
			return v
		}
	}
	return nil
}

// NameTaken reports whether a volume has a name, or is being made under it.
func (set *Set) NameTaken(name string) bool {
	return slices.ContainsFunc(set.Vols, func(v *Volume) bool { return v != nil && !v.Deleted && v.Spec.Name == name })
}

// InitVolume makes a volume of a pool known: dev is what hosts have of it, v a part of that.
func (set *Set) InitVolume(v *Volume, dev block.Device, spec directory.VolumeSpec, p *Pool) {
	*v = Volume{Set: set, Dev: dev, id: spec.ID, pool: p, Spec: spec, Size: spec.Sectors, Limit: spec.Sectors,
		Cached: set.Cache.AddOwner(spec.ID, p.Part.Partition)}
	v.Map = set.Arena.NewMap(extent.Config{Space: p.Alloc, Pool: p.id, Volume: spec.ID, Sectors: spec.Sectors, Thick: !spec.Thin, Drop: p.dropSectors})
	for len(set.Vols) <= int(spec.ID) {
		set.Vols = append(set.Vols, nil)
	}
	set.Vols[spec.ID] = v
	set.enter(v)
}

// enter books a volume with its pool, which cannot be deleted then until Leave.
func (set *Set) enter(v *Volume) {
	p := v.pool
	p.members = slices.Insert(p.members, p.place(v.id), v)
	p.volumes++
}

// Leave says that a volume that was made known needs its pool no longer but for space that comes
// back in the background. It may be said once.
func (set *Set) Leave(v *Volume) { v.pool.volumes-- }

// TellHealth tells all volumes that what all of them need got worse or better.
func (set *Set) TellHealth() {
	for _, v := range set.Volumes() {
		v.Tell(block.EventHealth)
	}
}

// FindPool is NewPool of one that there was: an mdisk that the store does not have is an error.
func (set *Set) FindPool(spec directory.PoolSpec) (*Pool, error) {
	for _, name := range spec.Media() {
		if err := set.store.FindMedium(name); err != nil {
			return nil, err
		}
	}
	return set.NewPool(spec)
}

// NewPool opens the mdisks of a pool.
func (set *Set) NewPool(spec directory.PoolSpec) (*Pool, error) {
	p := &Pool{Set: set, id: spec.ID, name: spec.Name, CopyData: spec.CopyData, Bad: backend.BadSectorsOf(spec.ID)}
	p.SpaceWait.Of = ticket.Space
	counts := make([]int, len(spec.Mdisks))
	for i, m := range spec.Mdisks {
		size := m.Size &^ (layout.ExtentBytes - 1)
		medium, err := set.store.Medium(fmt.Sprintf("%s.%s", spec.Name, m.Name), size)
		if err != nil {
			return nil, err
		}
		d := set.Back.NewMdisk(backend.Config{ID: m.ID, Pool: spec.ID, Number: i, Name: m.Name, Size: size,
			Limits: backend.Limits{Bandwidth: m.Bandwidth, IOPS: m.IOPS}}, medium)
		p.Mdisks = append(p.Mdisks, &Mdisk{Mdisk: d, pool: p})
		counts[i] = int(size / layout.ExtentBytes)
	}
	p.Alloc = alloc.New(counts, alloc.Events{Freed: p.grainFreed, Left: func() { set.Up.Space(p) }, Vacated: func(vol uint32) { p.member(vol).Left() },
		Miscounted: func() { set.Cache.NV.SetMiscounted(true) }})
	p.track()
	p.Part = set.Link.Join(set.Cache.AddPartition(p.id, p.Alloc, len(p.Mdisks)))
	return p, nil
}

// AddPool makes a pool known.
func (set *Set) AddPool(p *Pool) {
	for len(set.pools) <= int(p.id) {
		set.pools = append(set.pools, nil)
	}
	set.pools[p.id] = p
	p.Part.Open()
	for _, d := range p.Mdisks {
		set.Back.Attach(d.Mdisk)
	}
}

// grainFreed drops what is dirty of a grain that nothing refers to any more.
func (p *Pool) grainFreed(g uint64) {
	p.discardSoon()
	p.Set.Up.Space(p) // who waits for what a discard keeps may take this one
	if p.Part.Empty() && p.Bad.Len() == 0 {
		return
	}
	k := layout.KeyOf(p.id, g<<layout.WindowShift)
	for i := range layout.PageKey(layout.GrainPages) {
		p.drop(k+i, 0xff)
	}
}

// dropSectors drops what is dirty of the sectors of a layer that lost its only reference to them.
func (p *Pool) dropSectors(base uint64, mask layout.Mask) {
	if p.Part.Empty() && p.Bad.Len() == 0 {
		return
	}
	for i := mask.Next(0); i < layout.WindowSectors; i = mask.Next(i + 1) {
		s := base + i
		p.drop(layout.KeyOf(p.id, s), 1<<(s%layout.PageSectors))
	}
}
