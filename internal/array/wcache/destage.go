// The destager moves dirty pages to the mdisks: what writes through at once, the rest
// in the order and at the rate of the policy. With the oldest page go the neighbours
// in address that are dirty, too, so that sequential data is coalesced.

package wcache

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
)

const (
	quantumPages = 64 // 256 KiB: an owner's turn, and the longest operation
	// What an owner could not send because its mdisks were busy it keeps for its next
	// turns, up to this many pages: turns are fair in bytes, not in operations.
	maxCredit = 16 * quantumPages
)

// Batch is the pages that go to an mdisk together, with what of each is written. Masks and Origins
// are those of the time at which they were sent.
type Batch struct {
	Part    *Partition
	Mdisk   int
	Pages   []uint32 // in the order of their addresses, inside of one extent
	Masks   []uint8
	Origins []uint32
	Through bool // a write waits for the first of them
}

// Reset makes a batch one that can be filled.
func (b *Batch) Reset() {
	b.Pages, b.Masks, b.Origins, b.Part, b.Mdisk, b.Through = b.Pages[:0], b.Masks[:0], b.Origins[:0], nil, 0, false
}

// enlist queues a page for its destage.
func (p *Partition) enlist(v *Owner, i uint32) {
	c := p.c
	pg := &c.pages[i]
	p.age++
	pg.age = p.age
	p.rest.written = true
	md := p.laneOf(pg.key)
	if pg.flags&flagThrough != 0 {
		pg.to(Direct)
		c.push(&p.direct[md], i)
		p.Kick()
		return
	}
	if p.dirty == 0 {
		p.rest.since = c.exec.Now()
	}
	p.dirty++
	p.order.enlist(p, v, md, i)
	p.Kick()
}

// unlist takes a page from the list that it is on. Its next state is the caller's to set.
func (p *Partition) unlist(v *Owner, i uint32) {
	c := p.c
	pg := &c.pages[i]
	md := p.laneOf(pg.key)
	switch pg.state {
	case Queued:
		p.unsettle(pg)
		c.unlink(&v.dirty[md], i)
		v.pages--
		p.dirty--
	case Ordered:
		p.unsettle(pg)
		c.unlink(&p.lru[md], i)
		p.dirty--
	case Direct:
		c.unlink(&p.direct[md], i)
	case Pinned:
		c.unlink(&p.pins[md], i)
		p.Park(-1)
	}
}

// settles reports whether a dirty page is one of those to settle.
func (p *Partition) settles(pg *page) bool {
	return p.rest.settle > 0 && int32(pg.age-p.rest.upTo) <= 0
}

// unsettle notes that a page that may be one of these is gone.
func (p *Partition) unsettle(pg *page) {
	if p.settles(pg) {
		p.rest.settle--
	}
}

// anyDirect reports whether a write waits for its pages to be sent to the back end.
func (p *Partition) anyDirect() bool {
	return slices.ContainsFunc(p.direct, func(l list) bool { return !l.empty() })
}

// relist moves the dirty pages to the lists of the policy's order, oldest first.
func (p *Partition) relist() {
	c := p.c
	var all []uint32
	take := func(lists []list) {
		for _, l := range lists {
			for i := l.head; i != NoPage; i = c.pages[i].next {
				all = append(all, i)
			}
		}
	}
	for _, o := range p.ring {
		take(o.dirty)
	}
	take(p.lru)
	slices.SortFunc(all, func(x, y uint32) int { return cmp.Compare(int32(c.pages[x].age-c.pages[y].age), 0) })
	for _, i := range all {
		o := c.owners[c.pages[i].owner]
		p.unlist(o, i)
		p.enlist(o, i)
	}
}

// Kick has the next step look at the partition.
func (p *Partition) Kick() {
	c := p.c
	if !p.kicked {
		p.kicked = true
		c.kicked = append(c.kicked, p)
	}
	if age := c.maxAge(); age > 0 && !p.rest.ticking && p.dirty > 0 {
		p.rest.ticking = true
		c.exec.At(c.exec.Now()+age, p.rest.tickFn)
	}
}

