// Partitions: what a pool, as a number, has of the cache, and the state of its mdisks as far as it
// decides where a page may go.

package wcache

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
)

// Partition is a pool's part of the cache.
type Partition struct {
	c     *Cache
	id    uint16
	space *alloc.Space // says on which mdisk a page lies
	lanes []lane       // by mdisk

	Room    Share          // of the cache
	Reserve Share          // outside of the partition, for what writes through
	limit   int            // pages of the cache that it may use
	offload int            // pages of Room that offloads hold
	hosts   map[uint32]int // of these, by host, where hosts have a budget
	mode    Mode
	pinned  int // pages that cannot be destaged
	refused int // pages of batches for which their mdisks have no room

	order  order
	ring   []*Owner // who has dirty pages
	turn   int      // index into ring
	begun  bool     // the owner whose turn it is has got its quantum
	lru    []list   // by mdisk, where the order is the partition's
	direct []list   // by mdisk: what writes wait for
	pins   []list   // by mdisk, for those that are offline
	dirty  int      // pages on the owners' lists or on lru
	age    uint32   // of the page that became dirty last
	rest   rest
	pace   pace

	kicked     bool // the next step looks at it
	waited     bool // somebody waited for room when it was looked at
	directDone bool // the present step has sent all that it could of direct

	seconds float64 // integral of the used bytes over time
	metered int64
}

// lane is what the cache knows of an mdisk.
type lane struct {
	out                   int  // destages under way
	sent                  int  // pages of these
	away                  bool // it is offline: what is dirty for it gets pinned
	held                  bool // it has a redo: nothing else goes to it
	late                  bool // a sync of it is under way for which nobody waits
	refused, refusedPages int  // of out and sent: it has no room for them
}

// AddPartition makes a partition for a pool of so many mdisks. It counts when Open is called.
func (c *Cache) AddPartition(id uint16, space *alloc.Space, mdisks int) *Partition {
	p := &Partition{c: c, id: id, space: space, lanes: make([]lane, mdisks), hosts: map[uint32]int{},
		lru: newLists(mdisks), direct: newLists(mdisks), pins: newLists(mdisks)}
	p.rest.tickFn, p.pace.wakeFn = p.tick, p.wakeUp
	return p
}

// Open makes a partition one of the cache's.
func (p *Partition) Open() {
	c := p.c
	for len(c.partitions) <= int(p.id) {
		c.partitions = append(c.partitions, nil)
	}
	c.partitions[p.id] = p
	p.setRules()
}

// Close takes out a partition that holds nothing.
func (p *Partition) Close() {
	p.c.partitions[p.id] = nil
	for i := range p.lanes {
		p.c.unsynced(&p.lanes[i], func(l *lane) { *l = lane{} })
	}
	if p.pace.wakeAt != 0 {
		p.pace.wake.Stop()
	}
}

// ID returns the number of the partition's pool.
func (p *Partition) ID() uint16 { return p.id }

// Limit returns the pages of the cache that the partition may use.
func (p *Partition) Limit() int { return p.limit }

// Offloads returns the pages that offloads hold, those that are booked for one that waits included.
func (p *Partition) Offloads() int { return p.offload }

// HostOffloads is the same of the offloads of one host.
func (p *Partition) HostOffloads(host uint32) int { return p.hosts[host] }

// Dirty returns the pages that wait for their turn to be destaged.
func (p *Partition) Dirty() int { return p.dirty }

// Pinned returns the pages that cannot be destaged.
func (p *Partition) Pinned() int { return p.pinned }

// Empty reports whether no page of the partition's addresses can be in the index.
func (p *Partition) Empty() bool { return p.Room.used+p.Reserve.used == 0 }

// InFlight returns the destages that an mdisk has under way.
func (p *Partition) InFlight(mdisk int) int { return p.lanes[mdisk].out }

// laneOf returns the number of the mdisk that an address lies on.
func (p *Partition) laneOf(k layout.PageKey) int {
	md, _, _ := p.space.Locate(k.Phys())
	return md
}

// Meter brings the integral of the used bytes up to now. It is called before they change.
func (p *Partition) Meter() {
	if now := p.c.exec.Now(); now != p.metered {
		p.seconds += float64(p.Room.used) * layout.PageBytes * float64(now-p.metered) / 1e9
		p.metered = now
	}
}

// UsedSeconds is the integral of what the partition holds over time, in byte seconds.
func (p *Partition) UsedSeconds() float64 {
	p.Meter()
	return p.seconds
}

