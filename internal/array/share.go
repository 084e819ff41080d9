package array

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/wcache"
)

// How what pools share goes round those that wait: the room of the write cache, the reserve for what
// writes through, and free pages. See package wcache for the floors.
//
// What is above the floors goes round the pools that wait: the next is the pool
// with the lowest tag, and each page costs it the more tag the more it holds already. While a
// pool waits for its turn nobody takes what it waits for, whoever comes.

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

// room reports whether pages more of a share fit into its pot: beside what there is and what others'
// floors promise, or where others wait for room, into its own floor.
func (l *line) room(t *wcache.Pot, k lack, s *wcache.Share, pages int, head bool) bool {
	if s.WithinFloor(pages) {
		return true
	}
	if !head && l.contested(k) || head && l.lacks&k != 0 {
		return false
	}
	return t.Fits(s, pages)
}

// join puts a pool with a write that waits into the line.
func (l *line) join(p *Pool) {
	pt := &p.part
	if pt.inLine {
		return
	}
	pt.inLine = true
	p.a.cache.Await(true)
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
			a.cache.Await(len(l.pools) > 0)
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
	t, s := a.cache.Room(), &pt.Room
	if o.reserve {
		t, s = a.cache.Reserve(), &pt.Reserve
	}
	if s.WithinFloor(pages) {
		return
	}
	fair := max(1, t.Limit()/len(l.pools))
	l.tag = max(l.tag, pt.tag)
	pt.tag += int64(pages) * 64 * int64(s.Used()+fair) / int64(fair)
	l.pools = slices.Delete(l.pools, i, i+1)
	l.insert(p)
}

// pressAll has the pools destage that hold more than their floor, because others wait for room.
func (a *Array) pressAll() {
	for _, p := range a.pools {
		if p != nil && !p.part.Room.WithinFloor(0) && p.part.Dirty() > 0 {
			p.part.Kick()
		}
	}
}

// setCaps applies the cap policy to the pools that exist.
func (a *Array) setCaps() {
	if a.cache.SetCaps(a.opt.CapPercent) {
		a.gaveAll()
	}
}
