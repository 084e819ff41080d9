package array

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// verdict is what admission says of a piece.
type verdict uint8

const (
	admitted   verdict = iota
	waitRoom           // its partition or what pools share (op.lacks) has no room
	waitBudget         // the offloads of its pool or host hold their share already
	waitLog            // the log has no room
)

// admit reports whether n sectors from o.cur on may enter the write cache now, and how. It changes
// nothing but o.through, o.reserve and o.lacks. Space in a partition is handed out one out, one in, in the order
// of the policy: a newcomer goes straight in only if it fits and nobody waits. What pools share goes round
// them: see share.go.
func (a *Array) admit(o *op, n uint64, head bool) verdict {
	p, c := o.v.pool, a.cache
	pt := &p.part
	o.through, o.reserve, o.lacks = false, false, 0
	pages := o.piecePagesOf(n)
	if !a.log.Fits(pieceWindows) {
		a.log.Starve()
		return waitLog
	}
	if c.Free() < pages || !head && a.line.lacks&lackPages != 0 {
		o.lacks = lackPages
		return waitRoom
	}
	mode := pt.ModeNow()
	if mode == WriteThrough {
		if !head && !pt.waiting.empty() {
			return waitRoom
		}
		return o.admitThrough(pages, head)
	}
	if p.overBudget(o, pages, head) {
		return waitBudget
	}
	short := a.opt.Policy.Admission == AdmitThrough && !o.origin.Undercover()
	o.through = mode == FlushThrough
	if !head && !pt.waiting.empty() && !short {
		return waitRoom
	}
	stalled := p.stalled()
	used, limit := pt.Room.Used(), pt.Limit()
	if !stalled && used+pages <= limit && a.line.room(c.Room(), lackRoom, &pt.Room, pages, head) {
		return admitted
	}
	// What overwrites dirty data needs no more room than that has.
	left := pages
	if used > 0 {
		left -= o.v.dirtyHits(o.cur, n, max(0, pages-max(0, min(limit-used, c.Room().Limit()-c.Room().Used()))))
	}
	switch {
	case left <= 0:
		return admitted
	case stalled || used > 0 && used+left > limit: // a piece larger than the whole partition goes in alone
	case a.line.room(c.Room(), lackRoom, &pt.Room, left, head):
		return admitted
	default:
		o.lacks = lackRoom
	}
	if short {
		return o.admitThrough(pages, head)
	}
	return waitRoom
}

// admitThrough admits to the reserve. A pool that holds nothing of it may have one piece in any case: what
// another pool holds for an absent mdisk stays for as long as that is away.
func (o *op) admitThrough(pages int, head bool) verdict {
	a, s := o.a, &o.v.pool.part.Reserve
	if s.Used() > 0 && !a.line.room(a.cache.Reserve(), lackReserve, s, pages, head) {
		o.lacks |= lackReserve
		return waitRoom
	}
	o.through, o.reserve = true, true
	return admitted
}

// stalled tells whether the ramp delays all writes of the partition.
func (p *Pool) stalled() bool {
	r, pt := &p.a.opt.Policy.Ramp, &p.part
	if r.StallAt == 0 {
		return false
	}
	level := int64(pt.Room.Used()) * 1000 / int64(max(pt.Limit(), 1))
	if pt.stall {
		pt.stall = level >= r.ResumeAt
	} else {
		pt.stall = level >= r.StallAt
	}
	return pt.stall
}

// waitQueue is who waits for room in a partition: one FIFO, or a FIFO a volume that
// take turns by bytes.
type waitQueue struct {
	fifo  ticket.Queue
	fair  ticket.Sum // ops that wait in the volumes' queues
	ring  []*Volume
	turn  int
	given bool // the volume whose turn it is has got its quantum
}

func (w *waitQueue) empty() bool { return w.fifo.Empty() && w.fair.N == 0 }

