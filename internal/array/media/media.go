// Package media makes and removes the mdisks of pools in a store, one after another: the store's
// workers are the hosts', too. While that lasts it keeps the names of the pools and of what the
// store has, and it knows what could not be removed. It knows no array and no pool, only names.
//
// One executor serialises all calls and callbacks.
package media

import (
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Disk is an mdisk of a pool.
type Disk struct {
	Name  string // in the pool
	Bytes uint64
}

// Maker makes and removes mdisks in a store.
type Maker struct {
	store block.Store
	pools map[string]int      // at work on: how many mdisks
	names map[string]bool     // of these in the store
	stray map[string][]func() // those that RemoveStrays is at work on, and who waits for that
	left  []leftover
}

// leftover is what could not be removed.
type leftover struct {
	name string
	err  error
}

// NewMaker returns the maker of mdisks in a store.
func NewMaker(store block.Store) *Maker {
	return &Maker{store: store, pools: map[string]int{}, names: map[string]bool{}, stray: map[string][]func(){}}
}

// Name is the name of an mdisk in the store. Names of pools and of mdisks may hold the dot between
// them, so that two mdisks may mean one name.
func Name(pool, mdisk string) string { return pool + "." + mdisk }

// Pool returns how many mdisks the maker is at work on for a pool, 0 for none of this name.
func (m *Maker) Pool(pool string) int { return m.pools[pool] }

// Disks returns how many mdisks the maker is at work on.
func (m *Maker) Disks() (n int) {
	for _, disks := range m.pools {
		n += disks
	}
	return n
}

// Has reports whether the maker is at work on what the store has under a name.
func (m *Maker) Has(name string) bool { return m.names[name] }

// Vacant reports the first of some names under which the store has something already.
func (m *Maker) Vacant(names []string, done func(error)) {
	inTurn(len(names), func(i int, next func(error)) { m.store.Vacant(names[i], next) }, func(_ int, err error) { done(err) })
}

// Make makes the mdisks of a pool. On an error none of them is there.
func (m *Maker) Make(pool string, disks []Disk, done func(error)) {
	m.Keep(pool, disks)
	inTurn(len(disks), func(i int, next func(error)) {
		name := Name(pool, disks[i].Name)
		m.store.MakeMedium(name, disks[i].Bytes, func(err error) {
			if err == nil {
				m.note(name, nil)
			}
			next(err)
		})
	}, func(made int, err error) {
		if err != nil {
			m.Remove(pool, disks[:made], func(e error) {
				m.Release(pool, disks)
				done(errors.Join(err, e))
			})
			return
		}
		m.Release(pool, disks)
		done(nil)
	})
}

// Remove removes mdisks that no pool has, all of them whatever errors there are; see Leftovers.
func (m *Maker) Remove(pool string, disks []Disk, done func(error)) {
	m.Keep(pool, disks)
	names := make([]string, len(disks))
	for i, d := range disks {
		names[i] = Name(pool, d.Name)
	}
	m.remove(names, func(err error) {
		m.Release(pool, disks)
		done(err)
	})
}

// RemoveStrays is Remove of what an earlier process has left under names of the store. gone hears of each name of which there is
// nothing any more.
func (m *Maker) RemoveStrays(names []string, gone func(name string)) {
	for _, name := range names {
		m.names[name], m.stray[name] = true, nil
	}
	for _, name := range names {
		m.remove([]string{name}, func(err error) {
			wait := m.stray[name]
			delete(m.names, name)
			delete(m.stray, name)
			if err == nil {
				gone(name)
			}
			for _, fn := range wait {
				fn()
			}
		})
	}
}

// AwaitStrays reports whether RemoveStrays is at work on one of some names, and has fn be called when it
// has ended with that.
func (m *Maker) AwaitStrays(names []string, fn func()) bool {
	for _, name := range names {
		if wait, busy := m.stray[name]; busy {
			m.stray[name] = append(wait, fn)
			return true
		}
	}
	return false
}

// remove removes what the store has under names.
func (m *Maker) remove(names []string, done func(error)) {
	var all error
	inTurn(len(names), func(i int, next func(error)) {
		m.store.RemoveMedium(names[i], func(err error) {
			m.note(names[i], err)
			all = errors.Join(all, err)
			next(nil)
		})
	}, func(int, error) { done(all) })
}

// Keep keeps the names of a pool and of its mdisks until Release, as Make and Remove do.
func (m *Maker) Keep(pool string, disks []Disk) {
	m.pools[pool] = len(disks)
	for _, d := range disks {
		m.names[Name(pool, d.Name)] = true
	}
}

// Release ends Keep.
func (m *Maker) Release(pool string, disks []Disk) {
	delete(m.pools, pool)
	for _, d := range disks {
		delete(m.names, Name(pool, d.Name))
	}
}

// note notes why an mdisk could not be removed, or, nil, that it was or that a new one is there.
func (m *Maker) note(name string, err error) {
	m.left = slices.DeleteFunc(m.left, func(l leftover) bool { return l.name == name })
	if err != nil {
		m.left = append(m.left, leftover{name, err})
	}
}

// Leftovers tells of the mdisks that could not be removed, a line each.
func (m *Maker) Leftovers() (lines []string) {
	for _, l := range m.left {
		lines = append(lines, fmt.Sprintf("mdisk %s no longer belongs to a pool, and its files could not be removed: %v; remove them", l.name, l.err))
	}
	return lines
}

// inTurn calls step for 0 to n-1, each when the one before has called next, and then end with how
// many there were without an error. A step may call next at once.
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
