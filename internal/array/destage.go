package array

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// The destager moves dirty pages to the mdisks: what writes through at once, the rest
// in the order and at the rate of the policy. With the oldest page go the neighbours
// in address that are dirty, too, so that sequential data is coalesced.
const (
	quantumPages = 64 // 256 KiB: a volume's turn, and the longest operation
	// What a volume could not send because its mdisks were busy it keeps for its next
	// turns, up to this many pages: turns are fair in bytes, not in operations.
	maxCredit = 16 * quantumPages
	// Dirty data that is not pressed for room stays in the cache while its pool is written to, because the
	// next write may be to the same place and because hosts want the processor and the mdisks now. It
	// goes out when nothing came for settleTime, which is looked at that often, and after settleMost in any case.
	settleTime    = 500_000_000
	settleMost    = 30_000_000_000
	cycleInterval = 200_000_000
	paceSlack     = 10_000_000 // what a paced destager may catch up when it was held up
)

// partition is a pool's part of the write cache.
type partition struct {
	share                  // of the write cache
	limit   int            // pages of it that the pool may use
	reserve share          // outside of the partition, for what writes through
	offload int            // pages of used that offloads hold
	hosts   map[uint32]int // of these, by host, where hosts have a budget
	stall   bool           // the ramp delays all writes

	ring    []*Volume
	turn    int         // index into ring
	begun   bool        // the volume whose turn it is has got its quantum
	lru     []dirtyList // by mdisk, where the order is the pool's
	direct  []dirtyList // by mdisk: what writes through
	waiting waitQueue
	inLine  bool       // the array knows that somebody waits
	tag     int64      // what it has been served, weighted; see share.go
	braked  brakeQueue // offloads behind their budget
	// settle is the number of pages to destage although the partition is not full: those that were
	// dirty at the last tick, when the newest was of age settleAge, and still are.
	settle    int
	settleAge uint32
	dirty     int   // pages on the volumes' lists or on lru
	written   bool  // since the last tick pages became dirty
	settled   int64 // since when there is dirty data that no tick let settle

	// Pacing: the destage of paceBytes began at paceFrom; the next is due at due.
	paceFrom, paceBytes, due int64
	wake                     block.Timer
	wakeAt                   int64 // 0: not set

	seconds float64 // integral of the used bytes over time
	metered int64
}

// meter brings the integral of the used bytes up to now. It is called before they change.
func (p *Pool) meter() {
	pt := &p.part
	if now := p.a.exec.Now(); now != pt.metered {
		pt.seconds += float64(pt.used) * pageBytes * float64(now-pt.metered) / 1e9
		pt.metered = now
	}
}

// addDirty queues a page for its destage.
func (p *Pool) addDirty(v *Volume, i uint32) {
	c, pt := p.a.cache, &p.part
	pg := &c.pages[i]
	c.age++
	pg.age = c.age
	pt.written = true
	if pg.flags&flagThrough != 0 {
		pg.list = listDirect
		c.listPush(&pt.direct[p.mdiskOfPage(i)], i)
		p.a.needDestage(p)
		return
	}
	md, _, _ := p.space.Locate(pg.key.Phys())
	if pt.dirty == 0 {
		pt.settled = p.a.exec.Now()
	}
	pt.dirty++
	if p.a.opt.Policy.Order == DestageLRU {
		pg.list = listPool
		c.listPush(&pt.lru[md], i)
	} else {
		pg.list = listVolume
		c.listPush(&v.dirty[md], i)
		v.dirtyPages++
		if !v.inRing {
			v.inRing = true
			pt.ring = append(pt.ring, v)
		}
	}
	p.a.needDestage(p)
}

// removeDirty takes a page from the list that it is on.
func (p *Pool) removeDirty(v *Volume, i uint32) {
	c, pt := p.a.cache, &p.part
	pg := &c.pages[i]
	md, _, _ := p.space.Locate(pg.key.Phys())
	if pt.settle > 0 && (pg.list == listVolume || pg.list == listPool) && p.settles(i) {
		pt.settle--
	}
	switch pg.list {
	case listVolume:
		c.listRemove(&v.dirty[md], i)
		v.dirtyPages--
		pt.dirty--
	case listPool:
		c.listRemove(&pt.lru[md], i)
		pt.dirty--
	case listDirect:
		c.listRemove(&pt.direct[md], i)
	case listPinned:
		c.listRemove(&p.mdisks[md].pinned, i)
		p.unpin(1)
	}
	pg.list = listNone
}

