// Pools and volumes are made, changed and removed; see package provision.

package array

import (
	"maps"
	"slices"
)

// CreatePool makes a pool of new mdisks. The caps of all partitions change at once. Other calls go
// on while the mdisks are made; on an error nothing is left of it.
func (a *Array) CreatePool(spec PoolSpec, done func(*Pool, error)) { a.manager.CreatePool(spec, done) }

// DeletePool removes a pool without volumes. The caps of the others grow when that is durable; on
// an error nothing has changed. Files of it that cannot be removed afterwards are no error: see
// Leftovers.
func (a *Array) DeletePool(p *Pool, done func(error)) { a.manager.DeletePool(p, done) }

// CreateVolume makes a volume. It is there, and hosts may use it, when that is durable; until then
// its name and what a thick one reserves are kept for it. On an error nothing is left of it.
func (a *Array) CreateVolume(spec VolumeSpec, done func(*Volume, error)) {
	a.manager.CreateVolume(spec, done)
}

// DeleteVolume removes a volume; its space comes back in the background. Requests that wait end
// Gone or Cancelled first. Until the deletion is durable requests end Resources, for on an error
// the volume goes on as it was.
func (a *Array) DeleteVolume(v *Volume, done func(error)) { a.manager.DeleteVolume(v, done) }

// Resize changes a volume's size; what is cut off is gone. On an error the volume has the size and
// the contents that it had. Changes of one volume's size are made one after another.
func (a *Array) Resize(v *Volume, sectors uint64, done func(error)) {
	a.manager.Resize(v, sectors, done)
}

// Leftovers tells of the files of pools that are gone which could not be removed, a line each.
func (a *Array) Leftovers() []string { return a.manager.Media.Leftovers() }

// SetBlob keeps a value for the front ends, durably, under a name; nil removes it. On an error the
// value before counts, after a start, too, unless the error says that nobody knows.
func (a *Array) SetBlob(name string, value []byte, done func(error)) {
	a.manager.Objects.SetBlob(name, value, done)
}

// Blob returns what SetBlob was given last, nil if nothing.
func (a *Array) Blob(name string) []byte { return a.manager.Objects.Blob(name) }

// BlobNames returns the names of the values that are kept, sorted.
func (a *Array) BlobNames() []string { return slices.Sorted(maps.Keys(a.manager.Objects.Blobs)) }
