package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// The requests that the model draws, and what their answers are held against.

// flush holds the result of a flush: what was possible when it began, or came later, is all that a
// loss of power may bring back.
func (w *world) flush() {
	var all []entry
	ends := make([]int, len(w.may))
	for s, l := range w.may {
		all = append(all, l...)
		ends[s] = len(all)
	}
	after := w.nextID
	owed, unsynced := w.owed, w.unsure()
	spoils, readable := w.spoils, []uint64(nil)
	for s := range w.backFails { // each on its own: order does not matter
		if !w.mayFail[s] {
			readable = append(readable, s)
		}
	}
	mayOwe := w.mayOwe // all that are under way fail when the cache hears of a loss
	w.note("flush")
	w.submit(&block.Request{Op: block.OpFlush}, func(r *block.Request) {
		w.note("flush: %v", r.Status)
		if r.Status == block.Cancelled {
			return
		}
		if r.Status != block.OK {
			if w.a.failing == 0 && !w.troubled && !w.unsynced && !w.mayOwe && !mayOwe && !unsynced && !w.unsure() {
				w.fail("flush: %v", r.Status)
			}
			w.owed, w.mayOwe = 0, false
			return
		}
		if owed > 0 && w.owed > 0 {
			w.fail("a flush succeeds after the array has lost %d sectors of writes that had ended", owed)
		}
		w.flushes++
		for _, s := range readable {
			if w.backFails[s] <= spoils {
				delete(w.backFails, s)
			}
		}
		at := 0
		for s := range min(len(w.back), len(ends)) {
			was := all[at:ends[s]]
			at = ends[s]
			if l := w.back[s]; len(l) > 1 || len(l) == 1 && l[0].id <= after {
				w.back[s] = slices.DeleteFunc(l, func(e entry) bool { return e.id <= after && !slices.Contains(was, e) })
			}
		}
	})
}

func (w *world) someRange(most uint64) block.Range {
	n := 1 + w.r.Uint64N(most)
	if w.r.IntN(3) == 0 {
		n = (n + 7) &^ 7
	}
	at := w.r.Uint64N(w.a.sectors - n)
	if w.r.IntN(2) == 0 { // a hot spot
		at = w.r.Uint64N(96)
	}
	return block.Range{Start: at, Count: n}
}

func (w *world) read() {
	g := w.someRange(40)
	before := w.before(g)
	buf := w.blank(g.Count)
	excused := w.excused(g)
	doubt, cuts, resizes := w.doubt(), w.a.cuts, w.resizes
	w.submit(&block.Request{Op: block.OpRead, Range: g, Data: [][]byte{buf[:len(buf)/1024*512], buf[len(buf)/1024*512:]}}, func(r *block.Request) {
		if r.Status != block.OK {
			if !excused && !w.excused(g) && !w.revoked[r] && !w.cutAway(r, g) {
				w.fail("read %v: %v", g, r.Status)
			}
			return
		}
		w.blurred = doubt || cuts != w.a.cuts // what was read may have gone meanwhile, and says nothing of what comes
		w.resized = resizes != w.resizes
		w.saw("read", g, before, flat([][]byte{buf}))
		w.blurred, w.resized = false, false
	})
}

// blank is memory for n sectors with nothing in it that a sector could have.
func (w *world) blank(n uint64) []byte {
	buf := w.mem.take(int(n) << block.SectorShift)
	for i := 0; i < len(buf); i += block.SectorSize {
		le.PutUint64(buf[i:], 1<<63)
		buf[i+8] = 1
	}
	return buf
}

// pattern is n sectors that say value, in memory that lasts as long as the world.
func (w *world) pattern(value, n uint64) []byte {
	return fillPattern(w.mem.take(int(n)<<block.SectorShift), value)
}

// cancel withdraws a request. A write that is only held back ends at once.
func (w *world) cancel() {
	if len(w.pending) == 0 {
		return
	}
	r := w.pending[w.r.IntN(len(w.pending))]
	w.note("cancel %v %v", r.Op, r.Range)
	delayed := slices.ContainsFunc(w.d.delays.list, func(o *op) bool { return o.req == r })
	w.revoked[r] = true
	w.d.Cancel(r)
	w.v.RunUntil(w.v.Now())
	if delayed && slices.Contains(w.pending, r) {
		w.fail("a write that is only held back was cancelled, and has not ended")
	}
}

// look holds what is held back against its bounds.
func (w *world) look() {
	l := w.d.delays.list
	if len(l) == 0 {
		return
	}
	if !w.d.throttle.above(w.d.occupied()) {
		w.fail("%d writes are held back, and the area is below its threshold", len(l))
	}
	for _, o := range l {
		if wait := o.due - o.since; wait > 5_000_000_000 || wait > 101*w.slowest {
			w.fail("a write is held back for %d ns, and the device below takes at most %d", wait, w.slowest)
		}
	}
}

func (w *world) put(op block.Op) { w.putAt(op, w.someRange(40)) }

