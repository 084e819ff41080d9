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
		if a.making[p.Name] == 0 { // else it is counted below
			n += len(p.Mdisks)
		}
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
	a.reserve(spec.Name, spec.Mdisks)
	inTurn(len(spec.Mdisks), func(i int, next func(error)) {
		m := spec.Mdisks[i]
		a.store.MakeMedium(mediumName(spec.Name, m.Name), m.Size&^(extentBytes-1), next)
	}, func(made int, err error) {
		if err != nil {
			a.removeMdisks(spec.Name, spec.Mdisks[:made], func(e error) {
				a.release(spec.Name, spec.Mdisks)
				done(errors.Join(err, e))
			})
			return
		}
		a.release(spec.Name, spec.Mdisks)
		done(nil)
	})
}

// removeMdisks has the store remove the mdisks of a pool that the array does not have, one after another, all of them
// whatever errors there are. Nobody can use their names meanwhile.
func (a *Array) removeMdisks(pool string, mdisks []MdiskSpec, done func(error)) {
	a.reserve(pool, mdisks)
	var all error
	inTurn(len(mdisks), func(i int, next func(error)) {
		a.store.RemoveMedium(mediumName(pool, mdisks[i].Name), func(err error) {
			all = errors.Join(all, err)
			next(nil)
		})
	}, func(int, error) {
		a.release(pool, mdisks)
		done(all)
	})
}

// inTurn calls step for 0 to n-1, each when the one before has called next, and then end with how many there
// were without an error. A step may call next at once.
func inTurn(n int, step func(i int, next func(error)), end func(done int, err error)) {
	var from func(i int)
	from = func(i int) {
		if i == n {
			end(i, nil)
			return
		}
		step(i, func(err error) {
			if err != nil {
				end(i, err)
				return
			}
			from(i + 1)
		})
	}
	from(0)
}

// reserve keeps the names of a pool and of its mdisks while the store works on them.
func (a *Array) reserve(pool string, mdisks []MdiskSpec) {
	if a.making == nil {
		a.making, a.made = map[string]int{}, map[string]bool{}
	}
	a.making[pool] = len(mdisks)
	for _, m := range mdisks {
		a.made[mediumName(pool, m.Name)] = true
	}
}

// release ends reserve.
func (a *Array) release(pool string, mdisks []MdiskSpec) {
	delete(a.making, pool)
	for _, m := range mdisks {
		delete(a.made, mediumName(pool, m.Name))
	}
}

// openPool opens a pool whose mdisks were made, and makes it durable. It is there, and has its part of the cache, only then.
func (a *Array) openPool(spec PoolSpec, done func(*Pool, error)) {
	fail := func(err error) {
		a.removeMdisks(spec.Name, spec.Mdisks, func(e error) {
			a.exec.Post(func() { done(nil, errors.Join(err, e)) })
		})
	}
	if int(a.objects.NextPool) >= maxPools { // others were opened while the mdisks were made
		fail(fmt.Errorf("pool %q: an array can make no more than %d pools in its life", spec.Name, maxPools))
		return
	}
	for i := range spec.Mdisks {
		spec.Mdisks[i].ID = a.objects.NextMdisk
		a.objects.NextMdisk++
	}
	spec.ID = a.objects.NextPool
	p, err := a.newPool(spec)
	if err != nil {
		fail(err)
		return
	}
	a.objects.NextPool++
	a.reserve(spec.Name, spec.Mdisks)
	a.changeObjects(func() (undo func()) {
		return swap(&a.objects.Pools, append(a.objects.Pools, spec))
	}, func(err error) {
		if err != nil { // a start that found the pool would miss the files that are removed here
			a.takeBack(func() {
				a.release(spec.Name, spec.Mdisks)
				if a.broken != "" {
					done(nil, err)
					return
				}
				fail(err)
			})
			return
		}
		a.release(spec.Name, spec.Mdisks)
		a.addPool(p)
		a.setCaps()
		for _, other := range a.Pools() {
			other.part.Kick() // what is above the smaller cap drains
		}
		a.endStep()
		done(p, nil)
	})
}
