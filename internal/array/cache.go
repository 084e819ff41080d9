package array

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// A page of the write cache goes round these states:
//
//	free -> dirty -> destaging -> written -> (mdisk synced) buried -> (NVRAM flushed) free
//	        dirty -> cooling, when it is overwritten or nothing refers to it any more
//	        cooling -> (NVRAM flushed) buried
//
// Up to written a page belongs to a partition; the others wait until a power cut
// cannot bring them back, and cannot need them any more: see durable.go.
type pageState uint8

const (
	pageFree pageState = iota
	pageDirty
	pageDestaging
	pageWritten
	pageCooling
)

// pageList is the list that a dirty page waits in for its destage.
type pageList uint8

const (
	listNone   pageList = iota // it waits for its predecessor
	listVolume                 // its volume's, in the order of arrival
	listPool                   // the pool's, in the order of arrival (DestageLRU)
	listDirect                 // the pool's, for what writes through
	listPinned                 // its mdisk's, which is offline
)

type pageFlags uint8

const (
	// flagThrough: a write waits until the page is on the back end.
	flagThrough pageFlags = 1 << iota
	// flagReserve: the page lies in the reserve and outside its partition.
	flagReserve
	// flagOffload: the page counts in its partition's offload budget.
	flagOffload
	// flagHost: it counts in the budget of its host, too.
	flagHost
	// flagUnder, flagHeir: it waits for another page, another page waits for it.
	flagUnder
	flagHeir
	// flagDropped: some of its sectors were dropped, and a loss of power may undo that.
	flagDropped
)

const noPage = ^uint32(0)

// minCachePage is the number of pages that a cache has at least.
const minCachePage = 256

// page is the part of a page descriptor that the cache works with.
type page struct {
	key     pageKey
	origins uint32
	vol     uint32
	prev    uint32 // the volume's list of dirty pages, oldest first
	next    uint32 // also the chain of written and cooling pages
	state   pageState
	mask    uint8 // sectors that count here
	list    pageList
	flags   pageFlags
	age     uint32 // when it became dirty; of two pages the difference counts
}

// pageRare is what few pages have: it counts where the page's flags say so.
type pageRare struct {
	// While a page is being destaged, what is written to its key meanwhile lies in
	// its heir, which may not be destaged before; the heir's under is that page.
	under, heir uint32
	host        uint32 // that an offload's page is for
	dropped     uint64 // number of the log's last record when sectors were dropped last
}

// under returns the page below this one, or noPage.
func (c *cache) under(i uint32) uint32 {
	if c.pages[i].flags&flagUnder == 0 {
		return noPage
	}
	return c.rare[i].under
}

// inherit says that a page waits for another one, with its key, to be destaged.
func (c *cache) inherit(heir, under uint32) {
	c.pages[heir].flags |= flagUnder
	c.rare[heir].under = under
	c.pages[under].flags |= flagHeir
	c.rare[under].heir = heir
}

// cache is the write cache: pages of NVRAM indexed by physical address.
type cache struct {
	pageIndex
	nv    *nvlog.NVRAM
	pages []page
	rare  []pageRare
	// free is a ring: pages come back in the order in which they were destaged,
	// so that neighbours in address tend to be neighbours in NVRAM. Without payload
	// it is a stack, so that few pages are touched.
	free      []uint32
	freeHead  int
	freeCount int
	pot                // of the partitions
	reserve   pot      // outside of them, for what writes through: half of the pages that no partition may have
	cooling   []uint32 // see durable.go
	age       uint32   // of the page that became dirty last
	buried    []uint32
}

func newCache(nv *nvlog.NVRAM, limit int) *cache {
	c := &cache{nv: nv, pages: block.Table[page](nv.Pages), rare: make([]pageRare, nv.Pages), free: make([]uint32, nv.Pages),
		pot: pot{limit: limit, lack: lackRoom}, reserve: pot{limit: (nv.Pages - limit) / 2, lack: lackReserve}}
	c.pageIndex = newPageIndex(c.pages)
	return c
}

func (c *cache) takeFree() uint32 {
	if !c.nv.Payload {
		c.freeCount--
		return c.free[c.freeCount]
	}
	i := c.free[c.freeHead]
	if c.freeHead++; c.freeHead == len(c.free) {
		c.freeHead = 0
	}
	c.freeCount--
	return i
}

