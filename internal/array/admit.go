package array

import "github.com/arraysim/arraysim/internal/block"

// admit tells whether n sectors from o.cur on may enter the write cache now. It
// changes nothing. Space in a partition is handed out in the order of arrival, one out, one in:
// a newcomer goes straight in only if it fits and nobody waits.
func (a *Array) admit(o *op, n uint64, head bool) bool {
	p := o.v.pool
	pt := &p.part
	if !head && !pt.waiting.empty() {
		return false
	}
	pages := int((o.cur+n+pageSectors-1)/pageSectors - o.cur/pageSectors)
	c := a.cache
	if c.freeCount < pages || !a.journal.fits(pieceSectors/windowSectors+2) {
		return false
	}
	if pt.used+pages <= pt.limit && c.used+pages <= c.limit {
		return true
	}
	// What overwrites dirty data needs no more room than that has.
	pages -= o.v.dirtyHits(o.cur, n)
	if pages <= 0 {
		return true
	}
	if c.used+pages > c.limit {
		return c.used == 0
	}
	// A piece larger than the whole partition goes in alone.
	return pt.used+pages <= pt.limit || pt.used == 0
}

// dirtyHits counts the pages of a range whose dirty contents a write would replace.
func (v *Volume) dirtyHits(start, n uint64) int {
	hits := 0
	c := v.a.cache
	v.m.walk(block.Range{Start: start, Count: n}, func(r run) bool {
		if r.state == block.Data && v.private(r.phys) {
			for at := r.phys &^ (pageSectors - 1); at < r.phys+r.Count; at += pageSectors {
				if c.dirtyAt(keyOf(v.pool.id, at)) != noPage {
					hits++
				}
			}
		}
		return true
	})
	return hits
}

// private tells whether a write may replace the grain of a physical sector in place.
func (v *Volume) private(phys uint64) bool { return v.pool.refs(phys>>windowShift) == 1 }

// commitScratch is what a commit works with, reused.
type commitScratch struct {
	windows [pieceSectors/windowSectors + 1]commitWindow
	pages   [piecePages + 1]commitPage
}

type commitWindow struct {
	index, phys uint64 // phys of the window's first sector
	first, n    uint64
	fresh       bool // the grain was allocated for this commit
	edit        bool // the map does not say so yet
}

type commitPage struct {
	key     pageKey
	page    uint32
	origins uint32
	mask    uint8
	written uint8
}

// commit makes n sectors from o.cur on durable against the death of the process:
// it places them, fills pages, writes the log record, and only then changes map and index.
// Preconditions: admit.
func (a *Array) commit(o *op, n uint64) block.Status {
	v, c, sc := o.v, a.cache, &a.scratch
	nw, edits := 0, 0
	for at := o.cur; at < o.cur+n; {
		w := &sc.windows[nw]
		w.index, w.first = at>>windowShift, at&(windowSectors-1)
		w.n = min(windowSectors-w.first, o.cur+n-at)
		if !v.target(w) {
			for i := range nw {
				if sc.windows[i].fresh {
					v.pool.free(sc.windows[i].phys >> windowShift)
				}
			}
			return block.NoSpace
		}
		if w.edit {
			edits++
		}
		at += w.n
		nw++
	}
	seq := a.journal.prepare(edits)
	np := 0
	for i := range nw {
		w := &sc.windows[i]
		for s := w.first; s < w.first+w.n; {
			in := int(s % pageSectors)
			k := min(pageSectors-in, int(w.first+w.n-s))
			pg := &sc.pages[np]
			pg.key = keyOf(v.pool.id, w.phys+s)
			pg.page = c.takeFree()
			old := noPage
			if !w.fresh {
				old = c.dirtyAt(pg.key)
			}
			pg.written = uint8((1<<k - 1) << in)
			pg.mask, pg.origins = a.fill(pg.page, old, in, k, &o.src, o.origin)
			descView(c.nv.desc(pg.page)).seal(seq, pg.key, v.id, pg.mask, pg.origins)
			s += uint64(k)
			np++
		}
	}
	a.edits = a.edits[:0]
	for i := range nw {
		if w := &sc.windows[i]; w.edit {
			a.edits = append(a.edits, edit{vol: v.id, state: block.Data,
				Range: block.Range{Start: w.index<<windowShift + w.first, Count: w.n}, phys: w.phys + w.first})
		}
	}
	a.journal.append(a.edits)
	for i := range nw {
		if w := &sc.windows[i]; w.edit {
			v.m.window(w.index, func(s *slot) sums { return v.m.setData(s, w.first, w.n, w.phys+w.first) })
		}
	}
	for i := range np {
		pg := &sc.pages[i]
		a.install(v, pg.page, pg.key, pg.mask, pg.written, pg.origins, o.origin)
	}
	if edits > 0 {
		v.account()
	}
	v.gen++
	return block.OK
}

// target finds where the sectors of a window go: into the grain that the window
// has for itself, or into a new one where it has none or shares it.
func (v *Volume) target(w *commitWindow) bool {
	w.fresh, w.edit = false, true
	s, _ := v.m.find(w.index)
	switch s.kind() {
	case kindData:
		if p := s.value(); p&(windowSectors-1) == 0 && v.private(p) {
			w.phys, w.edit = p, false
			return true
		}
	case kindDetail:
		ds := &v.a.arena.details
		for i := uint32(s.value()); i != 0; {
			d := ds.at(i)
			if d.phys&(windowSectors-1) == 0 && !d.mask.empty() && v.private(d.phys) {
				w.phys = d.phys
				w.edit = !maskOf(w.first, w.n).andNot(d.mask).empty()
				return true
			}
			i = d.next
		}
	}
	g, ok := v.allocGrain()
	w.phys, w.fresh = g<<windowShift, true
	return ok
}
