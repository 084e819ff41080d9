package array

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
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

// WriteMode is how a pool takes writes.
type WriteMode uint8

// Write modes.
const (
	// WriteFast acknowledges when the cache has the data.
	WriteFast WriteMode = iota
	// FlushThrough takes the data into the partition and acknowledges when the back end has it.
	FlushThrough
	// WriteThrough keeps the data out of the partition, and acknowledges when the back
	// end has it. An array that has lost the mirror of its cache is in this mode.
	WriteThrough
)

// mode is how the pool takes writes now.
func (p *Pool) mode() WriteMode {
	if p.a.degraded {
		return WriteThrough
	}
	return p.writeMode
}

// piecePagesOf returns the number of pages that n sectors from o.cur on touch.
func (o *op) piecePagesOf(n uint64) int {
	return int((o.cur+n+pageSectors-1)/pageSectors - o.cur/pageSectors)
}

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
	if c.freeCount < pages || !head && a.line.lacks&lackPages != 0 {
		o.lacks = lackPages
		return waitRoom
	}
	mode := p.mode()
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
	if !stalled && pt.used+pages <= pt.limit && a.line.room(&c.pot, &pt.share, pages, head) {
		return admitted
	}
	// What overwrites dirty data needs no more room than that has.
	left := pages
	if pt.used > 0 {
		left -= o.v.dirtyHits(o.cur, n, max(0, pages-max(0, min(pt.limit-pt.used, c.limit-c.used))))
	}
	switch {
	case left <= 0:
		return admitted
	case stalled || pt.used > 0 && pt.used+left > pt.limit: // a piece larger than the whole partition goes in alone
	case a.line.room(&c.pot, &pt.share, left, head):
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
	a, s := o.a, &o.v.pool.part.reserve
	if s.used > 0 && !a.line.room(&a.cache.reserve, s, pages, head) {
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
	level := int64(pt.used) * 1000 / int64(max(pt.limit, 1))
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
			if c.dirtyAt(keyOf(v.pool.id, at)) != noPage {
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
	old     uint32 // the newest page of the key until now, where known says so
	known   bool
	origins uint32
	mask    uint8
	written uint8
}

// commit makes n sectors from o.cur on durable against the death of the process:
// it places them, fills pages, writes the log record, and only then changes map and index.
// Preconditions: admit.
func (a *Array) commit(o *op, n uint64) block.Status {
	v, c, sc := o.v, a.cache, &a.scratch
	v.meter()
	v.pool.meter()
	nw, edits := 0, 0
	for at := o.cur; at < o.cur+n; {
		w := &sc.windows[nw]
		w.index, w.first = at>>windowShift, at&(windowSectors-1)
		w.n = min(windowSectors-w.first, o.cur+n-at)
		if s := v.target(w); s != block.OK {
			v.unplace(nw)
			return s
		}
		if w.edit {
			edits++
		}
		at += w.n
		nw++
	}
	room, ok := a.log.Claim(edits)
	if !ok {
		v.unplace(nw)
		return block.Resources
	}
	seq := room.Next()
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
			// An edit of the map may drop pages.
			if pg.known = edits == 0; !w.fresh {
				pg.old = c.lookup(pg.key)
				if pg.old != noPage && c.pages[pg.old].state == pageDirty {
					old = pg.old
				}
			}
			pg.written = uint8((1<<k - 1) << in)
			pg.mask, pg.origins = a.fill(pg.page, old, in, k, &o.src, o.origin)
			if a.payload {
				c.nv.Describe(pg.page).Seal(seq, pg.key, v.id, pg.mask, pg.origins)
			}
			s += uint64(k)
			np++
		}
	}
	a.edits = a.edits[:0]
	for i := range nw {
		if w := &sc.windows[i]; w.edit {
			a.edits = append(a.edits, nvlog.Edit{Volume: v.id, State: block.Data,
				Range: block.Range{Start: w.index<<windowShift + w.first, Count: w.n}, Phys: w.phys + w.first})
		}
	}
	if _, ok := room.Append(a.edits, np); !ok {
		a.breakDown("internal error: a write has lost its room in the log")
		return block.Hardware
	}
	for i := range nw {
		if w := &sc.windows[i]; w.edit {
			v.m.SetData(block.Range{Start: w.index<<windowShift + w.first, Count: w.n}, w.phys+w.first)
		}
	}
	c.touchTaken(np)
	for i := range np {
		pg := &sc.pages[i]
		if !pg.known {
			pg.old = c.lookup(pg.key)
		}
		a.install(o, pg.page, pg.old, pg.key, pg.mask, pg.written, pg.origins)
	}
	if edits > 0 {
		v.account()
	}
	v.gen++
	a.gaveRoom()
	return block.OK
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
