// How what all share goes round those that wait: the room of the cache, the reserve for what writes
// through, and free pages. See package wcache for the floors.
//
// What is above the floors goes round the partitions that wait: the next is the one
// with the lowest tag, and each page costs it the more tag the more it holds already. While a
// partition waits for its turn nobody takes what it waits for, whoever comes.
//
// The line knows of a partition that it waits, its tag, and what it lacks. Who waits there, and in
// which order, only the partition knows. They say four things to each other: a partition joins the
// line; the line asks who is next there and whether that may go on (next), books its turn (charge),
// and tells the partition that it may (serve).

package admission

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
)

// Gate is the one place where it is decided who may bring pages into a cache.
type Gate struct {
	Waiters ticket.Sum // who waits for room or a budget

	cache *wcache.Cache
	log   *nvlog.Log
	pools []*Pool // with writes that wait for room, by tag
	tag   int64   // of the one that was served last
	lacks Lack    // what they wait for since the last look
	busy  bool    // they are being looked at

	// What was given back since those who wait for it were woken last.
	freed    bool
	relieved []*Pool // whose offloads hold less
}

// Pool is a partition of the cache, and who waits for it.
type Pool struct {
	*wcache.Partition
	g         *Gate
	stall     bool // the ramp delays all writes
	waiting   queue
	inLine    bool
	tag       int64     // what it has been served, weighted
	throttled throttles // offloads behind their budget
}

// New returns a gate to a cache whose records go to a log.
func New(c *wcache.Cache, log *nvlog.Log) *Gate { return &Gate{cache: c, log: log} }

// AddPool returns a gate's part for a partition.
func (g *Gate) AddPool(part *wcache.Partition) *Pool {
	p := &Pool{Partition: part, g: g}
	p.waiting.fair.Up, p.throttled.sum.Up = &g.Waiters, &g.Waiters
	return p
}

// Freed says that a write may find room in the cache that it did not find before: there are more
// pages, or it may take over more of those that are dirty.
func (g *Gate) Freed() {
	if len(g.pools) > 0 {
		g.freed = true
	}
}

// Changed says that other rules hold, under which anybody may go on.
func (g *Gate) Changed() { g.freed = true }

// Given reports whether somebody may be woken.
func (g *Gate) Given() bool { return g.freed || len(g.relieved) > 0 }

// Alone reports whether no other partition than one that was just served waits.
func (g *Gate) Alone() bool { return len(g.pools) <= 1 }

// contested reports whether a newcomer has to leave to others what it needs.
func (g *Gate) contested(k Lack) bool { return g.lacks&k != 0 || g.busy && len(g.pools) > 1 }

// shares reports whether pages more of a share fit into its pot: beside what there is and what
// others' floors promise, or where others wait for room, into its own floor.
func (g *Gate) shares(t *wcache.Pot, k Lack, s *wcache.Share, pages int, head bool) bool {
	if s.WithinFloor(pages) {
		return true
	}
	if !head && g.contested(k) || head && g.lacks&k != 0 {
		return false
	}
	return t.Fits(s, pages)
}

// join puts a partition with a write that waits into the line.
func (g *Gate) join(p *Pool) {
	if p.inLine {
		return
	}
	p.inLine = true
	g.cache.Await(true)
	p.tag = max(p.tag, g.tag)
	g.insert(p)
}

func (g *Gate) insert(p *Pool) {
	at := len(g.pools)
	for at > 0 && g.pools[at-1].tag > p.tag {
		at--
	}
	g.pools = slices.Insert(g.pools, at, p)
}

// Serve gives those that wait what there is, piece by piece, and reports whether it gave anybody
// anything.
func (g *Gate) Serve() (served bool) {
	if !g.freed {
		return false
	}
	g.freed = false
	was := g.lacks
	g.lacks, g.busy = 0, true
	defer func() { g.busy = false }()
	for i := 0; i < len(g.pools); {
		p := g.pools[i]
		t, c, said := p.next()
		if t == nil {
			p.inLine = false
			g.pools = slices.Delete(g.pools, i, i+1)
			g.cache.Await(len(g.pools) > 0)
			continue
		}
		switch {
		case said == NoLog:
			g.lacks |= was // nothing is known of the others
			return served
		case said == NoRoom && c.lacks&lackPages != 0:
			g.lacks |= lackPages | was
			return served
		case said == NoRoom:
			g.lacks |= c.lacks
			i++
			continue
		case said == NoBudget:
			p.throttle(t, c)
		default:
			g.charge(i, c)
			p.serve(t, c)
		}
		served = true
	}
	if g.lacks&lackRoom != 0 && was&lackRoom == 0 {
		g.cache.Press()
	}
	return served
}

// next is what the line asks a partition: who is next there, nil if nobody waits, and whether that
// may go on with what there is now.
func (p *Pool) next() (t *ticket.Ticket, c *Claim, said Verdict) {
	if t = p.waiting.head(); t == nil {
		return nil, nil, NoRoom
	}
	c = claimOf(t)
	return t, c, p.g.Admit(c, true)
}

// serve tells a partition that the claim that it named goes on, throttle that it has to wait for its
// budget, and the one behind it may be next.
func (p *Pool) serve(t *ticket.Ticket, c *Claim) {
	p.waiting.took(t, c)
	t.Wake()
}

func (p *Pool) throttle(t *ticket.Ticket, c *Claim) {
	p.waiting.took(t, c)
	c.Writer.Throttle()
}

// charge books the turn of the partition at place i of the line, unless its floor has room for the
// piece.
func (g *Gate) charge(i int, c *Claim) {
	p := g.pools[i]
	t, s := g.cache.Room(), &p.Room
	if c.Way >= wcache.WriteThrough {
		t, s = g.cache.Reserve(), &p.Reserve
	}
	if s.WithinFloor(c.Pages) {
		return
	}
	fair := max(1, t.Limit()/len(g.pools))
	g.tag = max(g.tag, p.tag)
	p.tag += int64(c.Pages) * 64 * int64(s.Used()+fair) / int64(fair)
	g.pools = slices.Delete(g.pools, i, i+1)
	g.insert(p)
}

// Pressed reports whether somebody waits for what the partition would free by destaging.
func (p *Pool) Pressed() bool {
	return p.Waiting() || p.g.cache.Policy().Budget.Pressure && p.Throttled() ||
		p.g.lacks&lackRoom != 0 && !p.Room.WithinFloor(0)
}
