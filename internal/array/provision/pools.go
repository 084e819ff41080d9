// Pools are made and removed. One is made in five steps: its specification is checked, the store is
// asked whether it has such mdisks, which would be another array's, they are announced, so that a start
// removes what it finds of them, the store makes them one after another (which waits for a disk, and
// not on the executor), and the pool is opened and made durable. Until the last one nothing else of the
// array has changed, and an error takes back what was made.

package provision

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/array/pool"
)

// CreatePool makes a pool of new mdisks. The caps of all partitions change at once. Other calls go
// on while the mdisks are made; on an error nothing is left of it.
func (m *Manager) CreatePool(spec directory.PoolSpec, done func(*pool.Pool, error)) {
	fail := func(err error) { m.Set.Exec.Post(func() { done(nil, err) }) }
	if err := m.refused(); err != nil {
		fail(fmt.Errorf("pool %q: %w", spec.Name, err))
		return
	}
	if err := directory.CheckName("pool", spec.Name); err != nil {
		fail(err)
		return
	}
	if m.Media.AwaitStrays(spec.Media(), func() { m.CreatePool(spec, done) }) {
		return
	}
	if m.Set.Pool(spec.Name) != nil || m.Media.Pool(spec.Name) > 0 {
		fail(fmt.Errorf("pool %q %w", spec.Name, directory.ErrExists))
		return
	}
	if err := m.Objects.CheckMdisks(&spec, m.Media); err != nil {
		fail(err)
		return
	}
	disks := spec.Disks()
	m.Media.Keep(spec.Name, disks)
	m.Media.Vacant(m.Objects.Unknown(&spec), func(err error) {
		if err != nil {
			m.Media.Release(spec.Name, disks)
			fail(fmt.Errorf("pool %q: %w", spec.Name, err))
			return
		}
		m.announce(spec, done)
	})
}

// announce is CreatePool of a pool whose mdisks can be made.
func (m *Manager) announce(spec directory.PoolSpec, done func(*pool.Pool, error)) {
	fail := func(err error) { m.Set.Exec.Post(func() { done(nil, err) }) }
	disks := spec.Disks()
	m.Objects.Announce(spec, func(err error) {
		m.Media.Release(spec.Name, disks)
		if err != nil { // whatever a start finds of that, it finds no files
			m.Objects.TakeBack(func(error) { fail(fmt.Errorf("pool %q could not be created: %w", spec.Name, err)) })
			return
		}
		m.Media.Make(spec.Name, disks, func(err error) {
			if err != nil {
				m.unmake(spec, done, err)
				return
			}
			m.openPool(spec, done)
		})
	})
}

// unmake ends the making of a pool that was announced, and removes what the store has of it.
func (m *Manager) unmake(spec directory.PoolSpec, done func(*pool.Pool, error), err error) {
	disks := spec.Disks()
	m.Media.Remove(spec.Name, disks, func(e error) {
		m.removed(spec.Name, disks, e)
		m.Set.Exec.Post(func() { done(nil, errors.Join(err, e)) })
	})
}

// openPool opens a pool whose mdisks were made, and makes it durable. It is there, and has its part
// of the cache, only then.
func (m *Manager) openPool(spec directory.PoolSpec, done func(*pool.Pool, error)) {
	disks := spec.Disks()
	fail := func(err error) { m.unmake(spec, done, err) }
	if int(m.Objects.NextPool) >= directory.MaxPools { // others were opened while the mdisks were made
		fail(fmt.Errorf("pool %q: an array can create no more than %d pools in its lifetime", spec.Name, directory.MaxPools))
		return
	}
	if err := m.refused(); err != nil { // since the mdisks were begun
		fail(fmt.Errorf("pool %q: %w", spec.Name, err))
		return
	}
	used := m.Objects.NumberPool(&spec)
	p, err := m.Set.NewPool(spec)
	if err != nil {
		fail(err)
		return
	}
	used()
	m.Media.Keep(spec.Name, disks)
	m.Objects.AddPool(spec, func(err error) {
		if err != nil { // a start that found the pool would miss the files that are removed here
			m.Objects.MustTakeBack(func(again error) {
				if again == nil {
					m.Media.Release(spec.Name, disks)
					fail(err)
					return
				}
				// It may find the pool: its files stay, and their names are kept.
				m.Objects.WhenSettled(func() {
					m.Media.Release(spec.Name, disks)
					m.Media.Remove(spec.Name, disks, func(e error) {
						m.removed(spec.Name, disks, e)
						m.Engine.EndStep()
					})
				})
				done(nil, directory.Doubtful(err, again))
			})
			return
		}
		m.Media.Release(spec.Name, disks)
		m.Set.AddPool(p)
		m.SetCaps()
		for _, other := range m.Set.Pools() {
			other.Part.Kick() // what is above the smaller cap drains
		}
		m.Engine.EndStep()
		done(p, nil)
	})
}

// DeletePool removes a pool without volumes. The caps of the others grow when that is durable; on
// an error nothing has changed. Files of it that cannot be removed afterwards are no error: see
// Leftovers.
func (m *Manager) DeletePool(p *pool.Pool, done func(error)) {
	fail := func(err error) { m.Set.Exec.Post(func() { done(fmt.Errorf("pool %q %w", p.Name(), err)) }) }
	switch {
	case m.Set.ByID(p.ID()) != p:
		fail(directory.ErrNotFound)
		return
	case p.Ending:
		fail(fmt.Errorf("%w: it is being deleted", directory.ErrInUse))
		return
	case p.VolumeCount() > 0 || !p.Part.Empty() || p.Alloc.Allocated() > 0:
		fail(fmt.Errorf("%w: delete its %d volumes first, and wait until their space is free", directory.ErrInUse, p.VolumeCount()))
		return
	}
	p.Ending = true
	disks := make([]media.Disk, len(p.Mdisks))
	for i, d := range p.Mdisks {
		disks[i].Name = d.Name()
	}
	m.Media.Keep(p.Name(), disks) // nobody makes files of these names while the deletion may fail
	m.Objects.RemovePool(p.ID(), func(err error) {
		if err != nil { // a start that does not find it now finds it again once it has volumes: their batch tells of it
			m.Objects.TakeBack(func(again error) {
				m.Media.Release(p.Name(), disks)
				p.Ending = false
				done(fmt.Errorf("pool %q could not be deleted: %w", p.Name(), directory.Doubtful(err, again)))
			})
			return
		}
		m.Set.RemovePool(p)
		m.SetCaps()
		m.Set.Detach(p)
		m.Media.Remove(p.Name(), disks, func(e error) {
			m.removed(p.Name(), disks, e)
			m.Engine.EndStep()
			done(nil)
		})
	})
}

// removed says that the mdisks of a pool that is gone are not in the store any more, unless there was an error. The next
// start removes what is left.
func (m *Manager) removed(pool string, disks []media.Disk, err error) {
	if err != nil {
		return
	}
	names := make([]string, len(disks))
	for i, d := range disks {
		names[i] = media.Name(pool, d.Name)
	}
	m.Objects.Forget(names)
}

// RemoveStrays removes what an earlier process had no time to: mdisks of pools that it had deleted, or had not made yet. It is
// called once, when the array has started.
func (m *Manager) RemoveStrays() {
	m.Media.RemoveStrays(m.Objects.Strays(), func(name string) { m.Objects.Forget([]string{name}) })
}

// SetCaps applies the cap policy to the pools that exist.
func (m *Manager) SetCaps() {
	if m.Set.Cache.SetCaps(m.CapPercent) {
		m.Engine.GaveAll()
	}
}
