// What is wrong with a cache as it is now.

package wcache

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// Names is what Check asks its caller, and tells it.
type Names struct {
	Owner  func(uint32) string
	Pool   func(uint16) string
	Bad    func(k layout.PageKey, sector int) bool // it is known that its data is bad
	Report func(format string, args ...any)
}

// CheckConservation verifies the equation of each owner and origin, and returns the bytes on either
// side of it.
func (c *Cache) CheckConservation(n Names) (bytes uint64) {
	for _, o := range c.owners {
		if o == nil {
			continue
		}
		for g := range block.NumOrigins {
			f, ever := o.Flow(g)
			if !ever && f.Dirty == 0 {
				continue
			}
			in, out := f.In(), f.Out()+uint64(f.Dirty)
			if in != out || f.Dirty < 0 {
				n.Report("counters: volume %s, origin %s: admitted + recovered is %d, dirty + destaged + overwritten + discarded is %d", n.Owner(o.id), block.Origin(g), in, out)
			}
			bytes += in
		}
	}
	return bytes
}

// Check verifies the pages against index, descriptors, partitions and owners, and returns how many
// are dirty. It changes nothing. verify reads the pages to compare their checksums.
func (c *Cache) Check(n Names, verify bool) (dirty int) {
	k := counts{pools: make([]Share, len(c.partitions)), bytes: make([][block.NumOrigins]int64, len(c.owners))}
	for i := range c.pages {
		c.checkPage(n, &k, uint32(i), verify)
	}
	if k.all.used != c.room.used {
		n.Report("cache: %d pages are in use, the count says %d", k.all.used, c.room.used)
	}
	lent := 0
	for _, p := range c.partitions {
		if p == nil {
			continue
		}
		lent += max(0, p.Room.used-p.Room.floor)
		if k.pools[p.id].used != p.Room.used {
			n.Report("cache: pool %s holds %d pages, its partition says %d", n.Pool(p.id), k.pools[p.id].used, p.Room.used)
		}
	}
	if lent != c.room.lent {
		n.Report("cache: partitions have borrowed %d pages, the count says %d", lent, c.room.lent)
	}
	for _, o := range c.owners {
		if o == nil {
			continue
		}
		for g := range block.NumOrigins {
			if got := k.bytes[o.id][g]; got > o.bytes[g] {
				n.Report("cache: volume %s, origin %s: %d bytes are dirty, the count says %d", n.Owner(o.id), block.Origin(g), got, o.bytes[g])
			}
		}
	}
	for _, i := range c.lost() {
		n.Report("cache: page %d is %s and not where such pages are listed", i, c.pages[i].state)
	}
	return k.dirty
}

// counts are what the pages add up to.
type counts struct {
	all   Share
	pools []Share                   // by number
	bytes [][block.NumOrigins]int64 // dirty, by owner
	dirty int
}

func (c *Cache) checkPage(n Names, k *counts, i uint32, verify bool) {
	p := &c.pages[i]
	if p.state != Free && p.state < Superseded && p.flags&flagReserve == 0 {
		k.all.used++
		k.pools[p.key.Pool()].used++
	}
	if !p.state.held() {
		return
	}
	if c.payload {
		if d := c.NV.Descriptor(i); d.Seq() == 0 || d.Key() != p.key || !d.Valid() {
			n.Report("cache: page %d: its descriptor is damaged or is another page's", i)
		}
	}
	if p.state.Dirty() {
		k.dirty++
		if c.Lookup(p.key) != i {
			n.Report("cache: page %d is dirty and not in the index", i)
		}
		for left := p.mask; left != 0; left &= left - 1 {
			k.bytes[p.owner][block.OriginAt(p.origins, bits.TrailingZeros8(left))] += block.SectorSize
		}
	}
	if verify {
		c.CheckSums(n, i)
	}
}

// CheckSums compares a page with its checksums.
func (c *Cache) CheckSums(n Names, i uint32) {
	p := &c.pages[i]
	if !c.payload || !p.state.held() {
		return
	}
	for left := p.mask &^ c.NV.GoodSectors(i); left != 0; left &= left - 1 {
		if s := bits.TrailingZeros8(left); !n.Bad(p.key, s) {
			n.Report("cache: page %d, sector %d of it: the checksum is wrong", i, s)
		}
	}
}

// lost returns the pages that are not listed where their state says. A page that is Filling,
// Behind, Destaging or Rewriting is on no list of the cache.
func (c *Cache) lost() (out []uint32) {
	where := make([]State, len(c.pages))
	for i := range where {
		where[i] = numStates
	}
	mark := func(s State, pages []uint32) {
		for _, i := range pages {
			where[i] = s
		}
	}
	chain := func(s State, lists []list) {
		for _, l := range lists {
			for i := l.head; i != NoPage; i = c.pages[i].next {
				where[i] = s
			}
		}
	}
	for n := range c.Free() {
		where[c.free.At(n)] = Free
	}
	for _, p := range c.partitions {
		if p != nil {
			chain(Ordered, p.lru)
			chain(Direct, p.direct)
			chain(Pinned, p.pins)
		}
	}
	for _, o := range c.owners {
		if o != nil {
			chain(Queued, o.dirty)
		}
	}
	r := &c.reclaim
	mark(Written, r.written)
	mark(Written, r.syncing)
	mark(Superseded, r.superseded.now)
	mark(Superseded, r.superseded.next)
	mark(Tombstoned, r.tombstoned.now)
	mark(Tombstoned, r.tombstoned.next)
	for i := range c.pages {
		s := c.pages[i].state
		if unlisted := s == Filling || s == Behind || s == Destaging || s == Rewriting; unlisted != (where[i] == numStates) || !unlisted && where[i] != s {
			out = append(out, uint32(i))
		}
	}
	return out
}
