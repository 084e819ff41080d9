package array

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/directory"
)

// A pool is made in three steps: its specification is checked, the store makes its mdisks one after
// another (which waits for a disk, and not on the executor), and the pool is opened and made durable.
// Until the last one nothing of the array has changed, and an error takes back what was made.

// openPool opens a pool whose mdisks were made, and makes it durable. It is there, and has its part of the cache, only then.
func (a *Array) openPool(spec PoolSpec, done func(*Pool, error)) {
	disks := spec.Disks()
	fail := func(err error) {
		a.media.Remove(spec.Name, disks, func(e error) {
			a.exec.Post(func() { done(nil, errors.Join(err, e)) })
		})
	}
	if int(a.objects.NextPool) >= directory.MaxPools { // others were opened while the mdisks were made
		fail(fmt.Errorf("pool %q: an array can make no more than %d pools in its life", spec.Name, directory.MaxPools))
		return
	}
	used := a.objects.NumberPool(&spec)
	p, err := a.set.NewPool(spec)
	if err != nil {
		fail(err)
		return
	}
	used()
	a.media.Keep(spec.Name, disks)
	a.objects.AddPool(spec, func(err error) {
		if err != nil { // a start that found the pool would miss the files that are removed here
			a.objects.MustTakeBack(func(again error) {
				a.media.Release(spec.Name, disks)
				if again != nil {
					done(nil, directory.Doubtful(err, again))
					return
				}
				fail(err)
			})
			return
		}
		a.media.Release(spec.Name, disks)
		a.set.AddPool(p)
		a.setCaps()
		for _, other := range a.Pools() {
			other.Part.Kick() // what is above the smaller cap drains
		}
		a.engine.endStep()
		done(p, nil)
	})
}

// Leftovers tells of the files of pools that are gone which could not be removed, a line each.
func (a *Array) Leftovers() []string { return a.media.Leftovers() }

// troubles are lines of Health about the array as a whole.
func (a *Array) troubles() []string {
	if a.engine.broken != "" {
		return append(a.Leftovers(), "changes are refused: "+a.engine.broken)
	}
	return a.Leftovers()
}
