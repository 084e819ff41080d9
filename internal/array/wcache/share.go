// What partitions share: the room of the cache, which caps may overcommit, and the reserve for what
// writes through. Each partition has a floor of both: the pages of it that others cannot take. A
// floor is 16 pieces, and all together are at most an eighth of what there is: a partition that is
// alone may have nearly all.
//
// A partition has its floor to itself, and tells nobody what it uses of that. What it uses above it
// borrows from the pot, page by page, and returns: a pot is told of these two and of the floors.
//
// Invariant: floors + lent <= limit; a change of the floors may break it until enough is destaged.

package wcache

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/policy"
)

// Pot is pages that partitions share.
type Pot struct {
	limit  int // pages
	floors int // pages that floors promise, used or not
	lent   int // pages that partitions use above their floors
	used   int // pages, of all partitions: a figure for pace, by which nothing is granted
}

// Share is what a partition has of a pot.
type Share struct {
	used  int // pages, destages in flight and not yet synced included
	floor int // pages that no other partition can take
}

// Used returns the pages of the pot that are in use, Limit how many there are.
func (t *Pot) Used() int { return t.used }

// Limit returns the pages of the pot.
func (t *Pot) Limit() int { return t.limit }

// Used returns the pages of the share.
func (s *Share) Used() int { return s.used }

// Floor returns how many pages of the pot no other partition can take.
func (s *Share) Floor() int { return s.floor }

// borrow and giveBack say that a partition uses a page more, or less, above its floor. The pot does not refuse: the piece was
// admitted, see Fits.
func (t *Pot) borrow()   { t.lent++ }
func (t *Pot) giveBack() { t.lent-- }

// take and give book a page of a share.
func (t *Pot) take(s *Share) {
	if s.used >= s.floor {
		t.borrow()
	}
	s.used++
	t.used++
}

func (t *Pot) give(s *Share) {
	s.used--
	t.used--
	if s.used >= s.floor {
		t.giveBack()
	}
}

// setFloor gives a partition its floor: what it uses above that, it has borrowed.
func (t *Pot) setFloor(s *Share, floor int) {
	s.floor = floor
	t.floors += floor
	t.lent += max(0, s.used-floor)
}

// WithinFloor reports whether pages more of a share are those that nobody else can have.
func (s *Share) WithinFloor(pages int) bool { return s.used+pages <= s.floor }

// Fits reports whether pages more of a share fit into its pot, beside what there is and what
// others' floors promise.
func (t *Pot) Fits(s *Share, pages int) bool {
	return t.floors+t.lent+pages-max(0, s.floor-s.used) <= t.limit
}

// SetCaps gives each partition its cap, in percent of the cache by the number of partitions, and
// its floors. It reports whether there are any.
func (c *Cache) SetCaps(percent []int) bool {
	n := 0
	for _, p := range c.partitions {
		if p != nil {
			n++
		}
	}
	if n == 0 {
		return false
	}
	share := percent[min(n, len(percent))-1]
	c.room.floors, c.room.lent, c.reserve.floors, c.reserve.lent = 0, 0, 0, 0
	for _, p := range c.partitions {
		if p == nil {
			continue
		}
		p.limit = c.room.limit * share / 100
		c.room.setFloor(&p.Room, min(policy.Floor(c.room.limit, n, layout.PiecePages), p.limit))
		c.reserve.setFloor(&p.Reserve, policy.Floor(c.reserve.limit, n, layout.PiecePages))
	}
	return true
}

// Await says whether somebody waits for room, and wants to hear of it.
func (c *Cache) Await(on bool) { c.awaited = on }

// freed tells that there is more room.
func (c *Cache) freed() {
	if c.awaited {
		c.hooks.Freed()
	}
}