// settles tells whether a dirty page is one of those to settle.
func (p *Pool) settles(i uint32) bool {
	return p.part.settle > 0 && int32(p.a.cache.pages[i].age-p.part.settleAge) <= 0
}

// mdiskOfPage returns the number of the mdisk that a page of the pool goes to.
func (p *Pool) mdiskOfPage(i uint32) int {
	md, _, _ := p.space.Locate(p.a.cache.pages[i].key.Phys())
	return md
}

// anyDirect tells whether a write waits for its pages to be sent to the back end.
func (p *Pool) anyDirect() bool {
	return slices.ContainsFunc(p.part.direct, func(l dirtyList) bool { return !l.empty() })
}

// emptyLists returns a list of dirty pages for each mdisk of the pool.
func (p *Pool) emptyLists() []dirtyList {
	l := make([]dirtyList, len(p.mdisks))
	for i := range l {
		l[i] = noPages
	}
	return l
}

// needDestage makes the end of the present step look at the pool.
func (a *Array) needDestage(p *Pool) {
	if !p.destagePending {
		p.destagePending = true
		a.destagePools = append(a.destagePools, p)
	}
	if age := a.maxAge(); age > 0 && !p.ticking && p.part.dirty > 0 {
		p.ticking = true
		a.exec.At(a.exec.Now()+age, p.tickFn)
	}
}

// maxAge is the time after which dirty data goes out however little there is, or after which it is looked
// whether the pool is at rest; 0 is never.
func (a *Array) maxAge() int64 {
	if r := &a.opt.Policy.Ramp; !r.atRest() {
		return r.MaxAge
	}
	return settleTime
}

// tick lets everything that is dirty now settle on the back end, unless more keeps coming.
func (p *Pool) tick() {
	a, pt := p.a, &p.part
	p.ticking = false
	now := a.exec.Now()
	busy := a.opt.Policy.Ramp.atRest() && pt.written && now-pt.settled < settleMost
	pt.written = false
	if !busy {
		pt.settled, pt.settle, pt.settleAge = now, pt.dirty, a.cache.age
	}
	if pt.dirty > 0 {
		a.needDestage(p)
	}
	a.endStep()
}

// mayDestage tells whether another destage may start now; if only the pace forbids it,
// it sets a timer.
func (p *Pool) mayDestage() bool {
	a, pt := p.a, &p.part
	pol, c := &a.opt.Policy, a.cache
	pt.due = 0
	if a.draining || a.degraded {
		return true
	}
	waiting := !pt.waiting.empty() || pol.Budget.Pressure && !pt.braked.empty() || c.used+piecePages > c.limit ||
		a.line.lacks&lackRoom != 0 && pt.used > pt.floor
	if len(pol.Ramp.Points) == 0 {
		return waiting || pt.used*100 >= pt.limit*a.opt.DestageStart || c.used*100 >= c.limit*a.opt.DestageStart
	}
	rate := pol.Ramp.rate(int64(pt.used)*pageBytes, int64(pt.limit)*pageBytes, waiting)
	if rate <= 0 {
		return rate < 0
	}
	pt.due = pt.paceFrom + pt.paceBytes*1_000_000_000/rate
	if pt.due <= a.exec.Now() {
		return true
	}
	if pt.wakeAt == 0 || pt.wakeAt > pt.due {
		if pt.wakeAt != 0 {
			pt.wake.Stop()
		}
		pt.wakeAt = pt.due
		pt.wake = a.exec.At(pt.due, p.wakeFn)
	}
	return false
}

// paced books a destage of n pages.
func (p *Pool) paced(n int) {
	pt, now := &p.part, p.a.exec.Now()
	pt.paceFrom, pt.paceBytes = now, int64(n)*pageBytes
	if pt.due != 0 {
		pt.paceFrom = max(pt.due, now-paceSlack)
	}
}

func (p *Pool) wakeUp() {
	p.part.wakeAt = 0
	p.a.needDestage(p)
	p.a.endStep()
}

