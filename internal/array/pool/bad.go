// Sectors that failed their checksum, and dirty ones that nobody refers to any more. Each pool has
// the list of its bad sectors; this file says what goes on it and what leaves it. A checkpoint keeps
// all lists as one.

package pool

import (
	"errors"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// KeyBad is the key of the bad sectors of all pools in the meta store.
const KeyBad = "b"

// SaveBad adds the pools' lists of bad sectors to a checkpoint, if there is anything on them or the
// checkpoint before had something. The caller stores what it gets: the next call counts on that.
func (set *Set) SaveBad(put func(key, value []byte)) {
	value := []byte{}
	for _, p := range set.pools {
		if p != nil {
			value = p.Bad.Encode(value)
		}
	}
	if len(value) == 0 && !set.badStored {
		return
	}
	set.badStored = len(value) > 0
	put([]byte(KeyBad), value)
}

// LoadBad gives the pools, which have to be there, what SaveBad has written. What it says of a pool
// that was deleted since goes: that had no data left.
func (set *Set) LoadBad(v []byte) error {
	set.badStored = len(v) > 0
	return backend.DecodeBad(v, func(k layout.PageKey, sector int) {
		if p := set.ByID(k.Pool()); p != nil {
			p.Bad.Add(k, sector)
		}
	})
}

// NoteBad puts the sectors of a read that failed their checksums on the list.
func (p *Pool) NoteBad(x *backend.Op) int {
	var e *block.ChecksumError
	if !errors.As(x.IO.Err, &e) {
		return 0
	}
	n := 0
	for _, s := range e.Sectors {
		phys := x.Phys + s - x.IO.Off/block.SectorSize
		if p.Cached(phys) != nil {
			continue // it was written anew meanwhile
		}
		p.Bad.Add(layout.KeyOf(p.id, phys), int(phys%layout.PageSectors))
		n++
	}
	if n > 0 {
		p.tellHealth()
	}
	return n
}

// Cached returns the data of a physical sector, nil if the cache does not have it.
func (p *Pool) Cached(phys uint64) []byte {
	c, sector := p.Set.Cache, phys%layout.PageSectors
	i := c.Lookup(layout.KeyOf(p.id, phys))
	if i != wcache.NoPage {
		i = c.Holder(i, sector)
	}
	if i == wcache.NoPage {
		return nil
	}
	return c.NV.Page(i)[sector*block.SectorSize : (sector+1)*block.SectorSize]
}

// drop forgets dirty sectors of a key because nothing refers to them any more.
func (p *Pool) drop(k layout.PageKey, lost uint8) {
	p.Bad.Forget(k, lost)
	p.Set.Cache.Drop(k, lost)
}
