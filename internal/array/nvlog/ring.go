// The pages that are free. Those that will be written next are made ready before: a store may then
// spare whoever writes there a page fault for each, and the flush as many notices to other processors.

package nvlog

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// aheadPages is how many free pages are made ready at a time, and how many are at the least: what is
// ready and not used until the next flush is written by that for nothing.
const aheadPages = 256

// FreePages has the numbers of the pages that are free, in a ring: the one that came first goes first.
// Without payload it is a stack, so that few pages are touched. The cache says which pages are free.
type FreePages struct {
	payload bool
	pages   []uint32
	head    int
	count   int

	region block.Preparer // nil: it has no use for that
	ahead  int            // the first pages that are ready, or are being made so
	list   []uint32       // these are being made ready
	busy   bool
}

// NewFreePages returns the free pages of a region, of which there are none yet.
func NewFreePages(n *NVRAM) FreePages {
	region, _ := n.region.(block.Preparer)
	return FreePages{payload: n.Payload, pages: make([]uint32, n.Pages), region: region}
}

// Len returns the number of free pages.
func (f *FreePages) Len() int { return f.count }

// All makes all pages free, the last one first.
func (f *FreePages) All() {
	for i := range f.pages {
		f.pages[i] = uint32(len(f.pages) - 1 - i)
	}
	f.count = len(f.pages)
}

// Take takes a page. Preconditions: there is one.
func (f *FreePages) Take() uint32 {
	if !f.payload {
		f.count--
		return f.pages[f.count]
	}
	i := f.pages[f.head]
	if f.head++; f.head == len(f.pages) {
		f.head = 0
	}
	f.count--
	if f.region != nil {
		f.prepare()
	}
	return i
}

// Taken returns the last n pages that Take returned; those before a ring's wrap are left out.
func (f *FreePages) Taken(n int) []uint32 {
	end := f.count + n
	if f.payload {
		end = f.head
	}
	return f.pages[max(end-n, 0):end]
}

// At returns the page that the nth Take from now on would return.
func (f *FreePages) At(n int) uint32 {
	if !f.payload {
		return f.pages[f.count-1-n]
	}
	return f.pages[(f.head+n)%len(f.pages)]
}

// Flushed says that a flush has undone what was made ready.
func (f *FreePages) Flushed() { f.ahead = 0 }

// Give puts a page behind the others.
func (f *FreePages) Give(i uint32) {
	at := f.head + f.count
	if at >= len(f.pages) {
		at -= len(f.pages)
	}
	f.pages[at] = i
	f.count++
}

// Return puts a page that was taken before all others, as ready as it was. Preconditions: there is payload.
func (f *FreePages) Return(i uint32) {
	if f.head--; f.head < 0 {
		f.head = len(f.pages) - 1
	}
	f.pages[f.head] = i
	f.count++
	f.ahead++
}

// prepare is called when a page was taken: it has others made ready.
func (f *FreePages) prepare() {
	if f.ahead = max(f.ahead-1, 0); f.busy || f.ahead >= aheadPages || f.ahead >= f.count {
		return
	}
	f.list = f.list[:0]
	for ; len(f.list) < aheadPages && f.ahead < f.count; f.ahead++ {
		f.list = append(f.list, f.At(f.ahead))
	}
	slices.Sort(f.list)
	f.busy = true
	f.region.Prepare(f.list, func() { f.busy = false })
}
