package tier

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// entry is a value that a sector may have.
type entry struct {
	value uint64
	id    int // of the write that made it
}

// lun is an array's LUN that is not cached now, and what is known of it.
type lun struct {
	a         *array
	may, back [][]entry
	mark      Mark
}

// world is a disk with all around it, and what is known of its sectors.
type world struct {
	t     testing.TB
	seed  uint64
	r     *rand.Rand
	v     *block.Virtual
	a     *array
	cards []*card // the host's own and its peers'
	opt   Options

	d     *Disk
	path  *path
	slots []*slot
	life  int // incarnation of the host

	may      [][]entry       // by sector
	back     [][]entry       // what a loss of power may bring back: what was possible at the last flush, and later
	badSince int             // the last write before that
	mayFail  map[uint64]bool // sectors whose only copy cannot be read
	flying   map[int][]block.Range
	nextID   int
	value    uint64
	inflight int
	mayLose  bool   // the last copy of dirty data went: reads may fail
	mark     Mark   // what the witness has
	bootID   uint64 // of the host's machine
	troubled bool   // something is broken now: requests may fail
	flushes  int
	taker    int  // the card that the disk has for its own, if it is not the first
	other    *lun // the LUN that is not cached now
	trace    []string
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%10d ", w.v.Now())+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, s := range w.trace[max(0, len(w.trace)-*lines):] {
		w.t.Log(s)
	}
	w.t.Fatalf("seed %d: "+format+"\nrun it alone: go test ./internal/hostcache/tier -run TestModel -tier.seeds 1 -tier.seed %d", append(append([]any{w.seed}, args...), w.seed)...)
}

// boot opens the disk of a host on its card, or on the copy that peer has of it; that it fails is a failure.
func (w *world) boot(peer int) {
	w.t.Helper()
	if err := w.try(peer, nil); err != nil {
		w.fail("open: %v", err)
	}
}

// try opens it, whatever comes of it.
func (w *world) try(peer int, change func(*Options)) (err error) {
	w.t.Helper()
	w.life++
	w.path = &path{array: w.a}
	w.slots = nil
	w.a.notify = nil
	opt := w.opt
	opt.Below, opt.Boot = w.path, w.bootID
	opt.Witness = &witness{w: w, path: w.path}
	if w.seed > 0 {
		opt.ID = w.r.Uint64() | 1
	}
	for i, c := range w.cards {
		s := &slot{card: c}
		w.slots = append(w.slots, s)
		switch {
		case i == peer:
			opt.Flash = s
		case peer == 0:
			opt.Peers = append(opt.Peers, Peer{Name: fmt.Sprint("p", i), Medium: s})
		}
	}
	if peer > 0 {
		opt.TakeOver, opt.Boot = true, w.bootID+1000
		opt.Policy = Policy{Mode: WriteThrough}
	}
	if change != nil {
		change(&opt)
	}
	opened := false
	Open(opt, func(d *Disk, e error) { w.d, err, opened = d, e, true })
	for i := 0; !opened && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !opened {
		w.fail("open does not end")
	}
	if err != nil {
		w.note("boot peer %d: %v", peer, err)
		for _, s := range w.slots {
			s.dead = true
		}
		w.path.dead = true
		return err
	}
	w.taker = peer
	rec := w.d.Recovery()
	w.note("label %+v, boot %d", w.d.members[0].label, opt.Boot)
	if rec.Damaged > 0 && len(w.mayFail) == 0 && !w.mayLose {
		w.fail("%d sectors are damaged after a crash", rec.Damaged)
	}
	w.note("boot peer %d: %+v; flash-sync always %v, volatile flash %v array %v", peer, rec, w.opt.PowerSafe, w.cards[0].undo != nil, w.a.undo != nil)
	return nil
}

// witness is kept at the array: a host that was fenced cannot store.
type witness struct {
	w    *world
	path *path
}

func (x *witness) Load(done func(Mark, error)) {
	m := x.w.mark
	x.w.v.At(x.w.v.Now()+x.w.r.Int64N(1_000_000), func() {
		if !x.path.dead {
			done(m, nil)
		}
	})
}

func (x *witness) Store(m Mark, done func(error)) {
	x.w.v.At(x.w.v.Now()+x.w.r.Int64N(1_000_000), func() {
		switch {
		case x.path.dead:
			return
		case x.path.fenced:
			done(errBroken)
			return
		}
		x.w.mark = m
		done(nil)
	})
}

// crash takes the host away; what is in flight gets there or not.
func (w *world) crash() {
	w.note("crash with %d in flight", w.inflight)
	w.path.dead = true
	for _, s := range w.slots {
		s.dead = true
	}
	w.life++
	w.v.RunUntil(w.v.Now() + 20_000_000)
	w.inflight = 0
	clear(w.flying)
}