// KickAll has the next step look at all partitions.
func (c *Cache) KickAll() {
	for _, p := range c.partitions {
		if p != nil {
			p.Kick()
		}
	}
}

// NextKicked returns a partition that the present step has to look at, nil if there is none.
func (c *Cache) NextKicked() *Partition {
	for n := len(c.kicked) - 1; n >= 0; n-- {
		p := c.kicked[n]
		c.kicked = c.kicked[:n]
		p.kicked, p.directDone = false, false
		if c.partitions[p.id] == p { // else it was closed meanwhile
			return p
		}
	}
	return nil
}

// AnyKicked reports whether NextKicked would return one.
func (c *Cache) AnyKicked() bool { return len(c.kicked) > 0 }

// NextDestage fills a batch with what the partition sends now; false says that there is no reason
// or no room to send anything. waiting says that somebody waits for what a destage frees.
func (p *Partition) NextDestage(b *Batch, waiting bool) bool {
	p.waited = waiting
	if !p.directDone {
		if p.sendDirect(b) {
			return true
		}
		p.directDone = true
	}
	c := p.c
	for blocked := 0; p.dirty > 0 && p.anyRoom(); {
		p.pace.due = 0
		pressed := p.rest.settle == 0
		if pressed && !p.mayDestage(waiting) {
			return false
		}
		v, first, credit := p.order.next(p, blocked)
		n := 0
		if first != NoPage && (pressed || p.settles(&c.pages[first]) || p.mayDestage(waiting)) {
			n = p.send(b, first, credit)
		}
		if n == 0 { // its mdisks are busy, or it is not its time
			if blocked++; !p.order.again(p, v, blocked) {
				return false
			}
			continue
		}
		blocked = 0
		if n < 0 { // pinned
			continue
		}
		p.paced(n)
		p.order.sent(p, v, n)
		return true
	}
	return false
}

// sendDirect sends what a write waits for; it reports whether the batch has anything.
func (p *Partition) sendDirect(b *Batch) bool {
	for first := p.oldest(p.direct); first != NoPage; first = p.oldest(p.direct) {
		if n := p.send(b, first, quantumPages); n >= 0 {
			return n > 0
		}
	}
	return false
}

// anyRoom reports whether an mdisk takes another destage.
func (p *Partition) anyRoom() bool {
	for i := range p.lanes {
		if p.takes(i) {
			return true
		}
	}
	return false
}

// send fills a batch with a dirty page and its neighbours, at most credit pages, and returns their
// number: 0 if the mdisk is busy, negative if it is offline and the page is pinned now.
func (p *Partition) send(b *Batch, first uint32, credit int) int {
	c := p.c
	k := c.pages[first].key
	md := p.laneOf(k)
	l := &p.lanes[md]
	if l.away {
		p.pin(md, first)
		return -1
	}
	if l.held || !p.takes(md) {
		return 0
	}
	if !c.flushed(first) {
		if p.urges(first) {
			c.flusher.Want()
		}
		return 0
	}
	v := c.owners[c.pages[first].owner]
	b.Part, b.Mdisk = p, md
	p.gather(b, v, first, credit)
	b.Through = c.pages[first].flags&flagThrough != 0
	l.out++
	l.sent += len(b.Pages)
	for _, i := range b.Pages {
		pg := &c.pages[i]
		p.unlist(v, i)
		pg.to(Destaging)
		b.Masks = append(b.Masks, pg.mask)
		b.Origins = append(b.Origins, pg.origins)
	}
	c.freed() // who cannot overwrite these any more may stop to hold up others
	return len(b.Pages)
}

