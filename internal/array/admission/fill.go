// Pages that are filled while others have their turn: a piece that was admitted gets them, and they are
// free again in the step that commits it or gives it up. None has an address before that, so nothing
// that happens meanwhile can be in their way.

package admission

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Fill is the pages that a piece is filled into, in the order of its sectors. It is used again.
type Fill struct {
	Head bool // the piece stood first in its partition's queue

	c       *wcache.Cache
	v       *wcache.Owner
	pages   []uint32
	at, end uint64 // sectors of the volume
	src     block.Cursor
	ready   bool // they have their data, and are free
}

// Fill takes pages for sectors [at, end) of an owner's volume, as a claim that was admitted asks for,
// and books them to the partition. Preconditions: the claim is Whole, so that there is room for them
// beside what they will replace.
func (g *Gate) Fill(f *Fill, v *wcache.Owner, at, end uint64, src block.Cursor) {
	*f = Fill{Head: f.Head, c: g.cache, v: v, pages: f.pages[:0], at: at, end: end, src: src}
	for s := at - at%layout.PageSectors; s < end; s += layout.PageSectors {
		f.pages = append(f.pages, wcache.NoPage)
	}
	g.cache.TakeToFill(v, f.pages)
}

// Copy fills the pages and writes the checksums. It may run beside the executor: it uses a source that
// stays as it is, and pages that nothing that counts refers to.
func (f *Fill) Copy() {
	at := f.at
	for _, i := range f.pages {
		in := int(at % layout.PageSectors)
		n := min(layout.PageSectors-in, int(f.end-at))
		f.src.CopyTo(f.c.NV.Write(i, in, n))
		f.c.SumSectors(i, in, n)
		at += uint64(n)
	}
}

// End makes the pages free again, and the next that are taken, in their order.
func (f *Fill) End() {
	f.c.GiveFilled(f.v, f.pages)
	f.src, f.ready = block.Cursor{}, true
}

// Take reports whether n sectors have their data since the last call. It is asked where they would be
// committed in the same step; without that, or when others may have taken pages, see Forget.
func (f *Fill) Take(n uint64) bool {
	ready := f.ready && f.end-f.at == n
	if f.ready = false; !ready {
		f.Forget()
	}
	return ready
}

// Has reports whether a page is the n-th, with its data.
func (f *Fill) Has(n int, page uint32) bool { return n < len(f.pages) && f.pages[n] == page }

// Forget has nothing be filled any more.
func (f *Fill) Forget() { f.pages, f.at, f.end, f.ready = f.pages[:0], 0, 0, false }
