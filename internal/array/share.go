package array

import "slices"

// What pools share: the room of the write cache, which caps may overcommit, the reserve for what writes
// through, and free pages.
//
// Each pool has a floor of the first two: the pages of it that others cannot take. A floor is
// 16 pieces, and all together are at most an eighth of what there is: a pool that is alone may have nearly all. What is above them goes round the pools that wait: the next is the pool
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

// setFloors gives each of n pools its floor of the cache and of the reserve.
func (a *Array) setFloors(n int) {
	c := a.cache
	floor := func(limit int) int { return min(max(0, min(limit/8, limit-2*piecePages))/n, 16*piecePages) }
	c.owed, c.reserveOwed = 0, 0
	for _, p := range a.pools {
		if p == nil {
			continue
		}
		pt := &p.part
		pt.floor, pt.reserveFloor = min(floor(c.limit), pt.limit), floor(c.reserveLimit())
		c.owed += max(0, pt.floor-pt.used)
		c.reserveOwed += max(0, pt.reserveFloor-pt.reserve)
	}
}

// reserveLimit is the number of pages for what writes through: half of those that no partition may have.
func (c *cache) reserveLimit() int { return (len(c.pages) - c.limit) / 2 }

// room reports whether pages more of a partition fit into the cache: beside what there is and what
// others' floors promise, or where others wait for room, into its own floor.
func (a *Array) room(pt *partition, pages int, head bool) bool {
	if pt.used+pages <= pt.floor {
		return true
	}
	if !head && a.line.contested(lackRoom) || head && a.line.lacks&lackRoom != 0 {
		return false
	}
	c := a.cache
	return c.used+pages+c.owed-max(0, pt.floor-pt.used) <= c.limit
}

// roomThrough is room in the reserve. A pool that holds nothing of it may have one piece in any case: what
// another pool holds for an absent mdisk stays for as long as that is away.
func (a *Array) roomThrough(pt *partition, pages int, head bool) bool {
	if pt.reserve == 0 || pt.reserve+pages <= pt.reserveFloor {
		return true
	}
	if !head && a.line.contested(lackReserve) || head && a.line.lacks&lackReserve != 0 {
		return false
	}
	c := a.cache
	return c.reserve+pages+c.reserveOwed-max(0, pt.reserveFloor-pt.reserve) <= c.reserveLimit()
}

// take and give book pages of a partition.
func (c *cache) take(pt *partition) {
	if pt.used < pt.floor {
		c.owed--
	}
	pt.used++
	c.used++
}

func (c *cache) give(pt *partition) {
	pt.used--
	c.used--
	if pt.used < pt.floor {
		c.owed++
	}
}

// takeReserve and giveReserve book pages of the reserve.
func (c *cache) takeReserve(pt *partition) {
	if pt.reserve < pt.reserveFloor {
		c.reserveOwed--
	}
	pt.reserve++
	c.reserve++
}

func (c *cache) giveReserve(pt *partition) {
	pt.reserve--
	c.reserve--
	if pt.reserve < pt.reserveFloor {
		c.reserveOwed++
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

// serve gives the pools that wait what there is, piece by piece. With dry it only reports whether it
// would give anybody anything.
func (a *Array) serve(dry bool) (served bool) {
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
		case dry:
			return true
		case said == waitBudget:
			p.part.waiting.took(o, n)
			o.unqueue()
			o.brake()
		default:
			l.charge(a, i, o, n)
			p.part.waiting.took(o, n)
			o.unqueue()
			o.write(true)
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
	p, c := l.pools[i], a.cache
	pt := &p.part
	pages := o.piecePagesOf(n)
	held, share := pt.used, max(1, c.limit/len(l.pools))
	if o.reserve {
		if pt.reserve+pages <= pt.reserveFloor {
			return
		}
		held, share = pt.reserve, max(1, c.reserveLimit()/len(l.pools))
	} else if pt.used+pages <= pt.floor {
		return
	}
	l.tag = max(l.tag, pt.tag)
	pt.tag += int64(pages) * 64 * int64(held+share) / int64(share)
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
