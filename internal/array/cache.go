package array

import (
	"hash/crc32"
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
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
)

const noPage = ^uint32(0)

// page is the part of a page descriptor that the cache works with.
type page struct {
	key     pageKey
	origins uint32
	vol     uint32
	hnext   uint32 // hash chain
	prev    uint32 // the volume's list of dirty pages, oldest first
	next    uint32 // also the chain of written and cooling pages
	state   pageState
	mask    uint8 // sectors that count here
	list    pageList
	flags   pageFlags
	host    uint32 // that an offload's page is for
	// While a page is being destaged, what is written to its key meanwhile lies in
	// its heir, which may not be destaged before; the heir's under is that page.
	under uint32
	heir  uint32
	age   uint32 // when it became dirty; of two pages the difference counts
}

// cache is the write cache: pages of NVRAM indexed by physical address.
type cache struct {
	nv      *nvram
	pages   []page
	buckets []uint32
	shift   uint
	// free is a ring: pages come back in the order in which they were destaged,
	// so that neighbours in address tend to be neighbours in NVRAM. Without payload
	// it is a stack, so that few pages are touched.
	free      []uint32
	freeHead  int
	freeCount int
	limit     int      // pages that may be in partitions together
	used      int      // pages in partitions
	reserve   int      // pages outside of them, for what writes through
	cooling   []uint32 // see durable.go
	age       uint32   // of the page that became dirty last
	buried    []uint32
}

func newCache(nv *nvram, limit int) *cache {
	c := &cache{nv: nv, pages: make([]page, nv.pages), free: make([]uint32, nv.pages), limit: limit}
	n := 1 << bits.Len(uint(nv.pages-1))
	c.buckets = make([]uint32, n)
	c.shift = uint(64 - bits.Len(uint(n-1)))
	for i := range c.buckets {
		c.buckets[i] = noPage
	}
	return c
}

// hash puts the pages of a grain side by side: they come and go together.
func (c *cache) hash(k pageKey) *uint32 {
	return &c.buckets[(uint64(k/grainPages)*0x9E3779B97F4A7C15>>c.shift+uint64(k%grainPages))&uint64(len(c.buckets)-1)]
}

// lookup returns the newest page with this key, or noPage.
func (c *cache) lookup(k pageKey) uint32 {
	i := *c.hash(k)
	for i != noPage && c.pages[i].key != k {
		i = c.pages[i].hnext
	}
	return i
}

func (c *cache) insert(i uint32) {
	b := c.hash(c.pages[i].key)
	c.pages[i].hnext = *b
	*b = i
}

func (c *cache) remove(i uint32) {
	at := c.hash(c.pages[i].key)
	for *at != i {
		at = &c.pages[*at].hnext
	}
	*at = c.pages[i].hnext
}

func (c *cache) takeFree() uint32 {
	if !c.nv.payload {
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

func (c *cache) giveFree(i uint32) {
	if !c.nv.payload {
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
type dirtyList struct{ head, tail uint32 }

var noPages = dirtyList{head: noPage, tail: noPage}

func (l *dirtyList) empty() bool { return l.head == noPage }

func (c *cache) listPush(l *dirtyList, i uint32) {
	p := &c.pages[i]
	p.prev, p.next = l.tail, noPage
	if l.tail == noPage {
		l.head = i
	} else {
		c.pages[l.tail].next = i
	}
	l.tail = i
}

func (c *cache) listRemove(l *dirtyList, i uint32) {
	p := &c.pages[i]
	if p.prev == noPage {
		l.head = p.next
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
	var data, desc []byte
	if a.payload {
		data, desc = c.nv.data(i), c.nv.desc(i)
		src.copyTo(data[first*size : (first+n)*size])
		for s := first; s < first+n; s++ {
			descView(desc).setCRC(s, crc32.Checksum(data[s*size:(s+1)*size], castagnoli))
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
			copy(data[s*size:(s+1)*size], c.nv.data(old)[s*size:])
			descView(desc).setCRC(s, descView(c.nv.desc(old)).crc(s))
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
// what was there. Preconditions: the record with the page's sequence number is in
// the log.
func (a *Array) install(o *op, i uint32, k pageKey, mask, written uint8, origins uint32) {
	c, v := a.cache, o.v
	p := &c.pages[i]
	*p = page{key: k, origins: origins, vol: v.id, state: pageDirty, mask: mask, under: noPage, heir: noPage}
	a.enterPartition(o, p)
	if p.flags&flagThrough != 0 {
		a.through[i] = o
		o.unsettled++
	}
	v.countAdmitted(o, uint64(bits.OnesCount8(written))*block.SectorSize)
	if len(a.bad) > 0 {
		a.mend(k, written)
	}
	if old := c.lookup(k); old != noPage {
		a.supersede(v, i, old, written)
	}
	c.insert(i)
	if p.under == noPage {
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
		o.heir = i
		c.pages[i].under = old
	case pageDirty:
		owner := a.volumeByID(o.vol)
		owner.meter()
		if o.under != noPage {
			c.pages[i].under = o.under
			c.pages[o.under].heir = i
		} else {
			v.pool.removeDirty(owner, old)
		}
		owner.leaveDirty(o.mask&written, o.origins, cellOverwritten)
		if owner != v { // taken over by another volume's page
			for left := o.mask &^ written; left != 0; left &= left - 1 {
				g := originAt(o.origins, bits.TrailingZeros8(left))
				owner.leaveDirty(left&-left, o.origins, cellDiscarded)
				v.row(g).cells[cellRecovered] += block.SectorSize
				v.dirtyBytes[g] += block.SectorSize
			}
		}
		a.settled(old)
		a.leavePartition(v.pool, o)
		a.cool(old)
	}
}

// enterPartition books a new page to its pool's share, or to the reserve.
func (a *Array) enterPartition(o *op, p *page) {
	pt := &o.v.pool.part
	if o.through {
		p.flags |= flagThrough
	}
	if o.reserve {
		p.flags |= flagReserve
		pt.reserve++
		a.cache.reserve++
		return
	}
	pt.used++
	a.cache.used++
	if o.origin.Undercover() {
		p.flags |= flagOffload
		pt.offload++
		if a.opt.Policy.Budget.HostPercent > 0 {
			p.flags |= flagHost
			p.host = o.host
			pt.hosts[o.host]++
		}
	}
}

// leavePartition takes a page out of its pool's share.
func (a *Array) leavePartition(p *Pool, pg *page) {
	if pg.flags&flagReserve != 0 {
		p.part.reserve--
		a.cache.reserve--
		return
	}
	p.part.used--
	a.cache.used--
	if pg.flags&flagOffload != 0 {
		p.part.offload--
	}
	if pg.flags&flagHost != 0 {
		if p.part.hosts[pg.host]--; p.part.hosts[pg.host] == 0 {
			delete(p.part.hosts, pg.host)
		}
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
	v, pool := a.volumeByID(p.vol), a.poolByID(k.pool())
	v.meter()
	v.leaveDirty(lost&p.mask, p.origins, cellDiscarded)
	p.mask &^= lost
	if p.under != noPage {
		c.pages[p.under].mask &^= lost
	}
	if p.mask != 0 {
		return
	}
	c.remove(i)
	pool.meter()
	if p.under == noPage {
		pool.removeDirty(v, i)
	} else {
		u := &c.pages[p.under]
		u.heir = noPage
		c.insert(p.under)
	}
	a.settled(i)
	a.leavePartition(pool, p)
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
