package array

import (
	"errors"
	"fmt"
)

// A pool is made in three steps: its specification is checked, the store makes its mdisks one after
// another (which waits for a disk, and not on the executor), and the pool is opened and made durable.
// Until the last one nothing of the array has changed, and an error takes back what was made.

// mediumName is the name under which the store keeps an mdisk.
func mediumName(pool, mdisk string) string { return pool + "." + mdisk }

// checkMdisks checks the mdisks of a new pool.
func (a *Array) checkMdisks(spec *PoolSpec) error {
	if len(spec.Mdisks) == 0 || int(a.objects.NextPool) >= maxPools {
		return fmt.Errorf("pool %q: give it at least one mdisk (and no more than %d pools)", spec.Name, maxPools)
	}
	// Names of pools and mdisks may hold the dot between them: pool a.b and pool a may mean one medium.
	taken, n := map[string]string{}, len(spec.Mdisks)
	for _, p := range a.objects.Pools {
		n += len(p.Mdisks)
		for _, m := range p.Mdisks {
			taken[mediumName(p.Name, m.Name)] = p.Name
		}
	}
	for _, m := range a.making {
		n += m
	}
	if n > maxMdisks {
		return fmt.Errorf("pool %q: with its %d mdisks the array would have %d, and it can have %d; make fewer and larger ones", spec.Name, len(spec.Mdisks), n, maxMdisks)
	}
	for _, m := range spec.Mdisks {
		if err := checkName("mdisk", m.Name); err != nil {
			return err
		}
		name := mediumName(spec.Name, m.Name)
		switch other, dup := taken[name]; {
		case dup && other == spec.Name, m.Size < extentBytes, m.Size > maxMdiskBytes:
			return fmt.Errorf("mdisk %q: sizes go from 4 MiB to 4 TiB, and names are unique in a pool", m.Name)
		case dup, a.made[name]:
			return fmt.Errorf("mdisk %q of pool %q: the files of %s are those of another pool; choose another name", m.Name, spec.Name, name)
		}
		taken[name] = spec.Name
	}
	return nil
}

// makeMdisks has the store make the mdisks of a pool, one after another: the store's workers are the hosts', too.
func (a *Array) makeMdisks(spec PoolSpec, done func(error)) {
	if a.making == nil {
		a.making, a.made = map[string]int{}, map[string]bool{}
	}
	a.making[spec.Name] = len(spec.Mdisks)
	for _, m := range spec.Mdisks {
		a.made[mediumName(spec.Name, m.Name)] = true
	}
	end := func(made int, err error) {
		delete(a.making, spec.Name)
		for _, m := range spec.Mdisks {
			delete(a.made, mediumName(spec.Name, m.Name))
		}
		if err != nil {
			err = errors.Join(err, a.removeMedia(spec.Name, spec.Mdisks[:made]))
		}
		done(err)
	}
	var next func(i int)
	next = func(i int) {
		if i == len(spec.Mdisks) {
			end(i, nil)
			return
		}
		m := spec.Mdisks[i]
		a.store.MakeMedium(mediumName(spec.Name, m.Name), m.Size&^(extentBytes-1), func(err error) {
			if err != nil {
				end(i, err)
				return
			}
			next(i + 1)
		})
	}
	next(0)
}

// openPool opens a pool whose mdisks were made, and makes it durable.
func (a *Array) openPool(spec PoolSpec, done func(*Pool, error)) {
	fail := func(err error) {
		err = errors.Join(err, a.removeMedia(spec.Name, spec.Mdisks))
		a.exec.Post(func() { done(nil, err) })
	}
	for i := range spec.Mdisks {
		spec.Mdisks[i].ID = a.objects.NextMdisk
		a.objects.NextMdisk++
	}
	spec.ID = a.objects.NextPool
	p, err := a.addPool(spec)
	if err != nil {
		fail(err)
		return
	}
	a.objects.NextPool++
	a.objects.Pools = append(a.objects.Pools, spec)
	a.setCaps()
	for _, other := range a.Pools() {
		a.needDestage(other) // what is above the smaller cap drains
	}
	a.commitObjects(func(err error) {
		if err != nil && p.volumes == 0 {
			a.forgetPool(p)
			fail(err)
			return
		}
		done(p, err)
	})
	a.endStep()
}

// removeMedia removes mdisks from the store.
func (a *Array) removeMedia(pool string, mdisks []MdiskSpec) error {
	var err error
	for _, m := range mdisks {
		err = errors.Join(err, a.store.RemoveMedium(mediumName(pool, m.Name)))
	}
	return err
}