// enter books a new page to its partition's share, or to the reserve.
func (c *Cache) enter(w *Write, i uint32) {
	p, pt := &c.pages[i], w.Owner.part
	if w.Way != Fast {
		p.flags |= flagThrough
	}
	if w.Way >= WriteThrough {
		p.flags |= flagReserve
		c.reserve.take(&pt.Reserve)
		return
	}
	c.room.take(&pt.Room)
	if w.Origin.Undercover() {
		p.flags |= flagOffload
		pt.offload++
		if c.policy.Budget.HostPercent > 0 {
			p.flags |= flagHost
			c.rare[i].host = w.Host
			pt.hosts[w.Host]++
		}
	}
}

// leave takes a page out of its partition's share.
func (c *Cache) leave(pt *Partition, i uint32) {
	p := &c.pages[i]
	c.freed()
	if p.flags&flagReserve != 0 {
		c.reserve.give(&pt.Reserve)
		return
	}
	c.room.give(&pt.Room)
	if p.flags&flagOffload != 0 {
		pt.offload--
	}
	if p.flags&flagHost != 0 {
		pt.leaveHost(c.rare[i].host, 1)
	}
	if p.flags&(flagOffload|flagHost) != 0 {
		c.hooks.Relieved(pt.id)
	}
}

// Book counts pages of an offload that waits for room as if it held them, or (below 0) no longer
// does so; byHost: in the budget of its host, too.
func (p *Partition) Book(host uint32, pages int, byHost bool) {
	if p.offload += pages; byHost {
		p.leaveHost(host, -pages)
	}
}

func (p *Partition) leaveHost(host uint32, pages int) {
	if p.hosts[host] -= pages; p.hosts[host] == 0 {
		delete(p.hosts, host)
	}
}

// SetMode changes how the partition takes writes.
func (p *Partition) SetMode(m Mode) {
	p.mode = m
	p.Kick()
}

// Mode is how the partition was told to take writes.
func (p *Partition) Mode() Mode { return p.mode }

// ModeNow is how it takes them now: without a mirror everything is written through.
func (p *Partition) ModeNow() Mode {
	if p.c.unmirrored {
		return WriteThrough
	}
	return p.mode
}

// Hold keeps an mdisk from being sent anything while it has a redo.
func (p *Partition) Hold(mdisk int, held bool) {
	p.c.unsynced(&p.lanes[mdisk], func(l *lane) { l.held = held })
}

// Late says that a sync of an mdisk has lasted so long that the others are let go without it.
func (p *Partition) Late(mdisk int, late bool) {
	p.c.unsynced(&p.lanes[mdisk], func(l *lane) { l.late = late })
	p.c.keepHeld()
}

// unsynced changes what says that an mdisk is not synced with the others, and counts those.
func (c *Cache) unsynced(l *lane, change func(*lane)) {
	if l.held || l.late {
		c.heldLanes--
	}
	if change(l); l.held || l.late {
		c.heldLanes++
	}
}

// SetAway says whether an mdisk is offline. What is pinned for one that is back waits to be
// destaged again.
func (p *Partition) SetAway(mdisk int, away bool) {
	p.lanes[mdisk].away = away
	if away {
		return
	}
	for l := &p.pins[mdisk]; !l.empty(); {
		i := l.head
		v := p.c.owners[p.c.pages[i].owner]
		p.unlist(v, i)
		p.enlist(v, i)
	}
}

// pin moves a dirty page to the list of its mdisk, which is offline.
func (p *Partition) pin(mdisk int, i uint32) {
	c := p.c
	p.unlist(c.owners[c.pages[i].owner], i)
	c.pages[i].to(Pinned)
	c.push(&p.pins[mdisk], i)
	p.Park(1)
}

// Park notes that so many pages cannot get to their mdisk for now, or (below 0) can again.
func (p *Partition) Park(n int) {
	p.pinned += n
	p.c.pinned += n
}

// Refuse notes that a batch waits until its mdisk has room for it (1), or got that (-1). It keeps no
// other one waiting meanwhile: what has its place there already can go.
func (p *Partition) Refuse(b *Batch, by int) {
	l := &p.lanes[b.Mdisk]
	l.refused += by
	l.refusedPages += by * len(b.Pages)
	if p.refused += by * len(b.Pages); by > 0 {
		p.Kick()
	}
}

// Refused returns the pages for which their mdisks have no room.
func (p *Partition) Refused() int { return p.refused }

// AnyRefused reports whether a batch waits until an mdisk has room for it.
func (p *Partition) AnyRefused(mdisk int) bool { return p.lanes[mdisk].refused > 0 }