// write begins a change: may says what each sector gets.
func (w *world) write(ranges []block.Range, value func(s uint64) uint64) (id int, old map[uint64][]entry) {
	w.nextID++
	id = w.nextID
	old = map[uint64][]entry{}
	for _, g := range ranges {
		for s := g.Start; s < g.End(); s++ {
			for _, e := range w.may[s] {
				if w.flying[e.id] == nil {
					old[s] = append(old[s], e)
				}
			}
			w.may[s] = append(w.may[s], entry{value(s), id})
			w.back[s] = append(w.back[s], entry{value(s), id})
		}
	}
	w.flying[id] = ranges
	return id, old
}

// wrote ends it. A change that failed may have been made or not.
func (w *world) wrote(id int, old map[uint64][]entry, ok bool) {
	delete(w.flying, id)
	if !ok {
		return
	}
	for s, gone := range old {
		w.may[s] = slices.DeleteFunc(w.may[s], func(e entry) bool { return slices.Contains(gone, e) })
	}
}

// saw holds what a read found against what may be there. before is what could be
// there when it began.
func (w *world) saw(what string, g block.Range, before [][]entry, sector func(i uint64) []byte) {
	w.t.Helper()
	for i := range g.Count {
		s := g.Start + i
		v, whole := valueOf(sector(i))
		match := func(e entry) bool { return e.value == v }
		if !whole || !slices.ContainsFunc(before[i], match) && !slices.ContainsFunc(w.may[s], match) {
			w.fail("%s of sector %d at %d: got %d (whole %v), may be %v", what, s, w.v.Now(), v, whole, w.may[s])
		}
		busy := false
		for _, e := range w.may[s] {
			busy = busy || w.flying[e.id] != nil
		}
		if !busy && slices.Equal(before[i], w.may[s]) {
			// From now on it is this, and nothing that was possible beside it.
			w.may[s] = slices.DeleteFunc(slices.Clone(w.may[s]), func(e entry) bool { return e.value != v })
		}
	}
}

func (w *world) before(g block.Range) [][]entry {
	out := make([][]entry, g.Count)
	for i := range out {
		out[i] = slices.Clone(w.may[g.Start+uint64(i)])
	}
	return out
}

func (w *world) submit(r *block.Request, done func(*block.Request)) {
	life := w.life
	w.inflight++
	r.Done = func(r *block.Request) {
		if life != w.life {
			return
		}
		w.inflight--
		done(r)
	}
	w.d.Submit([]*block.Request{r})
}

// flush holds the result of a flush: what was possible when it began, or came later, is all that a loss of
// power may bring back.
func (w *world) flush() {
	was := make([][]entry, len(w.may))
	for s := range was {
		was[s] = slices.Clone(w.may[s])
	}
	after := w.nextID
	w.note("flush")
	w.submit(&block.Request{Op: block.OpFlush}, func(r *block.Request) {
		w.note("flush: %v", r.Status)
		if r.Status != block.OK {
			if w.a.failing == 0 && !w.troubled && !w.mayLose {
				w.fail("flush: %v", r.Status)
			}
			return
		}
		w.flushes++
		for s := range w.back {
			w.back[s] = slices.DeleteFunc(w.back[s], func(e entry) bool { return e.id <= after && !slices.Contains(was[s], e) })
		}
	})
}

// powerLost: what was not flushed may be there or not.
func (w *world) powerLost() {
	for s := range w.may {
		w.may[s] = slices.Clone(w.back[s])
	}
}

// resync takes what the array has for the truth: somebody gave up what the cache had.
func (w *world) resync() {
	for s := range w.may {
		v, _ := valueOf(w.a.sector(uint64(s)))
		w.may[s] = []entry{{value: v}}
		w.back[s] = []entry{{value: v}}
		if w.a.undo != nil { // what is volatile there may go still
			for _, b := range w.a.undo[uint64(s)] {
				v, _ := valueOf(b)
				w.back[s] = append(w.back[s], entry{value: v, id: -1 - int(v)})
			}
		}
	}
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
	buf := make([]byte, g.Bytes())
	excused := w.excused(g)
	w.submit(&block.Request{Op: block.OpRead, Range: g, Data: [][]byte{buf[:len(buf)/1024*512], buf[len(buf)/1024*512:]}}, func(r *block.Request) {
		if r.Status != block.OK {
			if !excused && !w.excused(g) {
				w.fail("read %v: %v", g, r.Status)
			}
			return
		}
		w.saw("read", g, before, flat([][]byte{buf}))
	})
}

