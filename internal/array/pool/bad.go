// Sectors that failed their checksum, and dirty ones that nobody refers to any more. The list of
// bad sectors is the back end's; this file says what goes on it and what leaves it.

package pool

import (
	"errors"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// NoteBad puts the sectors of a read that failed their checksums on the list.
func (set *Set) NoteBad(p *Pool, x *backend.Op) int {
	var e *block.ChecksumError
	if !errors.As(x.IO.Err, &e) {
		return 0
	}
	n := 0
	for _, s := range e.Sectors {
		phys := x.Phys + s - x.IO.Off/block.SectorSize
		k, in := layout.KeyOf(p.id, phys), int(phys%layout.PageSectors)
		if i := set.Cache.Lookup(k); i != wcache.NoPage && set.Cache.Mask(i)>>in&1 != 0 {
			continue // it was written anew meanwhile
		}
		set.Back.Bad.Add(k, in)
		n++
	}
	if n > 0 {
		p.tellHealth()
	}
	return n
}

// LBAOf finds where a volume has a physical sector. It walks the map.
func (v *Volume) LBAOf(phys uint64) (lba uint64, ok bool) {
	v.Map.Walk(block.Range{Count: v.Spec.Sectors}, func(x extent.Run) bool {
		if x.State == block.Data && phys >= x.Phys && phys < x.Phys+x.Count {
			lba, ok = x.Start+phys-x.Phys, true
		}
		return !ok
	})
	return lba, ok
}

// drop forgets dirty sectors of a key because nothing refers to them any more.
func (set *Set) drop(k layout.PageKey, lost uint8) {
	if set.Back.Bad.Len() > 0 {
		set.Back.Bad.Forget(k, lost)
	}
	set.Cache.Drop(k, lost)
}
