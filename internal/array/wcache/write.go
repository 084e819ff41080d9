// How pages come into the cache, and how they leave it without being destaged: superseded by a
// newer one of their address, or dropped because nothing refers to them any more.

package wcache

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// Write is whose pages are installed, and how they were admitted.
type Write struct {
	Owner  *Owner
	Origin block.Origin
	Host   uint32 // in whose budget an offload counts
	Way    Mode
}

// Entry is a page on its way into the cache.
type Entry struct {
	Key     layout.PageKey
	Page    uint32
	Old     uint32 // the newest page of the key until now, where Known says so
	Known   bool
	Origins uint32
	Mask    uint8
	Written uint8 // the sectors that are new
}

// Compose makes a page of new data, which is in NVRAM in sectors [first, first+n) of it, and of
// the other valid sectors of old, a dirty page or NoPage, with their checksums. It returns the mask
// and the origins of the whole page. Preconditions: the page is free.
func (c *Cache) Compose(i, old uint32, first, n int, origin block.Origin) (uint8, uint32) {
	mask := uint8((1<<n - 1) << first)
	origins := uint32(origin) * 0x11111111 & uint32((uint64(1)<<(4*n)-1)<<(4*first))
	if old == NoPage {
		return mask, origins
	}
	o := &c.pages[old]
	keep := o.mask &^ mask
	for left := keep; left != 0; left &= left - 1 {
		s := bits.TrailingZeros8(left)
		origins |= o.origins & (15 << (4 * s))
		if c.payload {
			c.NV.CopySector(i, old, s)
			c.NV.Describe(i).SetSum(s, c.NV.Descriptor(old).Sum(s))
		}
	}
	return mask | keep, origins
}

// SumSectors writes the checksums of sectors of a page that is free, or filled by the caller.
func (c *Cache) SumSectors(i uint32, first, n int) {
	var sums [layout.PageSectors]uint32
	crc32c.Sectors(sums[:n], c.NV.Page(i)[first*block.SectorSize:])
	c.NV.Describe(i).SetSums(first, sums[:n])
}

// Install puts a composed page into the index as the newest of its key and retires e.Old, the one
// until now, or NoPage. Preconditions: the record with the page's sequence number is in the log.
func (c *Cache) Install(w *Write, e *Entry) {
	v, i := w.Owner, e.Page
	p := &c.pages[i]
	p.to(Behind)
	c.reclaim.installed++
	*p = page{key: e.Key, origins: e.Origins, owner: v.id, state: Behind, mask: e.Mask}
	c.enter(w, i)
	v.countAdmitted(w, uint64(bits.OnesCount8(e.Written))*block.SectorSize)
	if e.Old != NoPage {
		c.supersede(v, i, e.Old, e.Written)
	}
	c.insert(i)
	if before := c.predecessor(i); before == NoPage || c.pages[before].state != Destaging {
		v.part.enlist(v, i)
	}
}

// supersede retires old, whose key now belongs to page i; written are the sectors
// that the write replaced, the others of a dirty page went over into i. Those of one that was sent stay
// there, and are read from there until it is synced.
func (c *Cache) supersede(v *Owner, i, old uint32, written uint8) {
	o := &c.pages[old]
	c.remove(old)
	switch {
	case o.state.Dirty():
		owner := c.owners[o.owner]
		owner.Meter()
		if o.state != Behind {
			v.part.unlist(owner, old)
		}
		if before := c.predecessor(old); before != NoPage {
			c.bypass(old)
			c.cover(i, before)
		}
		owner.countLeft(o.mask&written, o.origins, cellOverwritten)
		if owner != v { // taken over by another owner's page
			v.takeOver(owner, o.mask&^written, o.origins)
		}
		c.settled(old)
		c.leave(v.part, old)
		c.awaitFlush(old)
	default:
		c.cover(i, old)
	}
}

// Drop forgets dirty sectors of a key because nothing refers to them any more. What
// is on its way to the back end gets there, and is counted there; it only stops to
// count as contents. The descriptor stays as it is: a recovery that finds such
// sectors writes them to where nobody reads.
func (c *Cache) Drop(k layout.PageKey, lost uint8) {
	i := c.Lookup(k)
	if i == NoPage {
		return
	}
	p, before := &c.pages[i], c.predecessor(i)
	for at := before; at != NoPage; at = c.predecessor(at) {
		c.pages[at].mask &^= lost
	}
	if !p.state.Dirty() {
		p.mask &^= lost
		return
	}
	v, part := c.owners[p.owner], c.partitions[k.Pool()]
	v.Meter()
	v.countLeft(lost&p.mask, p.origins, cellDiscarded)
	p.mask &^= lost
	if p.mask != 0 {
		p.flags |= flagDropped
		c.rare[i].dropped = c.log.Seq()
		return
	}
	if p.state != Behind {
		part.unlist(v, i)
	}
	c.discard(part, i)
}

// discard ends the part of a page of which all was dropped.
func (c *Cache) discard(part *Partition, i uint32) {
	part.Meter()
	c.withdraw(i, c.pages[i].key)
	c.settled(i)
	c.leave(part, i)
	c.awaitFlush(i)
}

// settled tells the write that waits for a page that it need not wait for it any more.
func (c *Cache) settled(i uint32) {
	if c.pages[i].flags&flagThrough != 0 {
		c.pages[i].flags &^= flagThrough
		c.hooks.Settled(i)
	}
}

// Restore takes in a page that a start has found dirty. mask is its sectors that count.
func (c *Cache) Restore(v *Owner, i uint32, mask uint8) {
	d := c.NV.Descriptor(i)
	c.pages[i].to(Behind)
	c.pages[i] = page{key: d.Key(), origins: d.Origins(), owner: v.id, state: Behind, mask: mask}
	for left := mask; left != 0; left &= left - 1 {
		v.add(block.OriginAt(d.Origins(), bits.TrailingZeros8(left)), block.SectorSize)
	}
	c.room.take(&v.part.Room)
	c.insert(i)
	v.part.enlist(v, i)
}
