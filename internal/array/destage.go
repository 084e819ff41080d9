package array

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
)

// The destager moves dirty pages to the mdisks. Volumes of a pool take turns, by
// bytes; inside a volume the oldest page goes first, with the neighbours in
// address that are dirty, too.
const (
	quantumPages  = 64 // 256 KiB: a volume's turn, and the longest operation
	destageDepth  = 16 // operations under way an mdisk
	settleTime    = 1_000_000_000
	cycleInterval = 200_000_000
	retryTime     = 1_000_000_000
)

// partition is a pool's part of the write cache.
type partition struct {
	limit   int // pages
	used    int // pages, destages in flight and not yet synced included
	ring    []*Volume
	turn    int // index into ring
	credit  int // pages that the volume whose turn it is may still send
	waiting opQueue
	// settle is the number of pages to destage although the partition is not
	// full: what was dirty at the last tick.
	settle int
	dirty  int // pages on the volumes' lists
}

func (p *Pool) addDirty(v *Volume, i uint32) {
	p.a.cache.listPush(&v.dirty, i)
	v.dirtyPages++
	p.part.dirty++
	if !v.inRing {
		v.inRing = true
		p.part.ring = append(p.part.ring, v)
	}
	p.a.needDestage(p)
}

func (p *Pool) removeDirty(v *Volume, i uint32) {
	p.a.cache.listRemove(&v.dirty, i)
	v.dirtyPages--
	p.part.dirty--
}

// needDestage makes the end of the present step look at the pool.
func (a *Array) needDestage(p *Pool) {
	if !p.destagePending {
		p.destagePending = true
		a.destagePools = append(a.destagePools, p)
	}
	if !p.ticking {
		p.ticking = true
		a.exec.At(a.exec.Now()+settleTime, p.tickFn)
	}
}

// tick lets everything that is dirty now settle on the back end, and starts a sync.
func (p *Pool) tick() {
	p.ticking = false
	p.part.settle = p.part.dirty
	if p.part.dirty > 0 {
		p.a.needDestage(p)
	}
	p.a.endStep()
}

// urgent tells whether the pool should destage as fast as its mdisks take it.
func (p *Pool) urgent() bool {
	pt := &p.part
	return !pt.waiting.empty() || p.a.draining ||
		pt.used*100 >= pt.limit*p.a.opt.DestageStart ||
		p.a.cache.used*100 >= p.a.cache.limit*p.a.opt.DestageStart
}

// destage starts operations while there is reason and room.
func (a *Array) destage(p *Pool) {
	pt := &p.part
	for pt.dirty > 0 && (pt.settle > 0 || p.urgent()) {
		v := p.turn()
		if v == nil {
			return
		}
		n := a.destageNext(p, v)
		if n == 0 {
			return // the mdisk of the oldest page is busy
		}
		pt.settle = max(0, pt.settle-n)
		if pt.credit -= n; pt.credit <= 0 {
			pt.credit = 0
			pt.turn++
		}
	}
}

// turn returns the volume whose turn it is.
func (p *Pool) turn() *Volume {
	pt := &p.part
	for len(pt.ring) > 0 {
		if pt.turn >= len(pt.ring) {
			pt.turn = 0
		}
		v := pt.ring[pt.turn]
		if v.dirtyPages > 0 {
			if pt.credit == 0 {
				pt.credit = quantumPages
			}
			return v
		}
		v.inRing = false
		pt.ring = append(pt.ring[:pt.turn], pt.ring[pt.turn+1:]...)
		pt.credit = 0
	}
	return nil
}

// destageUnit is the pages of one turn that go out together.
type destageUnit struct {
	pool    *Pool
	d       *mdisk
	pages   []uint32
	masks   []uint8
	origins []uint32
	left    int // operations under way
	failed  bool
	next    *destageUnit
}

func (a *Array) getUnit() *destageUnit {
	u := a.freeUnit
	if u == nil {
		return &destageUnit{}
	}
	a.freeUnit = u.next
	*u = destageUnit{pages: u.pages[:0], masks: u.masks[:0], origins: u.origins[:0]}
	return u
}

// destageNext sends the volume's oldest page and its neighbours off and returns
// the number of pages.
func (a *Array) destageNext(p *Pool, v *Volume) int {
	c := a.cache
	first := v.dirty.head
	k := c.pages[first].key
	md, _, _ := p.locate(k.phys())
	d := p.mdisks[md]
	if d.destages >= destageDepth {
		return 0
	}
	// Neighbours inside the extent, back and then forth.
	lo, hi := k, k+1
	base := pageKey(uint64(p.id)<<48 | k.phys()/extentSectors*extentSectors/pageSectors)
	for int(hi-lo) < p.part.credit && lo > base && a.joins(v, lo-1) {
		lo--
	}
	for int(hi-lo) < p.part.credit && hi < base+extentSectors/pageSectors && a.joins(v, hi) {
		hi++
	}
	u := a.getUnit()
	u.pool, u.d = p, d
	d.destages++
	for at := lo; at < hi; at++ {
		i := c.lookup(at)
		pg := &c.pages[i]
		p.removeDirty(v, i)
		pg.state = pageDestaging
		u.pages = append(u.pages, i)
		u.masks = append(u.masks, pg.mask)
		u.origins = append(u.origins, pg.origins)
	}
	a.issue(u)
	return len(u.pages)
}