// push queues an op, in front of its likes if it stood there before.
func (w *waitQueue) push(o *op, front bool) {
	q := &w.fifo
	if v := o.v; o.a.opt.Policy.Admission == AdmitFair {
		q = &v.waiting
		q.Sum = &w.fair
		if !v.inFair {
			v.inFair, v.deficit = true, 0
			w.ring = append(w.ring, v)
		}
	}
	if q.Of = ticket.Room; q == &w.fifo {
		q.Sum = w.fair.Up
	}
	if front {
		q.PushFront(&o.Ticket)
	} else {
		q.Push(&o.Ticket)
	}
}

// head returns the op that is next in line, nil if nobody waits.
func (w *waitQueue) head() *op {
	if !w.fifo.Empty() {
		return headOf(&w.fifo)
	}
	for len(w.ring) > 0 {
		if w.turn >= len(w.ring) {
			w.turn = 0
		}
		v := w.ring[w.turn]
		if v.waiting.Empty() {
			v.inFair = false
			w.ring = append(w.ring[:w.turn], w.ring[w.turn+1:]...)
			w.given = false
			continue
		}
		if !w.given {
			w.given = true
			v.deficit += pieceSectors
		}
		if o := headOf(&v.waiting); o.pieceLen() <= v.deficit {
			return o
		}
		w.given = false
		w.turn++
	}
	return nil
}

// took books what the op that head returned was admitted for.
func (w *waitQueue) took(o *op, n uint64) {
	if v := o.v; o.In(&v.waiting) {
		v.deficit -= n
	}
}

// dirtyHits counts the pages of a range whose dirty contents a write would replace. It stops
// when there cannot be as many as needed any more.
func (v *Volume) dirtyHits(start, n uint64, needed int) int {
	hits := 0
	c := v.a.cache
	v.m.Walk(block.Range{Start: start, Count: n}, func(r extent.Run) bool {
		if r.State != block.Data || !v.private(r.Phys) {
			return true
		}
		last := r.End() == start+n
		for at := r.Phys &^ (pageSectors - 1); at < r.Phys+r.Count; at += pageSectors {
			if c.DirtyAt(keyOf(v.pool.id, at)) != wcache.NoPage {
				hits++
			} else if last && hits+int((r.Phys+r.Count-1-at)/pageSectors) < needed {
				break
			}
		}
		return true
	})
	return hits
}

// private tells whether a write may replace the grain of a physical sector in place.
func (v *Volume) private(phys uint64) bool { return v.pool.space.Refs(phys>>windowShift) == 1 }

// commitScratch is what a commit works with, reused.
type commitScratch struct {
	wait    bool // what a failed commit lacks is there as soon as transfers end
	windows [pieceWindows]commitWindow
	nw      int // windows
	pages   [piecePages + 1]wcache.Entry
	np      int // pages
}

type commitWindow struct {
	index, phys uint64 // phys of the window's first sector
	first, n    uint64
	fresh       bool // the grain was allocated for this commit
	edit        bool // the map does not say so yet
}

// commit makes n sectors from o.cur on durable against the death of the process:
// it places them, fills pages, writes the log record, and only then changes map and index.
// Preconditions: admit.
func (a *Array) commit(o *op, n uint64) block.Status {
	v, sc := o.v, &a.scratch
	v.cached.Meter()
	v.pool.part.Meter()
	edits, s := o.placeWindows(n)
	if s != block.OK {
		return s
	}
	room, ok := a.log.Claim(edits)
	if !ok {
		v.unplace(sc.nw)
		return block.Resources
	}
	o.fillPages(room.Next(), edits > 0)
	a.edits = a.edits[:0]
	for i := range sc.nw {
		if w := &sc.windows[i]; w.edit {
			a.edits = append(a.edits, nvlog.Edit{Volume: v.id, State: block.Data,
				Range: block.Range{Start: w.index<<windowShift + w.first, Count: w.n}, Phys: w.phys + w.first})
		}
	}
	if _, ok := room.Append(a.edits, sc.np); !ok {
		a.breakDown("internal error: a write has lost its room in the log")
		return block.Hardware
	}
	for i := range sc.nw {
		if w := &sc.windows[i]; w.edit {
			v.m.SetData(block.Range{Start: w.index<<windowShift + w.first, Count: w.n}, w.phys+w.first)
		}
	}
	o.installPages()
	if edits > 0 {
		v.account()
	}
	v.gen++
	a.gaveRoom()
	return block.OK
}