// touchTaken brings the last n pages that takeFree returned into the processor's caches; those
// before a ring's wrap are left out.
func (c *cache) touchTaken(n int) {
	end := c.freeCount + n
	if c.nv.Payload {
		end = c.freeHead
	}
	c.touchPages(c.free[max(end-n, 0):end])
}

func (c *cache) giveFree(i uint32) {
	if !c.nv.Payload {
		c.free[c.freeCount] = i
		c.freeCount++
		c.pages[i].state = pageFree
		return
	}
	at := c.freeHead + c.freeCount
	if at >= len(c.free) {
		at -= len(c.free)
	}
	c.free[at] = i
	c.freeCount++
	c.pages[i] = page{state: pageFree}
}

// dirtyList is a volume's dirty pages, oldest first, linked through the pages.
type dirtyList struct {
	head, tail uint32
	age        uint32 // of head
}

var noPages = dirtyList{head: noPage, tail: noPage}

func (l *dirtyList) empty() bool { return l.head == noPage }

func (c *cache) listPush(l *dirtyList, i uint32) {
	p := &c.pages[i]
	p.prev, p.next = l.tail, noPage
	if l.tail == noPage {
		l.head, l.age = i, p.age
	} else {
		c.pages[l.tail].next = i
	}
	l.tail = i
}

func (c *cache) listRemove(l *dirtyList, i uint32) {
	p := &c.pages[i]
	if p.prev == noPage {
		if l.head = p.next; l.head != noPage {
			l.age = c.pages[l.head].age
		}
	} else {
		c.pages[p.prev].next = p.next
	}
	if p.next == noPage {
		l.tail = p.prev
	} else {
		c.pages[p.next].prev = p.prev
	}
}

// fill copies sectors [first, first+n) of a new page from the cursor, takes over
// the other valid sectors of old (a dirty page or noPage), and writes checksums. It
// returns the mask and the origins of the whole page.
func (a *Array) fill(i, old uint32, first, n int, src *cursor, origin block.Origin) (uint8, uint32) {
	const size = block.SectorSize
	c := a.cache
	mask := uint8((1<<n - 1) << first)
	origins := uint32(origin) * allSectors & uint32((uint64(1)<<(4*n)-1)<<(4*first))
	if a.payload {
		data := c.nv.Write(i, first, n)
		src.copyTo(data)
		d := c.nv.Describe(i)
		for s := range n {
			d.SetSum(first+s, crc32c.Sector(data[s*size:]))
		}
	}
	if old == noPage {
		return mask, origins
	}
	o := &c.pages[old]
	keep := o.mask &^ mask
	for left := keep; left != 0; left &= left - 1 {
		s := bits.TrailingZeros8(left)
		origins |= o.origins & (15 << (4 * s))
		if a.payload {
			c.nv.CopySector(i, old, s)
			c.nv.Describe(i).SetSum(s, c.nv.Descriptor(old).Sum(s))
		}
	}
	return mask | keep, origins
}

// dirtyAt returns the page of this key that a new write takes over: noPage if there
// is none or if it is on its way to the back end.
func (c *cache) dirtyAt(k pageKey) uint32 {
	if i := c.lookup(k); i != noPage && c.pages[i].state == pageDirty {
		return i
	}
	return noPage
}

// install puts a filled page into the index as the newest of its key and retires
// old, the one until now, or noPage. Preconditions: the record with the page's sequence number is in
// the log.
func (a *Array) install(o *op, i, old uint32, k pageKey, mask, written uint8, origins uint32) {
	c, v := a.cache, o.v
	p := &c.pages[i]
	*p = page{key: k, origins: origins, vol: v.id, state: pageDirty, mask: mask}
	a.enterPartition(o, i)
	if p.flags&flagThrough != 0 {
		a.through[i] = o
		o.unsettled++
	}
	v.countAdmitted(o, uint64(bits.OnesCount8(written))*block.SectorSize)
	if len(a.bad) > 0 {
		a.mend(k, written)
	}
	if old != noPage {
		a.supersede(v, i, old, written)
	}
	c.insert(i)
	if p.flags&flagUnder == 0 {
		v.pool.addDirty(v, i)
	}
}