func (w *world) put(op block.Op) {
	g := w.someRange(40)
	w.value++
	v := w.value
	r := &block.Request{Op: op, Range: g}
	ranges := []block.Range{g}
	switch op {
	case block.OpWrite:
		r.Data = [][]byte{pattern(v, g.Count)}
		if w.r.IntN(8) == 0 {
			r.Flags = block.FUA
		}
	case block.OpWriteSame:
		if w.r.IntN(2) == 0 {
			v = 0
		} else {
			r.Data = [][]byte{pattern(v, 1)}
		}
	case block.OpUnmap:
		v = 0
		if h := w.someRange(200); !h.Overlaps(g) {
			ranges = append(ranges, h)
		}
		r.Ranges = ranges
	case block.OpCompareWrite:
		r.Data = [][]byte{pattern(v, g.Count)}
		r.Compare = [][]byte{pattern(w.value-w.r.Uint64N(20), g.Count)}
	}
	id, old := w.write(ranges, func(uint64) uint64 { return v })
	w.note("%v %v = %d (#%d)", op, ranges, v, id)
	w.submit(r, func(r *block.Request) {
		w.note("#%d: %v", id, r.Status)
		switch {
		case r.Status == block.Miscompare:
			delete(w.flying, id)
			for _, g := range ranges {
				for s := g.Start; s < g.End(); s++ {
					w.may[s] = slices.DeleteFunc(w.may[s], func(e entry) bool { return e.id == id })
					w.back[s] = slices.DeleteFunc(w.back[s], func(e entry) bool { return e.id == id })
				}
			}
			return
		case r.Status != block.OK && !w.excused(ranges...):
			w.fail("%v %v: %v", op, ranges, r.Status)
		}
		w.written(ranges, r.Status == block.OK && id > w.badSince)
		w.wrote(id, old, r.Status == block.OK)
	})
}

// copy holds a range, looks at what is held, and places it elsewhere.
func (w *world) copy() {
	g := w.someRange(40)
	to := w.someRange(1).Start
	to = min(to, w.a.sectors-g.Count)
	before := w.before(g)
	w.note("hold %v", g)
	excused := w.excused(g)
	w.submit(&block.Request{Op: block.OpHold, Ranges: []block.Range{g}}, func(r *block.Request) {
		if r.Status != block.OK {
			if !excused && !w.excused(g) {
				w.fail("hold %v: %v", g, r.Status)
			}
			return
		}
		h := r.Ref.(heldRef)
		w.saw("hold", g, before, func(i uint64) []byte { return h[i] })
		dst := block.Range{Start: to, Count: g.Count}
		id, old := w.write([]block.Range{dst}, func(s uint64) uint64 {
			v, _ := valueOf(h[s-to])
			return v
		})
		w.note("place %v at %d (#%d)", g, to, id)
		w.submit(&block.Request{Op: block.OpPlace, Range: dst, Ref: h}, func(r *block.Request) {
			w.note("#%d: %v", id, r.Status)
			if r.Status != block.OK && !w.excused(dst) {
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

// excused tells whether a request may fail.
func (w *world) excused(ranges ...block.Range) bool {
	if w.a.failing > 0 || w.mayLose || w.troubled {
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

// settle waits until nothing is in flight.
func (w *world) settle() {
	w.t.Helper()
	for i := 0; w.inflight > 0; i++ {
		if !w.v.Step() || i > 1_000_000 {
			w.fail("%d requests never end: %s", w.inflight, w.d.dump())
		}
	}
}

// dump shows what is under way.
func (d *Disk) dump() string {
	s := fmt.Sprintf("dirty %d reserved %d accepting %v effective %v compact %v open %d buf %d batches %d;", d.ix.DirtySectors(), d.reserved, d.accepting, d.effective, d.j.compact, d.j.open, len(d.j.buf), len(d.j.batches))
	for _, o := range d.active {
		s += fmt.Sprintf(" active{mode %d %v pending %d}", o.mode, o.ranges, o.pending)
	}
	for _, o := range d.waiting {
		s += fmt.Sprintf(" waiting{mode %d %v}", o.mode, o.ranges)
	}
	return s + fmt.Sprintf(" flushers %d", len(d.flushers))
}

// checkAll reads everything, by the disk, and, when it is clean, from the array. Where a read fails, each
// sector is read alone: only what has no copy may fail.
func (w *world) checkAll(below bool) {
	w.t.Helper()
	w.settle()
	read := func(g block.Range) (ok bool) {
		before := w.before(g)
		buf := make([]byte, g.Bytes())
		w.submit(&block.Request{Op: block.OpRead, Range: g, Data: [][]byte{buf}}, func(r *block.Request) {
			if ok = r.Status == block.OK; ok {
				w.saw("read of all", g, before, flat([][]byte{buf}))
				return
			}
			if !w.excused(g) {
				w.fail("read of all, %v: %v", g, r.Status)
			}
		})
		w.settle()
		return ok
	}
	for at := uint64(0); at < w.a.sectors; at += 64 {
		g := block.Range{Start: at, Count: min(64, w.a.sectors-at)}
		if read(g) {
			continue
		}
		for s := g.Start; s < g.End(); s++ {
			read(block.Range{Start: s, Count: 1})
		}
	}
	if below && !w.mayLose {
		w.array("the array's own copy")
	}
}

// array holds what the array has against what is known.
func (w *world) array(what string) {
	w.t.Helper()
	for s := uint64(0); s < w.a.sectors; s++ {
		if g := (block.Range{Start: s, Count: 1}); !w.mayFail[s] {
			w.saw(what, g, w.before(g), func(uint64) []byte { return w.a.sector(s) })
		}
	}
}