// placeWindows finds where each window of a commit goes, and returns how many of them the map does
// not have yet. On an error nothing is allocated.
func (o *op) placeWindows(n uint64) (edits int, s block.Status) {
	v, sc := o.v, &o.a.scratch
	sc.nw = 0
	for at := o.cur; at < o.cur+n; {
		w := &sc.windows[sc.nw]
		w.index, w.first = at>>windowShift, at&(windowSectors-1)
		w.n = min(windowSectors-w.first, o.cur+n-at)
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

// fillPages fills pages of NVRAM for the windows of a commit, with the number of its record. edited: the
// record changes the map, too, which may drop pages.
func (o *op) fillPages(seq uint64, edited bool) {
	a, v := o.a, o.v
	c, sc := a.cache, &a.scratch
	sc.np = 0
	for i := range sc.nw {
		w := &sc.windows[i]
		for s := w.first; s < w.first+w.n; {
			in := int(s % pageSectors)
			k := min(pageSectors-in, int(w.first+w.n-s))
			pg := &sc.pages[sc.np]
			pg.Key = keyOf(v.pool.id, w.phys+s)
			pg.Page = c.TakeFree()
			old := wcache.NoPage
			if pg.Known = !edited; !w.fresh {
				pg.Old = c.Lookup(pg.Key)
				if pg.Old != wcache.NoPage && c.State(pg.Old).Dirty() {
					old = pg.Old
				}
			}
			pg.Written = uint8((1<<k - 1) << in)
			if a.payload {
				o.src.copyTo(c.NV.Write(pg.Page, in, k))
			}
			pg.Mask, pg.Origins = c.Compose(pg.Page, old, in, k, o.origin)
			if a.payload {
				c.NV.Describe(pg.Page).Seal(seq, pg.Key, v.id, pg.Mask, pg.Origins)
			}
			s += uint64(k)
			sc.np++
		}
	}
}

// installPages puts the pages of a commit into the cache.
func (o *op) installPages() {
	a, c, sc := o.a, o.a.cache, &o.a.scratch
	w := wcache.Write{Owner: o.v.cached, Origin: o.origin, Host: o.host, Way: o.way()}
	c.TouchTaken(sc.np)
	for i := range sc.np {
		pg := &sc.pages[i]
		if !pg.Known {
			pg.Old = c.Lookup(pg.Key)
		}
		if o.through {
			a.through[pg.Page] = o
			o.unsettled++
		}
		if a.back.Bad.Len() > 0 {
			a.back.Bad.Forget(pg.Key, pg.Written)
		}
		c.Install(&w, pg)
	}
}

// way is how the op's piece was admitted.
func (o *op) way() wcache.Mode {
	switch {
	case o.reserve && o.v.pool.part.ModeNow() == WriteThrough:
		return WriteThrough
	case o.reserve:
		return wcache.ShortOfMemory
	case o.through:
		return FlushThrough
	}
	return WriteFast
}

// unplace gives back what the first n windows of a commit that cannot be finished have allocated.
func (v *Volume) unplace(n int) {
	for i := range v.a.scratch.windows[:n] {
		if w := &v.a.scratch.windows[i]; w.fresh {
			v.pool.space.Free(w.phys >> windowShift)
		}
	}
}

// target finds where the sectors of a window go: into the grain that the window
// has for itself, or into a new one where it has none or shares it.
func (v *Volume) target(w *commitWindow) block.Status {
	w.fresh, w.edit = false, true
	if phys, mapped, ok := v.m.InPlace(w.index, w.first, w.n); ok {
		w.phys, w.edit = phys, !mapped
		return v.pool.writable(phys)
	}
	g, ok := v.m.Allocate(w.index)
	entitled := !ok && v.m.Entitled(w.index)
	if entitled && v.a.arena.GiveUp(v.pool.space) {
		return v.target(w)
	}
	v.a.scratch.wait = entitled && v.pool.space.Leaving() > 0
	if !ok && v.pool.space.AnyDown() {
		return block.Offline
	}
	if !ok {
		return block.NoSpace
	}
	w.phys, w.fresh = g<<windowShift, true
	return block.OK
}
