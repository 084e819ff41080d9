// How a page becomes free: what the rules of the package nvlog about a loss of power ask for. A
// page that is superseded or dropped waits for a flush; then, or when it is destaged and its
// mdisk synced, it gets a tombstone, and waits for the next flush; then it is free.

package wcache

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
)

// reclaim is the pages that wait to become free.
type reclaim struct {
	written    []uint32 // on the back end
	syncing    []uint32 // of these, those that the sync under way takes along
	superseded stages
	installed  uint64 // pages, ever
	begun      uint64 // these when the last flush of NVRAM began
	tombstoned stages
}

// stages are the pages that a flush lets go: those that came before it began, and those since.
type stages struct{ now, next []uint32 }

func (s *stages) len() int { return len(s.next) }

func (s *stages) add(i uint32) { s.next = append(s.next, i) }

func (s *stages) begin() { s.now, s.next = s.next, s.now[:0] }

// fail has those of a flush that failed wait for the next one.
func (s *stages) fail() {
	s.next = append(s.next, s.now...)
	s.now = s.now[:0]
}

// flushed reports whether a page's record survives a loss of power, and those that have dropped
// sectors of it: without the drop, the back end would have to have these, too.
func (c *Cache) flushed(i uint32) bool {
	return !c.payload || c.NV.Descriptor(i).Seq() <= c.flusher.Flushed() &&
		(c.pages[i].flags&flagDropped == 0 || c.rare[i].dropped <= c.flusher.Flushed())
}

// awaitFlush queues a page that nothing needs any more once a power cut cannot undo what
// made it so.
func (c *Cache) awaitFlush(i uint32) {
	c.pages[i].to(Superseded)
	c.reclaim.superseded.add(i)
}

// tombstone puts a tombstone on a page's descriptor: what it describes is elsewhere, or nothing.
func (c *Cache) tombstone(i uint32, mark nvlog.Tombstone) {
	if !c.payload {
		c.release(i)
		c.freed()
		return
	}
	c.NV.Retire(i, mark)
	c.pages[i].to(Tombstoned)
	c.reclaim.tombstoned.add(i)
}

// FlushBegun notes which pages the flush that begins lets go.
func (c *Cache) FlushBegun() {
	c.reclaim.begun = c.reclaim.installed
	c.reclaim.superseded.begin()
	c.reclaim.tombstoned.begin()
}

// FlushEnded lets these pages go, or has them wait for the next flush.
func (c *Cache) FlushEnded(end nvlog.Outcome) {
	r := &c.reclaim
	c.free.Flushed()
	if end.Err != nil {
		r.superseded.fail()
		r.tombstoned.fail()
		return
	}
	if end.Advanced { // more pages may be destaged
		for _, p := range c.partitions {
			if p != nil && (p.dirty > 0 || p.anyDirect()) {
				p.Kick()
			}
		}
	}
	if c.policy.Round > 0 { // runs of pages are written together, and flushed together
		slices.Sort(r.tombstoned.now)
	}
	for _, i := range r.tombstoned.now {
		c.release(i)
	}
	c.freed()
	for _, i := range r.superseded.now {
		c.tombstone(i, nvlog.Superseded)
	}
	r.tombstoned.now, r.superseded.now = r.tombstoned.now[:0], r.superseded.now[:0]
}

// Unsynced returns the pages that a sync would let go, Unflushed those that a flush would.
func (c *Cache) Unsynced() int { return len(c.reclaim.written) }

// Unflushed returns the pages that wait for a flush.
func (c *Cache) Unflushed() int { return c.reclaim.superseded.len() + c.reclaim.tombstoned.len() }

// Scarce reports whether it is time to free pages: many wait for that, or few are free.
func (c *Cache) Scarce() bool {
	return c.Unsynced()+c.Unflushed() >= c.round(len(c.pages)/64) || c.Free() <= len(c.pages)/8
}

// round returns the pages of a round, of which four may be on their way; none: the policy has no rounds.
func (c *Cache) round(none int) int {
	return min(cmp.Or(c.policy.Round, none), len(c.pages)/16)
}

// BeginSync notes which pages the sync of all mdisks that begins takes along: not those of an mdisk that
// has a redo, or is late.
func (c *Cache) BeginSync() {
	r := &c.reclaim
	r.syncing, r.written = append(r.syncing[:0], r.written...), r.written[:0]
	c.keepHeld()
}

// keepHeld has the pages of such an mdisk wait for another sync.
func (c *Cache) keepHeld() {
	r := &c.reclaim
	r.syncing = slices.DeleteFunc(r.syncing, func(i uint32) bool {
		held := c.heldLanes > 0 && c.onHeld(i)
		if held {
			r.written = append(r.written, i)
		}
		return held
	})
}

// onHeld reports whether the mdisk of a page has a redo or is late.
func (c *Cache) onHeld(i uint32) bool {
	k := c.pages[i].key
	p := c.partitions[k.Pool()]
	l := &p.lanes[p.laneOf(k)]
	return l.held || l.late
}

// Lost takes the pages of an mdisk whose sync failed out of those that it would have let go; they
// are to be written again.
func (p *Partition) Lost(mdisk int) (pages []uint32) {
	pages, p.c.reclaim.syncing = p.rewrite(mdisk, nil, p.c.reclaim.syncing)
	return pages
}

// Rewrite adds the pages that were written to an mdisk since the last sync to those that are to be
// written again.
func (p *Partition) Rewrite(mdisk int, pages []uint32) []uint32 {
	pages, p.c.reclaim.written = p.rewrite(mdisk, pages, p.c.reclaim.written)
	return pages
}

// rewrite moves the pages of an mdisk from one slice to another.
func (p *Partition) rewrite(mdisk int, to, from []uint32) (moved, kept []uint32) {
	c := p.c
	kept = from[:0]
	for _, i := range from {
		if k := c.pages[i].key; k.Pool() == p.id && p.laneOf(k) == mdisk {
			c.pages[i].to(Rewriting)
			to = append(to, i)
		} else {
			kept = append(kept, i)
		}
	}
	return to, kept
}

// EndSync lets the pages go that the sync took along.
func (c *Cache) EndSync() {
	c.Retire(c.reclaim.syncing)
	c.reclaim.syncing = c.reclaim.syncing[:0]
}

// Retire lets pages go that are on the back end for good.
func (c *Cache) Retire(pages []uint32) {
	var keys [32]layout.PageKey
	for len(pages) > 0 {
		n := min(len(pages), len(keys))
		// These pages and their slots left the processor's caches long ago. Nothing in the first
		// two loops waits for a miss, so that they are all under way at once.
		for j, i := range pages[:n] {
			keys[j] = c.pages[i].key
		}
		c.touch(keys[:n])
		for j, i := range pages[:n] {
			c.withdraw(i, keys[j])
			p := c.partitions[keys[j].Pool()]
			p.Meter()
			c.leave(p, i)
			c.tombstone(i, nvlog.Destaged)
		}
		pages = pages[n:]
	}
}
