// A piece of a write enters the write cache: it is admitted, placed, filled into pages, and
// committed by its record in the log; only then do the map and the cache's index change.

package request

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// commitScratch is what a commit works with, reused.
type commitScratch struct {
	wait    bool // what a failed commit lacks is there as soon as transfers or discards end
	again   bool // or perhaps when more garbage is collected
	windows [layout.PieceWindows]commitWindow
	nw      int // windows
	pages   [layout.PiecePages + 1]wcache.Entry
	np      int // pages
}

type commitWindow struct {
	index, phys uint64 // phys of the window's first sector
	first, n    uint64
	fresh       bool // the grain was allocated for this commit
	edit        bool // the map does not say so yet, or some of it was bad
}

// commit makes n sectors from o.cur on durable against the death of the process:
// it places them, fills pages, writes the log record, and only then changes map and index.
// Preconditions: admit.
func (e *Engine) commit(o *op, n uint64) block.Status {
	v, sc := o.v, &e.scratch
	v.Cached.Meter()
	v.Pool().Part.Meter()
	edits, s := o.placeWindows(n)
	if s != block.OK {
		return s
	}
	room, ok := e.link.Claim(edits)
	if !ok {
		v.unplace(sc.nw)
		return block.Resources
	}
	o.fillPages(room.Next(), edits > 0)
	e.edits = e.edits[:0]
	for i := range sc.nw {
		if w := &sc.windows[i]; w.edit {
			e.edits = append(e.edits, nvlog.Edit{Volume: v.ID(), State: block.Data,
				Range: block.Range{Start: w.index<<layout.WindowShift + w.first, Count: w.n}, Phys: w.phys + w.first})
		}
	}
	if _, ok := room.Append(e.edits, sc.np); !ok {
		e.BreakDown("internal error: a write has lost its room in the log")
		return block.Hardware
	}
	for i := range e.edits {
		v.Map.SetData(e.edits[i].Range, e.edits[i].Phys)
	}
	o.installPages()
	e.changed(v, block.Range{Start: o.cur, Count: n})
	if edits > 0 {
		v.Account()
	}
	o.claim.Committed()
	return block.OK
}

// placeWindows finds where each window of a commit goes, and returns how many of them the map does
// not have yet. On an error nothing is allocated.
func (o *op) placeWindows(n uint64) (edits int, s block.Status) {
	v, sc := o.v, &o.e.scratch
	sc.nw = 0
	for at := o.cur; at < o.cur+n; {
		w := &sc.windows[sc.nw]
		w.index, w.first = at>>layout.WindowShift, at&(layout.WindowSectors-1)
		w.n = min(layout.WindowSectors-w.first, o.cur+n-at)
		if s := v.target(w); s != block.OK {
			v.unplace(sc.nw)
			return 0, s
		}
		if w.edit {
			edits++
		}
		at += w.n
		sc.nw++
	}
	return edits, block.OK
}

// fillPages fills pages of NVRAM for the windows of a commit, with the number of its record.
// edited: the record changes the map, too, which may drop pages.
func (o *op) fillPages(seq uint64, edited bool) {
	e, v := o.e, o.v
	c, sc := e.cache, &e.scratch
	sc.np = 0
	for i := range sc.nw {
		w := &sc.windows[i]
		for s := w.first; s < w.first+w.n; {
			in := int(s % layout.PageSectors)
			k := min(layout.PageSectors-in, int(w.first+w.n-s))
			pg := &sc.pages[sc.np]
			pg.Key = layout.KeyOf(v.Pool().ID(), w.phys+s)
			pg.Page = e.link.TakePage()
			old := wcache.NoPage
			if pg.Known = !edited; !w.fresh {
				pg.Old = c.Lookup(pg.Key)
				if pg.Old != wcache.NoPage && c.State(pg.Old).Dirty() {
					old = pg.Old
				}
			}
			pg.Written = uint8((1<<k - 1) << in)
			switch {
			case !e.payload:
			case o.fill.Has(sc.np, pg.Page):
				o.src.Skip(k * block.SectorSize)
			default:
				o.src.CopyTo(c.NV.Write(pg.Page, in, k))
				c.SumSectors(pg.Page, in, k)
			}
			pg.Mask, pg.Origins = c.Compose(pg.Page, old, in, k, o.origin)
			if e.payload {
				c.NV.Describe(pg.Page).Seal(seq, pg.Key, v.ID(), pg.Mask, pg.Origins)
			}
			s += uint64(k)
			sc.np++
		}
	}
}

// installPages puts the pages of a commit into the cache.
func (o *op) installPages() {
	e, c, sc := o.e, o.e.cache, &o.e.scratch
	bad := &o.v.Pool().Bad
	w := wcache.Write{Owner: o.v.Cached, Origin: o.origin, Host: o.host, Way: o.claim.Way}
	c.TouchTaken(sc.np)
	for i := range sc.np {
		pg := &sc.pages[i]
		if !pg.Known {
			pg.Old = c.Lookup(pg.Key)
		}
		if o.claim.Through() {
			e.settling.pages[pg.Page] = o
			o.unsettled++
		}
		bad.Forget(pg.Key, pg.Written)
		c.Install(&w, pg)
	}
}

// unplace gives back what the first n windows of a commit that cannot be finished have allocated.
func (v *Volume) unplace(n int) {
	for i := range v.e.scratch.windows[:n] {
		if w := &v.e.scratch.windows[i]; w.fresh {
			v.Pool().Alloc.Free(w.phys >> layout.WindowShift)
		}
	}
}

// target finds where a window's sectors go: into a grain that it has for itself, or into a new one. Without room at the
// mdisks only sectors that the map has are written, since others need more room in a grain that is there, too.
func (v *Volume) target(w *commitWindow) block.Status {
	w.fresh, w.edit = false, true
	phys, mapped, inPlace := v.Map.InPlace(w.index, w.first, w.n)
	if !mapped && v.Pool().Roomless() { // what is acknowledged would stay in the cache, without room for what has its place
		v.e.scratch.wait, v.e.scratch.again = false, false
		return block.NoSpace
	}
	if inPlace {
		w.phys, w.edit = phys, !mapped || v.Pool().Bad.Any(phys+w.first, w.n) // a start takes off its list what an edit has written
		return v.Pool().Writable(phys)
	}
	if g, ok := v.Map.Allocate(w.index); ok {
		w.phys, w.fresh = g<<layout.WindowShift, true
		return block.OK
	}
	space, entitled, sc := v.Pool().Alloc, v.Map.Entitled(w.index), &v.e.scratch
	sc.again = v.e.arena.HasGarbageOf(space)
	if sc.wait = space.Withheld() > 0 && (entitled || space.Available() > 0); sc.wait || sc.again {
		return block.NoSpace
	}
	if entitled && v.e.arena.Refs.GiveUp(space) {
		v.e.GaveRoom() // grains that were shared may be overwritten in place now
		return v.target(w)
	}
	if sc.wait = space.Leaving() > 0; space.AnyDown() {
		return block.Offline
	}
	return block.NoSpace
}
