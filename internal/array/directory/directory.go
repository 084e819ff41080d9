// The document in memory, how it is loaded, and which changes of it there are. Invariant: it
// changes when the change's turn to be committed has come, and back when that has failed
// (change.go), but for the next numbers.

package directory

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array/metadata"
)

// key is that of the document.
const key = "o"

// Hooks are what a Directory tells its user.
type Hooks struct {
	// Doubtful: a change could neither be made durable nor be taken back, and hosts rely on it, so
	// that they may not write until this is called again, with "": the objects are durable.
	Doubtful func(why string)
	// Stepped: what was taken back is durable, or cannot be.
	Stepped func()
}

// Directory is the document with its changes.
type Directory struct {
	Objects
	meta  *metadata.Ledger
	kept  bool // there is a next start that reads it
	blobs []blob
	hooks Hooks
	// doubt: what hosts rely on is in doubt. settled hear when it is not any more.
	doubt   bool
	settled []func()
}

// blob is a value for the front ends that is not durable yet.
type blob struct {
	name  string
	value []byte
}

// New returns a directory of which nothing is known yet: see Load. Without payload nobody opens the
// store again, and nothing is written: arrays of 10,000 volumes are made over such ones.
func New(meta *metadata.Ledger, payload bool, hooks Hooks) *Directory {
	return &Directory{meta: meta, kept: payload, hooks: hooks}
}

// Load reads the document, or makes the first one, of an array with a UUID. It waits.
func (d *Directory) Load(uuid uint64) error {
	v, err := d.meta.Get(key)
	if d.Objects = (Objects{UUID: uuid, NextVolume: 1}); v != nil {
		d.Objects = Objects{}
		err = json.Unmarshal(v, &d.Objects)
	}
	if err != nil {
		return fmt.Errorf("the array's objects cannot be read: %w", err)
	}
	if err := d.validate(); err != nil {
		return fmt.Errorf("the array's objects are damaged: %w; restore the data folder from a copy", err)
	}
	return nil
}

// NumberPool gives the mdisks of a new pool their numbers, and says the pool's, which is used when
// Used says so.
func (d *Directory) NumberPool(spec *PoolSpec) (used func()) {
	for i := range spec.Mdisks {
		spec.Mdisks[i].ID = d.NextMdisk
		d.NextMdisk++
	}
	spec.ID = d.NextPool
	return func() { d.NextPool++ }
}

// NumberVolume gives a new volume its number.
func (d *Directory) NumberVolume(spec *VolumeSpec) {
	spec.ID = d.NextVolume
	d.NextVolume++
}

// Announce says that the store may have the mdisks of a pool that is about to be made. They are stray until AddPool: a
// start removes them.
func (d *Directory) Announce(spec PoolSpec, done func(error)) {
	d.change(func() (undo func()) {
		return d.addStray(spec.Media())
	}, done)
}

// AddPool adds a pool. As with all changes here, done hears when it is durable, or that it is not:
// then whether a start finds it is unknown until it is taken back.
// Its mdisks are stray no more, unless it is taken back.
func (d *Directory) AddPool(spec PoolSpec, done func(error)) {
	d.change(func() (undo func()) {
		pools := swap(&d.Pools, append(d.Pools, spec))
		names := spec.Media()
		d.Forget(names)
		return func() {
			pools()
			d.addStray(names)
		}
	}, done)
}

// RemovePool removes the pool of a number. Its mdisks are stray until Forget.
func (d *Directory) RemovePool(id uint16, done func(error)) {
	d.change(func() (undo func()) {
		var names []string
		pools := swap(&d.Pools, slices.DeleteFunc(slices.Clone(d.Pools), func(s PoolSpec) bool {
			if s.ID == id {
				names = s.Media()
			}
			return s.ID == id
		}))
		stray := d.addStray(names)
		return func() {
			pools()
			stray()
		}
	}, done)
}

// addStray adds mdisks that are stray now, and returns what takes that back.
func (d *Directory) addStray(names []string) (undo func()) {
	fresh := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return slices.Contains(d.Stray, s) })
	d.Stray = append(d.Stray, fresh...)
	return func() { d.Forget(fresh) }
}

// Strays returns the names of the mdisks that the store may have and no pool has.
func (d *Directory) Strays() (names []string) {
	for _, name := range d.Stray {
		if !slices.ContainsFunc(d.Pools, func(s PoolSpec) bool { return slices.Contains(s.Media(), name) }) {
			names = append(names, name)
		}
	}
	return names
}

// Unknown returns the names of a new pool's mdisks that are not stray: nobody knows of anything under
// these in the store.
func (d *Directory) Unknown(spec *PoolSpec) []string {
	return slices.DeleteFunc(spec.Media(), func(s string) bool { return slices.Contains(d.Stray, s) })
}

// Forget says that mdisks are stray no more: the store does not have them, or a pool has.
func (d *Directory) Forget(names []string) {
	d.Stray = slices.DeleteFunc(slices.Clone(d.Stray), func(s string) bool { return slices.Contains(names, s) })
}

// AddVolume adds a volume.
func (d *Directory) AddVolume(spec VolumeSpec, done func(error)) {
	d.change(func() (undo func()) { return swap(&d.Volumes, append(d.Volumes, spec)) }, done)
}

// RemoveVolume removes the volume of a number.
func (d *Directory) RemoveVolume(id uint32, done func(error)) {
	d.change(func() (undo func()) {
		return swap(&d.Volumes, slices.DeleteFunc(slices.Clone(d.Volumes), func(s VolumeSpec) bool { return s.ID == id }))
	}, done)
}

// SetVolume gives the volume of the same number another description.
func (d *Directory) SetVolume(spec VolumeSpec, done func(error)) {
	d.change(func() (undo func()) {
		vols := slices.Clone(d.Volumes)
		for i := range vols {
			if vols[i].ID == spec.ID {
				vols[i] = spec
			}
		}
		return swap(&d.Volumes, vols)
	}, done)
}