// issue starts the operations of a unit, one for each run of sectors without a gap.
func (a *Array) issue(u *destageUnit) {
	c, p := a.cache, u.pool
	var x *diskIO
	end := ^uint64(0)       // sector where x ends
	memFrom, memEnd := 0, 0 // the last buffer of x, in NVRAM
	u.left = 1
	for n, i := range u.pages {
		at := c.pages[i].key.phys()
		for left := uint(u.masks[n]); left != 0; {
			s := bits.TrailingZeros(left)
			run := bits.TrailingZeros(^(left >> s))
			left &^= (1<<run - 1) << s
			sector := at + uint64(s)
			if sector != end {
				a.startDestage(u, x)
				x = a.getIO()
				_, x.io.Off, _ = p.locate(sector)
				x.io.Write, x.io.N, x.reason = true, 0, block.ReasonDestage
				end = sector
			}
			end += uint64(run)
			x.io.N += uint64(run) * block.SectorSize
			if a.payload {
				from := c.nv.dataAt(i) + s*block.SectorSize
				if len(x.io.Vec) > 0 && from == memEnd { // neighbours in memory are one buffer
					x.io.Vec = x.io.Vec[:len(x.io.Vec)-1]
				} else {
					memFrom = from
				}
				memEnd = from + run*block.SectorSize
				x.io.Vec = append(x.io.Vec, c.nv.b[memFrom:memEnd])
			}
			for j := s; j < s+run; j++ {
				x.bytes[originAt(u.origins[n], j)] += block.SectorSize
			}
		}
	}
	a.startDestage(u, x)
	a.unitDone(u)
}

func (a *Array) startDestage(u *destageUnit, x *diskIO) {
	if x == nil {
		return
	}
	u.left++
	x.ctx = u
	x.done = a.destageDoneFn
	u.d.start(x)
}

// joins tells whether the page of a key can go out with its neighbour.
func (a *Array) joins(v *Volume, k pageKey) bool {
	i := a.cache.lookup(k)
	if i == noPage {
		return false
	}
	p := &a.cache.pages[i]
	return p.state == pageDirty && p.vol == v.id && p.under == noPage
}

func (a *Array) destageDone(x *diskIO) {
	u := x.ctx.(*destageUnit)
	u.failed = u.failed || x.io.Err != nil
	a.unitDone(u)
}

// unitDone books one operation; when the last of a unit is done, its pages are on
// the back end and only wait for a sync. A unit that failed is sent again: its pages stay
// as they are until it succeeds, and so does what waits for them.
func (a *Array) unitDone(u *destageUnit) {
	if u.left--; u.left > 0 {
		return
	}
	if u.failed {
		u.failed = false
		u.d.failures++
		a.exec.At(a.exec.Now()+retryTime, func() {
			a.issue(u)
			a.endStep()
		})
		return
	}
	c, p := a.cache, u.pool
	u.d.destages--
	for n, i := range u.pages {
		pg := &c.pages[i]
		v := a.volumeByID(pg.vol)
		for left := u.masks[n]; left != 0; left &= left - 1 {
			v.leaveDirty(originAt(u.origins[n], bits.TrailingZeros8(left)), cellDestaged)
		}
		pg.state = pageWritten
		a.written = append(a.written, i)
		if pg.heir != noPage {
			h := &c.pages[pg.heir]
			h.under = noPage
			p.addDirty(a.volumeByID(h.vol), pg.heir)
			pg.heir = noPage
		}
	}
	u.next = a.freeUnit
	a.freeUnit = u
	a.needDestage(p)
}

// cycle frees what is written: sync the mdisks, clear the descriptors, flush NVRAM. One
// cycle runs at a time; force starts it however little there is.
func (a *Array) cycle(force bool) {
	if a.cycling || len(a.written)+len(a.cache.cooling) == 0 {
		return
	}
	c := a.cache
	if n := len(a.written) + len(c.cooling); !force && n < len(c.pages)/64 && c.freeCount > len(c.pages)/8 && !a.anyWaiting() {
		if !a.cycleTimer {
			a.cycleTimer = true
			a.exec.At(a.exec.Now()+cycleInterval, a.cycleFn)
		}
		return
	}
	a.cycling = true
	a.cycleBatch, a.written = a.written, a.cycleBatch[:0]
	a.cycleLeft = 1
	for _, p := range a.pools {
		for _, d := range p.mdisks {
			if d.unsynced {
				d.unsynced = false
				a.cycleLeft++
				d.medium.Sync(func(err error) {
					if err != nil {
						d.unsynced = true
						a.cycleFailed = true
					}
					a.cycleSynced()
				})
			}
		}
	}
	a.cycleSynced()
}

func (a *Array) cycleSynced() {
	if a.cycleLeft--; a.cycleLeft > 0 {
		return
	}
	if a.cycleFailed {
		// Nothing is freed before a sync succeeds.
		a.cycleFailed, a.cycling = false, false
		a.written = append(a.written, a.cycleBatch...)
		a.cycleBatch = a.cycleBatch[:0]
		if !a.cycleTimer {
			a.cycleTimer = true
			a.exec.At(a.exec.Now()+retryTime, a.cycleFn)
		}
		return
	}
	c := a.cache
	for _, i := range a.cycleBatch {
		p := &c.pages[i]
		if c.lookup(p.key) == i {
			c.remove(i)
		}
		a.leavePartition(a.poolByID(p.key.pool()))
		a.cool(i)
	}
	a.cycleBatch = a.cycleBatch[:0]
	a.coolBatch, c.cooling = c.cooling, a.coolBatch[:0]
	c.nv.region.Flush(descsOffset, c.nv.pages*descBytes, func(err error) {
		if err != nil {
			c.cooling = append(c.cooling, a.coolBatch...)
		} else {
			for _, i := range a.coolBatch {
				c.giveFree(i)
			}
		}
		a.coolBatch = a.coolBatch[:0]
		a.cycling = false
		a.endStep()
	})
}