// supersede retires old, whose key now belongs to page i; written are the sectors
// that the write replaced, the others of a dirty page went over into i.
func (a *Array) supersede(v *Volume, i, old uint32, written uint8) {
	c := a.cache
	o := &c.pages[old]
	c.remove(old)
	switch o.state {
	case pageDestaging:
		c.inherit(i, old)
	case pageDirty:
		owner := a.volumeByID(o.vol)
		owner.meter()
		if under := c.under(old); under != noPage {
			c.inherit(i, under)
		} else {
			v.pool.removeDirty(owner, old)
		}
		owner.leaveDirty(o.mask&written, o.origins, cellOverwritten)
		if owner != v { // taken over by another volume's page
			for left := o.mask &^ written; left != 0; left &= left - 1 {
				g := originAt(o.origins, bits.TrailingZeros8(left))
				owner.leaveDirty(left&-left, o.origins, cellDiscarded)
				v.row(g).Cells[cellRecovered] += block.SectorSize
				v.dirtyBytes[g] += block.SectorSize
			}
		}
		a.settled(old)
		a.leavePartition(v.pool, old)
		a.cool(old)
	}
}

// enterPartition books a new page to its pool's share, or to the reserve.
func (a *Array) enterPartition(o *op, i uint32) {
	p, pt := &a.cache.pages[i], &o.v.pool.part
	if o.through {
		p.flags |= flagThrough
	}
	if o.reserve {
		p.flags |= flagReserve
		a.cache.reserve.take(&pt.reserve)
		return
	}
	a.cache.take(&pt.share)
	if o.origin.Undercover() {
		p.flags |= flagOffload
		pt.offload++
		if a.opt.Policy.Budget.HostPercent > 0 {
			p.flags |= flagHost
			a.cache.rare[i].host = o.host
			pt.hosts[o.host]++
		}
	}
}

// leavePartition takes a page out of its pool's share.
func (a *Array) leavePartition(p *Pool, i uint32) {
	pg := &a.cache.pages[i]
	a.gaveRoom()
	if pg.flags&flagReserve != 0 {
		a.cache.reserve.give(&p.part.reserve)
		return
	}
	a.cache.give(&p.part.share)
	if pg.flags&flagOffload != 0 {
		p.part.offload--
	}
	if pg.flags&flagHost != 0 {
		p.part.leaveHost(a.cache.rare[i].host, 1)
	}
	if pg.flags&(flagOffload|flagHost) != 0 {
		p.gaveBudget()
	}
}

// cool queues a page that nothing needs any more once a power cut cannot undo what
// made it so.
func (a *Array) cool(i uint32) {
	a.cache.pages[i].state = pageCooling
	a.cache.cooling = append(a.cache.cooling, i)
}

// drop forgets dirty sectors of a key because nothing refers to them any more. What
// is on its way to the back end gets there, and is counted there; it only stops to
// count as contents. The descriptor stays as it is: a recovery that finds such
// sectors writes them to where nobody reads.
func (a *Array) drop(k pageKey, lost uint8) {
	c := a.cache
	if len(a.bad) > 0 {
		a.mend(k, lost)
	}
	i := c.lookup(k)
	if i == noPage {
		return
	}
	p := &c.pages[i]
	if p.state != pageDirty {
		p.mask &^= lost
		return
	}
	v, pool := a.volumeByID(p.vol), a.poolByID(k.Pool())
	v.meter()
	v.leaveDirty(lost&p.mask, p.origins, cellDiscarded)
	p.mask &^= lost
	under := c.under(i)
	if under != noPage {
		c.pages[under].mask &^= lost
	}
	if p.mask != 0 {
		p.flags |= flagDropped
		c.rare[i].dropped = a.log.Seq()
		return
	}
	c.remove(i)
	pool.meter()
	if under == noPage {
		pool.removeDirty(v, i)
	} else {
		c.pages[under].flags &^= flagHeir
		c.insert(under)
	}
	a.settled(i)
	a.leavePartition(pool, i)
	a.cool(i)
}

// cursor reads a scatter list in order.
type cursor struct {
	vec    [][]byte
	i, off int
}

func (c *cursor) copyTo(dst []byte) {
	for len(dst) > 0 {
		n := copy(dst, c.vec[c.i][c.off:])
		dst = dst[n:]
		c.advance(n)
	}
}

func (c *cursor) advance(n int) {
	if c.off += n; c.off == len(c.vec[c.i]) {
		c.i, c.off = c.i+1, 0
	}
}

// take appends to dst the next n bytes of the list, without copying them.
func (c *cursor) take(dst [][]byte, n int) [][]byte {
	for n > 0 {
		b := c.vec[c.i][c.off:]
		b = b[:min(n, len(b)):min(n, len(b))]
		dst = append(dst, b)
		c.advance(len(b))
		n -= len(b)
	}
	return dst
}
