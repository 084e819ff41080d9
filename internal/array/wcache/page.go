// Pages: what the cache knows of each page of NVRAM.
//
// Invariants: a page's key, mask and origins are valid in the states Behind to Rewriting; what is
// in rare counts where the flags say so. Only this package changes a page.

package wcache

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// NoPage is no page's number.
const NoPage = ^uint32(0)

type flags uint8

const (
	// flagThrough: a write waits until the page is on the back end.
	flagThrough flags = 1 << iota
	// flagReserve: the page lies in the reserve and outside its partition.
	flagReserve
	// flagOffload: the page counts in its partition's offload budget.
	flagOffload
	// flagHost: it counts in the budget of its host, too.
	flagHost
	// flagBehind, flagAhead: it has a predecessor, a successor. See pageRare.
	flagBehind
	flagAhead
	// flagDropped: some of its sectors were dropped, and a loss of power may undo that.
	flagDropped
)

// page is the part of a page's description that the cache works with: half a line of the
// processor's cache.
type page struct {
	key     layout.PageKey
	origins uint32 // of its sectors, 4 bits each
	owner   uint32
	prev    uint32 // on its list, oldest first
	next    uint32
	state   State // changed by to only
	mask    uint8 // sectors that count here
	flags   flags
	age     uint32 // when it became dirty; of two pages the difference counts
}

// pageRare is what few pages have: it counts where the page's flags say so.
type pageRare struct {
	// What is written to the key of a page that was sent lies in its successor, whose predecessor
	// is that page, until it is synced: the mdisk may lose it before, and then has older data. Until
	// it is on the mdisk the successor is not sent.
	predecessor, successor uint32
	host                   uint32 // that an offload's page is for
	dropped                uint64 // number of the log's last record when sectors were dropped last
}

// predecessor returns the page of the same key that was sent before this one, of which it does not have all sectors,
// and that is not synced yet, or NoPage.
func (c *Cache) predecessor(i uint32) uint32 {
	if c.pages[i].flags&flagBehind == 0 {
		return NoPage
	}
	return c.rare[i].predecessor
}

// succeed says that a page is the next of its key behind another one, which was sent.
func (c *Cache) succeed(successor, predecessor uint32) {
	c.pages[successor].flags |= flagBehind
	c.pages[predecessor].flags |= flagAhead
	c.rare[successor].predecessor, c.rare[predecessor].successor = predecessor, successor
}

// cover is succeed, and lets those predecessors go of which newer pages have all sectors: as many as a page has sectors are
// left at the most, and one that is on its way, for which its successor waits.
func (c *Cache) cover(successor, predecessor uint32) {
	c.succeed(successor, predecessor)
	have := c.pages[successor].mask
	for i := predecessor; i != NoPage; {
		p, before := &c.pages[i], c.predecessor(i)
		if p.mask&^have == 0 && p.state != Destaging {
			c.bypass(i)
		}
		i, have = before, have|p.mask
	}
}

// bypass takes a page from between its successor and its predecessor.
func (c *Cache) bypass(i uint32) {
	p, r := &c.pages[i], &c.rare[i]
	switch p.flags & (flagBehind | flagAhead) {
	case flagBehind | flagAhead:
		c.succeed(r.successor, r.predecessor)
	case flagBehind:
		c.pages[r.predecessor].flags &^= flagAhead
	case flagAhead:
		c.pages[r.successor].flags &^= flagBehind
	}
	p.flags &^= flagBehind | flagAhead
}

// withdraw takes a page of a key out of the index. Where it was the newest, its predecessor is that then.
func (c *Cache) withdraw(i uint32, k layout.PageKey) {
	before := c.predecessor(i)
	newest := before != NoPage && c.pages[i].flags&flagAhead == 0
	c.removeKnown(i, k)
	c.bypass(i)
	if newest {
		c.insert(before)
	}
}

// Key returns the address of a page.
func (c *Cache) Key(i uint32) layout.PageKey { return c.pages[i].key }

// Mask returns the sectors that count in a page.
func (c *Cache) Mask(i uint32) uint8 { return c.pages[i].mask }

// State returns the state of a page.
func (c *Cache) State(i uint32) State { return c.pages[i].state }

// Sealed returns the sectors that a page had when it was written to NVRAM, those that were dropped
// since then included.
func (c *Cache) Sealed(i uint32) uint8 {
	if c.payload {
		return c.NV.Descriptor(i).Mask()
	}
	return c.pages[i].mask
}

// Holder returns the newest page that has a sector, of those of the address whose newest page i is,
// or NoPage: then the mdisk has it for good.
func (c *Cache) Holder(i uint32, sector uint64) uint32 {
	for i != NoPage && c.pages[i].mask>>sector&1 == 0 {
		i = c.predecessor(i)
	}
	return i
}

// MakesRoom reports whether a new page of this key takes no more room of its partition than the
// one that it supersedes gives back: that is dirty, and not in the reserve.
func (c *Cache) MakesRoom(k layout.PageKey) bool {
	i := c.Lookup(k)
	return i != NoPage && c.pages[i].state.Dirty() && c.pages[i].flags&flagReserve == 0
}

// Free returns the number of free pages.
func (c *Cache) Free() int { return c.free.Len() }

// TakeFree takes a free page, or TakeToFill does. Preconditions: there is one, and within the same call it is
// installed.
func (c *Cache) TakeFree() uint32 { return c.free.Take() }

// TouchTaken brings the last n pages that TakeFree returned into the processor's caches.
func (c *Cache) TouchTaken(n int) { c.touchPages(c.free.Taken(n)) }

// GiveFree makes a page free that is in no state yet, or free. Pages come back in the order in which
// they were destaged, so that neighbours in address tend to be neighbours in NVRAM.
func (c *Cache) GiveFree(i uint32) {
	c.free.Give(i)
	if c.payload {
		c.pages[i] = page{}
	}
}

// TakeToFill takes free pages that are filled while others have their turn, and books them.
func (c *Cache) TakeToFill(v *Owner, pages []uint32) {
	v.part.Meter()
	for n := range pages {
		i := c.TakeFree()
		pages[n], c.pages[i].key = i, layout.KeyOf(v.part.id, 0)
		c.pages[i].to(Filling)
		c.room.take(&v.part.Room)
	}
}

// GiveFilled makes these pages free again, and the next that TakeFree returns, in their order.
func (c *Cache) GiveFilled(v *Owner, pages []uint32) {
	v.part.Meter()
	for _, i := range slices.Backward(pages) {
		c.pages[i].to(Free)
		c.pages[i] = page{}
		c.room.give(&v.part.Room)
		c.free.Return(i)
	}
}

// release ends the life of a page.
func (c *Cache) release(i uint32) {
	c.pages[i].to(Free)
	c.GiveFree(i)
}
