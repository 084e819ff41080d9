// Where the newest page of an address is found. Invariant: an address has at most one page here, and
// none when that is on the back end for good, or dropped. Older ones that have a sector which no newer
// one has, and that are not there for good, are its predecessors.

package wcache

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// pageIndex finds the newest page of an address. The sixteen slots of a grain lie side by
// side, in two lines of the processor's cache, because pages of a grain come and go together; a
// slot says by itself that there is nothing, or nothing of this grain, without a look at a page.
// Grains that share slots are chained through next.
type pageIndex struct {
	pages []page // of the cache
	slots []indexSlot
	next  []uint32 // of a page that is chained: the next of its slot
	shift uint
	// touched keeps what touch and touchPages look at from being left out by the compiler.
	touched indexSlot
}

// indexSlot is 0 or: bits 0-31 number of a page plus one | 32 there are more in its chain |
// 33-63 check bits of the page's grain.
type indexSlot uint64

const slotMore = indexSlot(1 << 32)

func (s indexSlot) page() uint32 { return uint32(s) - 1 }

// newPageIndex has room for all pages: about as many slots.
func newPageIndex(pages []page) pageIndex {
	groups := max(1, 1<<bits.Len(uint(len(pages)-1))/layout.GrainPages)
	return pageIndex{pages: pages, slots: block.Table[indexSlot](groups * layout.GrainPages), next: make([]uint32, len(pages)),
		shift: uint(64 - bits.Len(uint(groups-1)))}
}

// group returns the slots of an address's grain and its check bits.
func (x *pageIndex) group(k layout.PageKey) ([]indexSlot, indexSlot) {
	h := uint64(k/layout.GrainPages) * 0x9E3779B97F4A7C15
	return x.slots[h>>x.shift<<layout.GrainPageShift:][:layout.GrainPages], indexSlot(h<<20) &^ (1<<33 - 1)
}

// at returns the slot of an address and the check bits of its grain.
func (x *pageIndex) at(k layout.PageKey) (*indexSlot, indexSlot) {
	g, check := x.group(k)
	return &g[k%layout.GrainPages], check
}

// touchPages brings pages into the processor's caches, all at once: a loop that does more with each
// would wait for one after the other.
func (x *pageIndex) touchPages(pages []uint32) {
	any := indexSlot(0)
	for _, i := range pages {
		any |= indexSlot(x.pages[i].key)
	}
	x.touched = any
}

// touch brings the slots of keys into the processor's caches.
func (x *pageIndex) touch(keys []layout.PageKey) {
	any := indexSlot(0)
	for _, k := range keys {
		s, _ := x.at(k)
		any |= *s
	}
	x.touched = any
}

// touchGrain brings the pages of a key's grain into the processor's caches, if there is one beside it.
func (x *pageIndex) touchGrain(k layout.PageKey) {
	group, check := x.group(k)
	if at := k % layout.GrainPages; (at == 0 || group[at-1] == 0) && (at == layout.GrainPages-1 || group[at+1] == 0) {
		return
	}
	any := indexSlot(0)
	for _, s := range group {
		if s != 0 && s>>33 == check>>33 {
			any |= indexSlot(x.pages[s.page()].key)
		}
	}
	x.touched = any
}

// Lookup returns the newest page with this key, or NoPage.
func (x *pageIndex) Lookup(k layout.PageKey) uint32 {
	s, check := x.at(k)
	e := *s
	if e == 0 {
		return NoPage
	}
	if e>>33 == check>>33 {
		if i := e.page(); x.pages[i].key == k {
			return i
		}
	}
	if e&slotMore == 0 {
		return NoPage
	}
	i := x.next[e.page()]
	for i != NoPage && x.pages[i].key != k {
		i = x.next[i]
	}
	return i
}

// insert makes a page the newest of its key. Preconditions: no other page with this key is there.
func (x *pageIndex) insert(i uint32) {
	s, check := x.at(x.pages[i].key)
	e := check | indexSlot(i+1)
	if old := *s; old != 0 {
		if old&slotMore == 0 {
			x.next[old.page()] = NoPage
		}
		x.next[i] = old.page()
		e |= slotMore
	}
	*s = e
}

// removeKnown takes out page i, whose key is k, if it is there: a newer one may have replaced it.
func (x *pageIndex) removeKnown(i uint32, k layout.PageKey) {
	s, _ := x.at(k)
	e := *s
	if e.page() != i {
		if e&slotMore == 0 {
			return
		}
		at := x.next[e.page()]
		for at != i {
			if at == NoPage {
				return
			}
			at = x.next[at]
		}
	}
	x.unlink(s, i)
}

// remove takes out a page that is there.
func (x *pageIndex) remove(i uint32) {
	s, _ := x.at(x.pages[i].key)
	x.unlink(s, i)
}

func (x *pageIndex) unlink(s *indexSlot, i uint32) {
	e := *s
	switch {
	case e&slotMore == 0:
		*s = 0
	case e.page() == i:
		n := x.next[i]
		_, check := x.at(x.pages[n].key)
		*s = check | indexSlot(n+1)
		if x.next[n] != NoPage {
			*s |= slotMore
		}
	default:
		at := e.page()
		for x.next[at] != i {
			at = x.next[at]
		}
		x.next[at] = x.next[i]
		if x.next[e.page()] == NoPage {
			*s &^= slotMore
		}
	}
}
