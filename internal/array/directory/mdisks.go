// Which mdisks a new pool may have: how many, how large, and that no two pools mean the same files
// in the store, those that are being made or kept included.

package directory

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/media"
)

// CheckMdisks checks the mdisks of a new pool; made has those that are being made.
func (d *Directory) CheckMdisks(spec *PoolSpec, made *media.Maker) error {
	if len(spec.Mdisks) == 0 || int(d.NextPool) >= MaxPools {
		return fmt.Errorf("pool %q: give it at least one mdisk (and no more than %d pools)", spec.Name, MaxPools)
	}
	// Names of pools and mdisks may hold the dot between them: pool a.b and pool a may mean one
	// medium.
	taken, n := map[string]string{}, len(spec.Mdisks)
	for _, p := range d.Pools {
		if made.Pool(p.Name) == 0 { // else it is counted below
			n += len(p.Mdisks)
		}
		for _, m := range p.Mdisks {
			taken[media.Name(p.Name, m.Name)] = p.Name
		}
	}
	if n += made.Disks(); n > MaxMdisks {
		return fmt.Errorf("pool %q: with its %d mdisks the array would have %d, and it can have %d; give it fewer and larger ones", spec.Name, len(spec.Mdisks), n, MaxMdisks)
	}
	for _, m := range spec.Mdisks {
		if err := CheckName("mdisk", m.Name); err != nil {
			return err
		}
		name := media.Name(spec.Name, m.Name)
		switch other, dup := taken[name]; {
		case dup && other == spec.Name, m.Size < layout.ExtentBytes, m.Size > maxMdiskBytes:
			return fmt.Errorf("mdisk %q: its size must be from 4 MiB to 4 TiB, and its name unique in the pool", m.Name)
		case dup, made.Has(name):
			return fmt.Errorf("mdisk %q of pool %q: the files of %s belong to another pool; choose another name", m.Name, spec.Name, name)
		}
		taken[name] = spec.Name
	}
	return nil
}

// Media returns the names of the mdisks in the store.
func (spec *PoolSpec) Media() (names []string) {
	for _, m := range spec.Mdisks {
		names = append(names, media.Name(spec.Name, m.Name))
	}
	return names
}

// Disks returns the mdisks of a pool as the store makes them.
func (spec *PoolSpec) Disks() (list []media.Disk) {
	for _, m := range spec.Mdisks {
		list = append(list, media.Disk{Name: m.Name, Bytes: m.Size &^ (layout.ExtentBytes - 1)})
	}
	return list
}
