package array

import (
	"fmt"
	"slices"

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
	relist := pol.Order != a.opt.Policy.Order
	a.opt.Policy = pol
	a.gaveAll()
	for _, p := range a.Pools() {
		if relist {
			p.relist()
		}
		a.needDestage(p)
	}
	a.endStep()
	return nil
}

// Policy returns the policy in force.
func (a *Array) Policy() Policy { return a.opt.Policy }

// relist moves the dirty pages to the lists of the policy's order, oldest first.
func (p *Pool) relist() {
	c, pt := p.a.cache, &p.part
	var all []uint32
	take := func(lists []dirtyList) {
		for _, l := range lists {
			for i := l.head; i != noPage; i = c.pages[i].next {
				all = append(all, i)
			}
		}
	}
	for _, v := range pt.ring {
		take(v.dirty)
	}
	take(pt.lru)
	slices.SortFunc(all, func(x, y uint32) int { return int(int32(c.pages[x].age - c.pages[y].age)) })
	for _, i := range all {
		v := p.a.volumeByID(c.pages[i].vol)
		p.removeDirty(v, i)
		p.addDirty(v, i)
	}
}

// SetWriteMode changes how a pool takes writes.
func (p *Pool) SetWriteMode(m WriteMode) {
	p.writeMode = m
	p.a.gaveAll()
	p.a.needDestage(p)
	p.a.endStep()
}

// SetMirrored tells whether the write cache has its mirror: whether both nodes of the
// I/O group are there. Without it what is dirty is destaged as fast as the mdisks take it, and
// new writes go through to the back end before they are acknowledged.
func (a *Array) SetMirrored(ok bool) {
	a.degraded = !ok
	a.gaveAll()
	for _, p := range a.Pools() {
		a.needDestage(p)
	}
	a.tellHealth()
	a.endStep()
}

// Mirrored tells whether the write cache has its mirror.
func (a *Array) Mirrored() bool { return !a.degraded }

// mdisk returns the pool's mdisk of this name.
func (p *Pool) mdisk(name string) (*mdisk, error) {
	for _, d := range p.mdisks {
		if d.name == name {
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
	if err != nil || d.offline == offline {
		return err
	}
	d.offline, d.away = offline, p.a.exec.Now()
	p.space.SetDown(slices.Index(p.mdisks, d), offline)
	if !offline {
		for i := d.pinned.head; i != noPage; i = d.pinned.head {
			v := p.a.volumeByID(p.a.cache.pages[i].vol)
			p.removeDirty(v, i)
			p.addDirty(v, i)
		}
		parked := d.parked
		d.parked = nil
		for _, u := range parked {
			p.unpin(len(u.pages))
			p.a.issue(u)
		}
	}
	p.tellHealth()
	p.a.needDestage(p)
	p.a.endStep()
	return nil
}

// SetMdiskLimits changes the limits of an mdisk; 0 is none.
func (p *Pool) SetMdiskLimits(name string, bandwidth, iops uint64) error {
	d, err := p.mdisk(name)
	if err != nil {
		return err
	}
	d.bandwidth, d.iops = bandwidth, iops
	return nil
}

// pin moves a dirty page to the list of its mdisk, which is offline.
func (p *Pool) pin(d *mdisk, i uint32) {
	pg := &p.a.cache.pages[i]
	p.removeDirty(p.a.volumeByID(pg.vol), i)
	pg.list = listPinned
	p.a.cache.listPush(&d.pinned, i)
	p.pinMore(1)
}

func (p *Pool) pinMore(n int) {
	p.pinnedPages += n
	p.a.pinned += n
}

func (p *Pool) unpin(n int) { p.pinMore(-n) }

// writable tells whether what lies at a physical sector can be written.
func (p *Pool) writable(phys uint64) block.Status {
	if p.space.AnyDown() {
		if md, _, _ := p.space.Locate(phys); p.mdisks[md].offline {
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
	case p.volumes > 0 || p.part.used > 0 || p.part.reserve.used > 0 || p.space.Allocated() > 0:
		fail(fmt.Errorf("%w: delete its %d volumes first, and wait until their space is free", ErrInUse, p.volumes))
		return
	}
	p.ending = true
	a.changeObjects(func() (undo func()) {
		return swap(&a.objects.Pools, slices.DeleteFunc(slices.Clone(a.objects.Pools), func(s PoolSpec) bool { return s.ID == p.id }))
	}, func(err error) {
		if err != nil { // a start that does not find it now finds it again once it has volumes: their batch tells of it
			a.takeBack(func(again error) {
				p.ending = false
				done(fmt.Errorf("pool %q could not be deleted: %w", p.name, doubtful(err, again)))
			})
			return
		}
		a.pools[p.id] = nil
		if p.part.wakeAt != 0 {
			p.part.wake.Stop()
		}
		a.setCaps()
		disks := make([]media.Disk, len(p.mdisks))
		a.rows.Drop(rowsOfGone+uint64(p.id), 0)
		for i, d := range p.mdisks {
			disks[i].Name = d.name
			d.removed = true
			a.rows.Drop(1<<32|uint64(d.id), 0)
		}
		a.media.Remove(p.name, disks, func(error) {
			a.endStep()
			done(nil)
		})
	})
}
