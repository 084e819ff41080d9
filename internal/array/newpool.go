package array

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/media"
)

// A pool is made in three steps: its specification is checked, the store makes its mdisks one after
// another (which waits for a disk, and not on the executor), and the pool is opened and made durable.
// Until the last one nothing of the array has changed, and an error takes back what was made.

// checkMdisks checks the mdisks of a new pool.
func (a *Array) checkMdisks(spec *PoolSpec) error {
	if len(spec.Mdisks) == 0 || int(a.objects.NextPool) >= maxPools {
		return fmt.Errorf("pool %q: give it at least one mdisk (and no more than %d pools)", spec.Name, maxPools)
	}
	// Names of pools and mdisks may hold the dot between them: pool a.b and pool a may mean one medium.
	taken, n := map[string]string{}, len(spec.Mdisks)
	for _, p := range a.objects.Pools {
		if a.media.Pool(p.Name) == 0 { // else it is counted below
			n += len(p.Mdisks)
		}
		for _, m := range p.Mdisks {
			taken[media.Name(p.Name, m.Name)] = p.Name
		}
	}
	if n += a.media.Disks(); n > maxMdisks {
		return fmt.Errorf("pool %q: with its %d mdisks the array would have %d, and it can have %d; make fewer and larger ones", spec.Name, len(spec.Mdisks), n, maxMdisks)
	}
	for _, m := range spec.Mdisks {
		if err := checkName("mdisk", m.Name); err != nil {
			return err
		}
		name := media.Name(spec.Name, m.Name)
		switch other, dup := taken[name]; {
		case dup && other == spec.Name, m.Size < extentBytes, m.Size > maxMdiskBytes:
			return fmt.Errorf("mdisk %q: sizes go from 4 MiB to 4 TiB, and names are unique in a pool", m.Name)
		case dup, a.media.Has(name):
			return fmt.Errorf("mdisk %q of pool %q: the files of %s are those of another pool; choose another name", m.Name, spec.Name, name)
		}
		taken[name] = spec.Name
	}
	return nil
}

// disks returns the mdisks of a pool as the store makes them.
func (spec *PoolSpec) disks() (list []media.Disk) {
	for _, m := range spec.Mdisks {
		list = append(list, media.Disk{Name: m.Name, Bytes: m.Size &^ (extentBytes - 1)})
	}
	return list
}

// openPool opens a pool whose mdisks were made, and makes it durable. It is there, and has its part of the cache, only then.
func (a *Array) openPool(spec PoolSpec, done func(*Pool, error)) {
	disks := spec.disks()
	fail := func(err error) {
		a.media.Remove(spec.Name, disks, func(e error) {
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
	a.media.Keep(spec.Name, disks)
	a.changeObjects(func() (undo func()) {
		return swap(&a.objects.Pools, append(a.objects.Pools, spec))
	}, func(err error) {
		if err != nil { // a start that found the pool would miss the files that are removed here
			a.mustTakeBack(func(again error) {
				a.media.Release(spec.Name, disks)
				if again != nil {
					done(nil, doubtful(err, again))
					return
				}
				fail(err)
			})
			return
		}
		a.media.Release(spec.Name, disks)
		a.addPool(p)
		a.setCaps()
		for _, other := range a.Pools() {
			other.part.Kick() // what is above the smaller cap drains
		}
		a.endStep()
		done(p, nil)
	})
}

// Leftovers tells of the files of pools that are gone which could not be removed, a line each.
func (a *Array) Leftovers() []string { return a.media.Leftovers() }

// troubles are lines of Health about the array as a whole.
func (a *Array) troubles() []string {
	if a.broken != "" {
		return append(a.Leftovers(), "changes are refused: "+a.broken)
	}
	return a.Leftovers()
}
