package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/block"
)

// Changes of the hardware and of the policy while the array runs.

// SetPolicy changes the policy; what is dirty or waits comes under the new one.
func (a *Array) SetPolicy(pol Policy) error {
	pol.fill()
	if err := pol.Validate(); err != nil {
		return err
	}
	a.opt.Policy = pol
	a.gaveAll()
	a.cache.SetPolicy(pol.cache())
	a.endStep()
	return nil
}

// Policy returns the policy in force.
func (a *Array) Policy() Policy { return a.opt.Policy }

// SetWriteMode changes how a pool takes writes.
func (p *Pool) SetWriteMode(m WriteMode) {
	p.part.SetMode(m)
	p.a.gaveAll()
	p.a.endStep()
}

// SetMirrored tells whether the write cache has its mirror: whether both nodes of the
// I/O group are there. Without it what is dirty is destaged as fast as the mdisks take it, and
// new writes go through to the back end before they are acknowledged.
func (a *Array) SetMirrored(ok bool) {
	a.cache.SetMirrored(ok)
	a.gaveAll()
	a.tellHealth()
	a.endStep()
}

// Mirrored tells whether the write cache has its mirror.
func (a *Array) Mirrored() bool { return a.cache.Mirrored() }

// mdisk returns the pool's mdisk of this name.
func (p *Pool) mdisk(name string) (*mdisk, error) {
	for _, d := range p.mdisks {
		if d.Name() == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("mdisk %q of pool %q %w", name, p.name, ErrNotFound)
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
	p.space.SetDown(d.Number(), offline)
	p.part.SetAway(d.Number(), offline)
	if !offline {
		parked := d.parked
		d.parked = nil
		for _, u := range parked {
			p.part.Unpark(&u.Batch)
			p.a.issue(u)
		}
	}
	p.tellHealth()
	p.part.Kick()
	p.a.endStep()
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

// writable tells whether what lies at a physical sector can be written.
func (p *Pool) writable(phys uint64) block.Status {
	if p.space.AnyDown() {
		if md, _, _ := p.space.Locate(phys); p.mdisks[md].Offline() {
			return block.Offline
		}
	}
	return block.OK
}

// DeletePool removes a pool without volumes. The caps of the others grow when that is durable; on an error nothing has
// changed. Files of it that cannot be removed afterwards are no error: see Leftovers.
func (a *Array) DeletePool(p *Pool, done func(error)) {
	fail := func(err error) { a.exec.Post(func() { done(fmt.Errorf("pool %q %w", p.name, err)) }) }
	switch {
	case a.pools[p.id] != p:
		fail(ErrNotFound)
		return
	case p.ending:
		fail(fmt.Errorf("%w: it is being deleted", ErrInUse))
		return
	case p.volumes > 0 || !p.part.Empty() || p.space.Allocated() > 0:
		fail(fmt.Errorf("%w: delete its %d volumes first, and wait until their space is free", ErrInUse, p.volumes))
		return
	}
	p.ending = true
	a.objects.RemovePool(p.id, func(err error) {
		if err != nil { // a start that does not find it now finds it again once it has volumes: their batch tells of it
			a.objects.TakeBack(func(again error) {
				p.ending = false
				done(fmt.Errorf("pool %q could not be deleted: %w", p.name, directory.Doubtful(err, again)))
			})
			return
		}
		a.pools[p.id] = nil
		p.part.Close()
		a.setCaps()
		disks := make([]media.Disk, len(p.mdisks))
		a.rows.Drop(rowsOfGone+uint64(p.id), 0)
		for i, d := range p.mdisks {
			disks[i].Name = d.Name()
			p.part.Hold(i, false)
			a.back.Detach(d.Mdisk)
			a.rows.Drop(ownerOfMdisk|uint64(d.ID()), 0)
		}
		a.media.Remove(p.name, disks, func(error) {
			a.endStep()
			done(nil)
		})
	})
}
