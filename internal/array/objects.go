package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/directory"
)

// CreatePool makes a pool of new mdisks. The caps of all partitions change at once. Other calls go on
// while the mdisks are made; on an error nothing is left of it.
func (a *Array) CreatePool(spec PoolSpec, done func(*Pool, error)) {
	fail := func(err error) { a.exec.Post(func() { done(nil, err) }) }
	if err := directory.CheckName("pool", spec.Name); err != nil {
		fail(err)
		return
	}
	if a.Pool(spec.Name) != nil || a.media.Pool(spec.Name) > 0 {
		fail(fmt.Errorf("pool %q %w", spec.Name, ErrExists))
		return
	}
	if err := a.objects.CheckMdisks(&spec, a.media); err != nil {
		fail(err)
		return
	}
	a.media.Make(spec.Name, spec.Disks(), func(err error) {
		if err != nil {
			fail(err)
			return
		}
		a.openPool(spec, done)
	})
}

// SetBlob keeps a value for the front ends, durably, under a name; nil removes it. On an error the value before counts,
// after a start, too, unless the error says that nobody knows.
func (a *Array) SetBlob(name string, value []byte, done func(error)) {
	a.objects.SetBlob(name, value, done)
}

// Blob returns what SetBlob was given last, nil if nothing.
func (a *Array) Blob(name string) []byte { return a.objects.Blob(name) }