func (w *world) putAt(op block.Op, g block.Range) {
	w.value++
	v := w.value
	r := &block.Request{Op: op, Range: g}
	ranges := []block.Range{g}
	switch op {
	case block.OpWrite:
		r.Data = [][]byte{w.pattern(v, g.Count)}
		if w.r.IntN(8) == 0 {
			r.Flags = block.FUA
		}
	case block.OpWriteSame:
		if w.r.IntN(2) == 0 {
			v = 0
		} else {
			r.Data = [][]byte{w.pattern(v, 1)}
		}
	case block.OpUnmap:
		v = 0
		if h := w.someRange(200); !h.Overlaps(g) {
			ranges = append(ranges, h)
		}
		r.Ranges = ranges
	case block.OpCompareWrite:
		r.Data = [][]byte{w.pattern(v, g.Count)}
		r.Compare = [][]byte{w.pattern(w.value-w.r.Uint64N(20), g.Count)}
	}
	id, old := w.write(ranges, func(uint64) uint64 { return v })
	w.note("%v %v = %d (#%d)", op, ranges, v, id)
	w.submit(r, func(r *block.Request) {
		w.note("#%d: %v", id, r.Status)
		switch {
		case r.Status == block.Miscompare:
			delete(w.flying, id)
			for _, g := range ranges {
				for s := g.Start; s < min(g.End(), uint64(len(w.may))); s++ {
					w.may[s] = slices.DeleteFunc(slices.Clone(w.may[s]), func(e entry) bool { return e.id == id })
					w.back[s] = slices.DeleteFunc(w.back[s], func(e entry) bool { return e.id == id })
				}
			}
			return
		case r.Status != block.OK && !w.excused(ranges...) && !w.revoked[r] && !w.stuck() && !w.cutAway(r, ranges...):
			w.fail("%v %v: %v", op, ranges, r.Status)
		}
		w.written(ranges, r.Status == block.OK && id > w.badSince)
		w.wrote(id, old, r.Status == block.OK)
		if r.Status == block.OK && r.Flags&block.FUA != 0 && id > w.atCut {
			w.forced(ranges, id)
		}
	})
}

// forced: of what a write with FUA replaces, a loss of power brings nothing back.
func (w *world) forced(ranges []block.Range, id int) {
	for _, g := range ranges {
		for s := g.Start; s < min(g.End(), uint64(len(w.back))); s++ {
			w.back[s] = slices.DeleteFunc(slices.Clone(w.back[s]), func(e entry) bool { return e.id <= id && !slices.Contains(w.may[s], e) })
			if !w.mayFail[s] {
				delete(w.backFails, s)
			}
		}
	}
}

// copy holds a range, looks at what is held, and places it elsewhere.
func (w *world) copy() {
	g := w.someRange(40)
	to := w.someRange(1).Start
	to = min(to, w.a.sectors-g.Count)
	before := w.before(g)
	w.note("hold %v", g)
	excused, cuts, resizes := w.excused(g), w.a.cuts, w.resizes
	w.submit(&block.Request{Op: block.OpHold, Ranges: []block.Range{g}}, func(r *block.Request) {
		if r.Status != block.OK {
			if !excused && !w.excused(g) && !w.revoked[r] && !w.cutAway(r, g) {
				w.fail("hold %v: %v", g, r.Status)
			}
			return
		}
		h := r.Ref.(heldRef)
		w.blurred, w.resized = cuts != w.a.cuts, resizes != w.resizes
		w.saw("hold", g, before, func(i uint64) []byte { return h[i] })
		w.blurred, w.resized = false, false
		dst := block.Range{Start: to, Count: g.Count}
		if !dst.Within(w.a.sectors) {
			return // cut off meanwhile
		}
		id, old := w.write([]block.Range{dst}, func(s uint64) uint64 {
			v, _ := valueOf(h[s-to])
			return v
		})
		w.note("place %v at %d (#%d)", g, to, id)
		w.submit(&block.Request{Op: block.OpPlace, Range: dst, Ref: h}, func(r *block.Request) {
			w.note("#%d: %v", id, r.Status)
			if r.Status != block.OK && !w.excused(dst) && !w.revoked[r] && !w.stuck() && !w.cutAway(r, dst) {
				w.fail("place: %v", r.Status)
			}
			w.written([]block.Range{dst}, r.Status == block.OK && id > w.badSince)
			w.wrote(id, old, r.Status == block.OK)
		})
	})
}

// written: sectors that could not be read can be, once they were written.
func (w *world) written(ranges []block.Range, ok bool) {
	for _, g := range ranges {
		for s := g.Start; ok && s < g.End(); s++ {
			delete(w.mayFail, s)
		}
	}
}

// cutAway tells whether a request failed because the LUN was too small for it for a while.
func (w *world) cutAway(r *block.Request, ranges ...block.Range) bool {
	beyond := func(g block.Range) bool { return g.End() > w.smallest }
	return r.Status == block.OutOfRange && slices.ContainsFunc(ranges, beyond)
}

// excused tells whether a request may fail.
func (w *world) excused(ranges ...block.Range) bool {
	if w.a.failing > 0 || w.troubled {
		return true
	}
	for _, g := range ranges {
		for s := g.Start; s < g.End(); s++ {
			if w.mayFail[s] {
				return true
			}
		}
	}
	return false
}

// stuck tells whether the last flash takes no writes and has something dirty that it cannot read:
// what waits until nothing is dirty on it fails then.
func (w *world) stuck() bool {
	if !w.unsure() {
		return false
	}
	per := uint64(w.d.per)
	for s := range w.mayFail {
		if slot := w.d.ix.Lookup(hostcache.MakeKey(0, s/per)); slot != hostcache.None && w.d.ix.Dirty(slot, int(s%per), 1) {
			return true
		}
	}
	return false
}
