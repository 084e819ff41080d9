package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/media"
)

// Changes of the hardware and of the policy while the array runs.

// SetPolicy changes the policy; what is dirty or waits comes under the new one.
func (a *Array) SetPolicy(pol Policy) error {
	pol.fill()
	if err := pol.Validate(); err != nil {
		return err
	}
	a.opt.Policy = pol
	a.engine.copies.limits = pol.copies()
	a.engine.gaveAll()
	a.cache.SetPolicy(pol.cache())
	a.engine.endStep()
	return nil
}

// Policy returns the policy in force.
func (a *Array) Policy() Policy { return a.opt.Policy }

// SetMirrored tells whether the write cache has its mirror: whether both nodes of the
// I/O group are there. Without it what is dirty is destaged as fast as the mdisks take it, and
// new writes go through to the back end before they are acknowledged.
func (a *Array) SetMirrored(ok bool) {
	a.cache.SetMirrored(ok)
	a.engine.gaveAll()
	a.set.TellHealth()
	a.engine.endStep()
}

// Mirrored tells whether the write cache has its mirror.
func (a *Array) Mirrored() bool { return a.cache.Mirrored() }

// DeletePool removes a pool without volumes. The caps of the others grow when that is durable; on an error nothing has
// changed. Files of it that cannot be removed afterwards are no error: see Leftovers.
func (a *Array) DeletePool(p *Pool, done func(error)) {
	fail := func(err error) { a.exec.Post(func() { done(fmt.Errorf("pool %q %w", p.Name(), err)) }) }
	switch {
	case a.set.ByID(p.ID()) != p:
		fail(ErrNotFound)
		return
	case p.Ending:
		fail(fmt.Errorf("%w: it is being deleted", ErrInUse))
		return
	case p.Volumes > 0 || !p.Part.Empty() || p.Alloc.Allocated() > 0:
		fail(fmt.Errorf("%w: delete its %d volumes first, and wait until their space is free", ErrInUse, p.Volumes))
		return
	}
	p.Ending = true
	a.objects.RemovePool(p.ID(), func(err error) {
		if err != nil { // a start that does not find it now finds it again once it has volumes: their batch tells of it
			a.objects.TakeBack(func(again error) {
				p.Ending = false
				done(fmt.Errorf("pool %q could not be deleted: %w", p.Name(), directory.Doubtful(err, again)))
			})
			return
		}
		a.set.RemovePool(p)
		a.setCaps()
		disks := make([]media.Disk, len(p.Mdisks))
		for i, d := range p.Mdisks {
			disks[i].Name = d.Name()
		}
		a.set.Detach(p)
		a.media.Remove(p.Name(), disks, func(error) {
			a.engine.endStep()
			done(nil)
		})
	})
}
