// A pool: its space, its mdisks, its partition of the write cache, and what requests book with it.
//
// Who owns what: the space and the partition own their numbers; the queue for space is that of the
// requests, which only is found by the pool.

package pool

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// Pool is a set of mdisks, the space on them, and a partition of the write cache.
type Pool struct {
	Alloc    *alloc.Space
	Set      *Set
	id       uint16
	name     string
	CopyData bool // copies move data through the cache even inside the pool
	Mdisks   []*Mdisk
	Part     *admission.Pool // of the write cache, and who waits for it
	Bad      backend.BadSectors

	wait         [block.NumOrigins]metrics.Histogram
	waitingBytes [block.NumOrigins]int64
	throttled    [len(primNames)]int64 // ns that offloads waited for their budget
	copying      [len(primNames)]int64 // bytes of pieces of data copies in progress
	members      []*Volume             // all that the set has of it, by number
	volumes      int                   // of these, those that keep it from being deleted
	Ending       bool                  // it is being deleted, and that is not durable yet
	SpaceWait    ticket.Queue          // writes whose grains transfers or discards still keep
}

// Waiting books bytes of an origin that wait for room in the partition; fewer are negative.
func (p *Pool) Waiting(o block.Origin, bytes int64) { p.waitingBytes[o] += bytes }

// Waited books how long a write has waited for room, in nanoseconds.
func (p *Pool) Waited(o block.Origin, ns int64) { p.wait[o].Observe(ns) }

// WaitedForBudget books how long an offload has waited for its budget, in nanoseconds.
func (p *Pool) WaitedForBudget(o block.Origin, ns int64) { p.throttled[PrimOf(o)] += ns }

// Copying books bytes of pieces of data copies that are under way; fewer are negative.
func (p *Pool) Copying(o block.Origin, bytes int64) { p.copying[PrimOf(o)] += bytes }

// InFlight is the bytes of pieces of data copies of an origin that are under way.
func (p *Pool) InFlight(o block.Origin) int64 { return p.copying[PrimOf(o)] }

// ID returns the pool's number, which is never used again.
func (p *Pool) ID() uint16 { return p.id }

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// Volumes returns the pool's volumes in the order of their making.
func (p *Pool) Volumes() []*Volume { return there(p.members) }

// Members returns all that the set has of the pool's volumes: those that are being made, too, and
// those of whose deletion not all has gone.
func (p *Pool) Members() []*Volume { return p.members }

// place is where a volume of a number is, or would be, among the members; member is the one there.
func (p *Pool) place(id uint32) int {
	at, _ := slices.BinarySearchFunc(p.members, id, func(x *Volume, id uint32) int { return cmp.Compare(x.id, id) })
	return at
}

func (p *Pool) member(id uint32) *Volume { return p.members[p.place(id)] }

// VolumeCount returns how many volumes the pool has, those that are being made, too.
func (p *Pool) VolumeCount() int { return p.volumes }

// SetWriteMode changes how a pool takes writes.
func (p *Pool) SetWriteMode(m wcache.Mode) {
	p.Part.SetMode(m)
	p.Set.Up.Changed()
	p.Set.Up.Step()
}

// mdisk returns the pool's mdisk of this name.
func (p *Pool) mdisk(name string) (*Mdisk, error) {
	for _, d := range p.Mdisks {
		if d.Name() == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("mdisk %q of pool %q %w", name, p.name, directory.ErrNotFound)
}

// SetMdiskOffline takes an mdisk away or gives it back. While it is away, what is
// dirty for it stays pinned in the cache, reads from it and writes to what lies on it end
// Offline, and new space is taken from others. What it holds must be as it was when it comes back.
func (p *Pool) SetMdiskOffline(name string, offline bool) error {
	d, err := p.mdisk(name)
	if err != nil || d.Offline() == offline {
		return err
	}
	d.SetOffline(offline)
	p.Alloc.SetDown(d.Number(), offline)
	p.Part.SetAway(d.Number(), offline)
	if offline {
		d.parkAll()
	} else {
		d.unparkAll()
		p.discardSoon()
	}
	p.tellHealth()
	p.Part.Kick()
	p.Set.Up.Step()
	return nil
}

// SetMdiskLimits changes the limits of an mdisk; 0 is none.
func (p *Pool) SetMdiskLimits(name string, bandwidth, iops uint64) error {
	d, err := p.mdisk(name)
	if err != nil {
		return err
	}
	d.SetLimits(backend.Limits{Bandwidth: bandwidth, IOPS: iops})
	return nil
}

// Writable reports whether what lies at a physical sector can be written.
func (p *Pool) Writable(phys uint64) block.Status {
	if p.Alloc.AnyDown() {
		if md, _, _ := p.Alloc.Locate(phys); p.Mdisks[md].Offline() {
			return block.Offline
		}
	}
	return block.OK
}

// UnpinRead lets the space go that an operation has read.
func (p *Pool) UnpinRead(x *backend.Op) { p.Alloc.Unpin(x.Phys, x.IO.N/block.SectorSize) }

func (p *Pool) tellHealth() {
	for _, v := range p.Volumes() {
		v.Tell(block.EventHealth)
	}
}
