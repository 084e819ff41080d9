package array

import "slices"

// What pools share: the room of the write cache, which caps may overcommit, the reserve for what writes
// through, and free pages.
//
// Each pool has a floor of the first two: the pages of it that others cannot take. A floor is
// 16 pieces, and all together are at most an eighth of what there is: a pool that is alone may have
// nearly all. What is above them goes round the pools that wait: the next is the pool
// with the lowest tag, and each page costs it the more tag the more it holds already. While a
// pool waits for its turn nobody takes what it waits for, whoever comes.
//
// Invariant: used + owed <= limit, where owed is what floors promise and nobody uses yet; a
// change of the floors may break it until enough is destaged.

// lack says what shared thing an op waits for.
type lack uint8

const (
	lackRoom lack = 1 << iota
	lackReserve
	lackPages // free ones: all who need any wait behind who needs many
)

// line is the pools with writes that wait for room, by tag.
type line struct {
	pools  []*Pool
	tag    int64 // of the pool that was served last
	lacks  lack  // what pools wait for since the last look
	active bool  // the pools are being looked at
}

// contested reports whether a newcomer has to leave to others what it needs.
func (l *line) contested(k lack) bool { return l.lacks&k != 0 || l.active && len(l.pools) > 1 }

// pot is pages that pools share: the write cache, or the reserve for what writes through.
type pot struct {
	limit int  // pages
	used  int  // pages, of all pools
	owed  int  // pages that floors promise and that are not used
	lack  lack // of a pool that has no room
}

// share is what a pool has of a pot.
type share struct {
	used  int // pages, destages in flight and not yet synced included
	floor int // pages that no other pool can take
}

// take and give book a page of a share.
func (t *pot) take(s *share) {
	if s.used < s.floor {
		t.owed--
	}
	s.used++
	t.used++
}

func (t *pot) give(s *share) {
	s.used--
	t.used--
	if s.used < s.floor {
		t.owed++
	}
}

// setFloor gives a pool its floor, of which the pot owes what the pool does not use.
func (t *pot) setFloor(s *share, floor int) {
	s.floor = floor
	t.owed += max(0, floor-s.used)
}

// floorOf is the floor of each of n pools.
func (t *pot) floorOf(n int) int {
	return min(max(0, min(t.limit/8, t.limit-2*piecePages))/n, 16*piecePages)
}

// room reports whether pages more of a share fit into its pot: beside what there is and what others'
// floors promise, or where others wait for room, into its own floor.
func (l *line) room(t *pot, s *share, pages int, head bool) bool {
	if s.used+pages <= s.floor {
		return true
	}
	if !head && l.contested(t.lack) || head && l.lacks&t.lack != 0 {
		return false
	}
	return t.used+pages+t.owed-max(0, s.floor-s.used) <= t.limit
}

// setFloors gives each of n pools its floor of the cache and of the reserve.
func (a *Array) setFloors(n int) {
	c := a.cache
	c.owed, c.reserve.owed = 0, 0
	for _, p := range a.pools {
		if p == nil {
			continue
		}
		pt := &p.part
		c.setFloor(&pt.share, min(c.floorOf(n), pt.limit))
		c.reserve.setFloor(&pt.reserve, c.reserve.floorOf(n))
	}
}

// join puts a pool with a write that waits into the line.
func (l *line) join(p *Pool) {
	pt := &p.part
	if pt.inLine {
		return
	}
	pt.inLine = true
	pt.tag = max(pt.tag, l.tag)
	l.insert(p)
}

func (l *line) insert(p *Pool) {
	at := len(l.pools)
	for at > 0 && l.pools[at-1].part.tag > p.part.tag {
		at--
	}
	l.pools = slices.Insert(l.pools, at, p)
}

// serve gives the pools that wait what there is, piece by piece, and reports whether it gave anybody anything.
func (a *Array) serve() (served bool) {
	l := &a.line
	was := l.lacks
	l.lacks, l.active = 0, true
	defer func() { l.active = false }()
	for i := 0; i < len(l.pools); {
		p := l.pools[i]
		o := p.part.waiting.head()
		if o == nil {
			p.part.inLine = false
			l.pools = slices.Delete(l.pools, i, i+1)
			continue
		}
		n := o.pieceLen()
		switch said := a.admit(o, n, true); {
		case said == waitLog:
			l.lacks |= was // nothing is known of the others
			return served
		case said == waitRoom && o.lacks&lackPages != 0:
			l.lacks |= lackPages | was
			return served
		case said == waitRoom:
			l.lacks |= o.lacks
			i++
			continue
		case said == waitBudget:
			p.part.waiting.took(o, n)
			o.unqueue()
			o.brake()
		default:
			l.charge(a, i, o, n)
			p.part.waiting.took(o, n)
			o.Wake()
		}
		served = true
	}
	if l.lacks&lackRoom != 0 && was&lackRoom == 0 {
		a.pressAll()
	}
	return served
}

// charge books the turn of the pool at place i of the line, unless its floor has room for the piece.
func (l *line) charge(a *Array, i int, o *op, n uint64) {
	p := l.pools[i]
	pt, pages := &p.part, o.piecePagesOf(n)
	t, s := &a.cache.pot, &pt.share
	if o.reserve {
		t, s = &a.cache.reserve, &pt.reserve
	}
	if s.used+pages <= s.floor {
		return
	}
	fair := max(1, t.limit/len(l.pools))
	l.tag = max(l.tag, pt.tag)
	pt.tag += int64(pages) * 64 * int64(s.used+fair) / int64(fair)
	l.pools = slices.Delete(l.pools, i, i+1)
	l.insert(p)
}

// pressAll has the pools destage that hold more than their floor, because others wait for room.
func (a *Array) pressAll() {
	for _, p := range a.pools {
		if p != nil && p.part.used > p.part.floor && p.part.dirty > 0 {
			a.needDestage(p)
		}
	}
}