// destage starts operations while there is reason and room.
func (a *Array) destage(p *Pool) {
	pt := &p.part
	for first := p.oldest(pt.direct); first != noPage && a.destagePage(p, first, quantumPages) != 0; {
		first = p.oldest(pt.direct)
	}
	for blocked := 0; pt.dirty > 0 && p.anyRoom(); {
		pt.due = 0
		pressed := pt.settle == 0
		if pressed && !p.mayDestage() {
			return
		}
		var v *Volume
		first, credit := noPage, quantumPages
		if a.opt.Policy.Order == DestageLRU {
			first = p.oldest(pt.lru)
		} else {
			v = p.turn()
			first, credit = p.oldest(v.dirty), min(v.credit, quantumPages)
		}
		n := 0
		if first != noPage && (pressed || p.settles(first) || p.mayDestage()) {
			n = a.destagePage(p, first, credit)
		}
		if n == 0 { // its mdisks are busy, or it is not its time
			if blocked++; v == nil || blocked > len(pt.ring) {
				return
			}
			p.nextTurn()
			continue
		}
		blocked = 0
		if n < 0 { // pinned
			continue
		}
		p.paced(n)
		if v != nil {
			if v.credit -= n; v.credit <= 0 {
				p.nextTurn()
			}
		}
	}
}

// anyRoom tells whether an mdisk takes another destage.
func (p *Pool) anyRoom() bool {
	for _, d := range p.mdisks {
		if d.destages < p.a.opt.Policy.DestageDepth || d.Offline() {
			return true
		}
	}
	return false
}

// oldest returns the oldest page on lists by mdisk whose mdisk takes another destage:
// what waits for a busy mdisk must not hold up the others.
func (p *Pool) oldest(lists []dirtyList) uint32 {
	depth := p.a.opt.Policy.DestageDepth
	best, age := noPage, uint32(0)
	for md := range lists {
		l := &lists[md]
		if l.head == noPage || p.mdisks[md].destages >= depth && !p.mdisks[md].Offline() {
			continue
		}
		if best == noPage || int32(l.age-age) < 0 {
			best, age = l.head, l.age
		}
	}
	return best
}

// turn returns the volume whose turn it is. Preconditions: one has dirty pages.
func (p *Pool) turn() *Volume {
	pt := &p.part
	for {
		if pt.turn >= len(pt.ring) {
			pt.turn = 0
		}
		v := pt.ring[pt.turn]
		if v.dirtyPages > 0 {
			if !pt.begun {
				pt.begun = true
				v.credit = min(v.credit+quantumPages, maxCredit)
			}
			return v
		}
		v.inRing, v.credit = false, 0
		pt.ring = append(pt.ring[:pt.turn], pt.ring[pt.turn+1:]...)
		pt.begun = false
	}
}

func (p *Pool) nextTurn() {
	p.part.turn++
	p.part.begun = false
}

// destagePage sends a dirty page and its neighbours off, at most credit pages, and
// returns their number: 0 if the mdisk is busy, negative if it is offline and the page is pinned now.
func (a *Array) destagePage(p *Pool, first uint32, credit int) int {
	c := a.cache
	k := c.pages[first].key
	md, _, _ := p.space.Locate(k.Phys())
	d := p.mdisks[md]
	if d.Offline() {
		p.pin(d, first)
		return -1
	}
	if d.destages >= a.opt.Policy.DestageDepth {
		return 0
	}
	if d.Redoing() {
		return 0
	}
	if !a.flushedPage(first) {
		a.flusher.Want()
		return 0
	}
	v := a.volumeByID(c.pages[first].vol)
	// Neighbours inside the extent, back and then forth.
	lo, hi := k, k+1
	base := pageKey(uint64(p.id)<<48 | k.Phys()/extentSectors*extentSectors/pageSectors)
	u := a.getUnit()
	c.touchGrain(k)
	for int(hi-lo) < credit && lo > base {
		i := a.joins(v, lo-1)
		if i == noPage {
			break
		}
		u.pages = append(u.pages, i)
		lo--
	}
	slices.Reverse(u.pages)
	u.pages = append(u.pages, first)
	for int(hi-lo) < credit && hi < base+extentSectors/pageSectors {
		i := a.joins(v, hi)
		if i == noPage {
			break
		}
		u.pages = append(u.pages, i)
		hi++
	}
	u.pool, u.d, u.reason = p, d, block.ReasonDestage
	if c.pages[first].flags&flagThrough != 0 {
		u.reason = block.ReasonWriteThrough
	}
	d.destages++
	for _, i := range u.pages {
		pg := &c.pages[i]
		p.removeDirty(v, i)
		pg.state = pageDestaging
		u.masks = append(u.masks, pg.mask)
		u.origins = append(u.origins, pg.origins)
	}
	a.issue(u)
	return len(u.pages)
}