// urges reports whether a dirty page is reason for a flush: a round of pages needs it, or none is waited for.
func (p *Partition) urges(i uint32) bool {
	c := p.c
	r, pg := &c.reclaim, &c.pages[i]
	return r.installed-r.begun >= uint64(c.round(0)) || c.Free() <= len(c.pages)/8 || p.waited || c.draining || c.unmirrored ||
		pg.flags&flagThrough != 0 || p.settles(pg)
}

// gather puts a page and its neighbours inside the extent into a batch: those below, then those
// above, up to credit.
func (p *Partition) gather(b *Batch, v *Owner, first uint32, credit int) {
	c := p.c
	k := c.pages[first].key
	lo, hi := k, k+1
	base := layout.KeyOf(p.id, k.Phys()/layout.ExtentSectors*layout.ExtentSectors)
	c.touchGrain(k)
	for int(hi-lo) < credit && lo > base {
		i := c.joins(v, lo-1)
		if i == NoPage {
			break
		}
		b.Pages = append(b.Pages, i)
		lo--
	}
	slices.Reverse(b.Pages)
	b.Pages = append(b.Pages, first)
	for int(hi-lo) < credit && hi < base+layout.ExtentSectors/layout.PageSectors {
		i := c.joins(v, hi)
		if i == NoPage {
			break
		}
		b.Pages = append(b.Pages, i)
		hi++
	}
}

// joins returns the page of a key if it can go out with its neighbour, or NoPage.
func (c *Cache) joins(v *Owner, k layout.PageKey) uint32 {
	i := c.Lookup(k)
	if i == NoPage {
		return NoPage
	}
	p := &c.pages[i]
	if !p.state.Dirty() || p.owner != v.id || p.state == Behind || !c.flushed(i) {
		return NoPage
	}
	return i
}

// Forget takes those pages out of a batch that has failed of which all was dropped: they leave as dropped ones do. It reports
// whether none is left, and the batch is over. refused: it was refused (see Refuse). Preconditions: none of it is on its way.
func (c *Cache) Forget(b *Batch, refused bool) (over bool) {
	p, l, all := b.Part, &b.Part.lanes[b.Mdisk], *b
	b.Pages, b.Masks, b.Origins = b.Pages[:0], b.Masks[:0], b.Origins[:0]
	for n, i := range all.Pages {
		pg := &c.pages[i]
		if pg.mask != 0 {
			b.Pages, b.Masks, b.Origins = append(b.Pages, i), append(b.Masks, all.Masks[n]), append(b.Origins, all.Origins[n])
			continue
		}
		v, next, ahead := c.owners[pg.owner], c.rare[i].successor, pg.flags&flagAhead != 0
		v.Meter()
		v.countLeft(all.Masks[n], all.Origins[n], cellDiscarded)
		c.discard(p, i)
		if ahead {
			p.enlist(c.owners[c.pages[next].owner], next)
		}
	}
	l.sent -= len(all.Pages) - len(b.Pages)
	if over = len(b.Pages) == 0; over {
		l.out--
	}
	if refused {
		p.Refuse(&all, -1)
	}
	if refused && !over {
		p.Refuse(b, 1)
	}
	p.Kick()
	return over
}

// Destaged notes that a batch is on the back end: its pages only wait for a sync, and what waited
// for them may follow.
func (c *Cache) Destaged(b *Batch) {
	p := b.Part
	c.touchPages(b.Pages)
	p.lanes[b.Mdisk].out--
	p.lanes[b.Mdisk].sent -= len(b.Pages)
	v := c.owners[c.pages[b.Pages[0]].owner] // of all, see joins
	v.Meter()
	for n, i := range b.Pages {
		pg := &c.pages[i]
		v.countLeft(b.Masks[n], b.Origins[n], cellDestaged)
		pg.to(Written)
		c.settled(i)
		c.reclaim.written = append(c.reclaim.written, i)
		if pg.flags&flagAhead != 0 {
			next := c.rare[i].successor
			c.cover(next, i)
			p.enlist(c.owners[c.pages[next].owner], next)
		}
	}
	p.Kick()
}
