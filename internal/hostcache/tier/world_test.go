package tier

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// entry is a value that a sector may have.
type entry struct {
	value uint64
	id    int // of the write that made it
}

// acked is a write that was acknowledged.
type acked struct {
	id     int
	ranges []block.Range
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
	// backFails has, by sector, when its only copy could not be read last, until a write over it survives a loss
	// of the flash's power: such a loss may bring that back.
	backFails map[uint64]int
	spoils    int      // so often a sector could not be read
	returned  []uint64 // of backFails, those that the last loss has perhaps brought back
	flying    map[int][]block.Range
	nextID    int
	value     uint64
	inflight  int
	pending   []*block.Request
	revoked   map[*block.Request]bool // requests that were cancelled
	mark      Mark                    // what the witness has
	// anonymous: it does not keep which cache that is. failures is how often it will fail,
	// unanswered are those that wait while it is silent.
	anonymous, silent bool
	failures          int
	unanswered        []func()
	bootID            uint64 // of the host's machine
	troubled          bool   // something is broken now: requests may fail
	unsynced          bool   // the flash does: flushes may fail
	blurred           bool
	resized           bool // the LUN got another size while what is looked at was read
	mayOwe            bool // the array lost power: one flush may fail
	atCut             int  // the last write before the array lost power
	owed              int  // sectors that the array lost after their writes ended: the next flush has to fail
	flushes           int
	acked             []acked // writes and offloads
	slowest           int64   // that a destage takes below
	rarely            bool    // flushes come before a loss of power alone
	taker             int     // the card that the disk has for its own, if it is not the first
	smallest          uint64  // size that the LUN has had while requests are under way
	resizes           int
	late              map[uint64][]entry // by sector that was cut off: of changes that were under way then
	other             *lun               // the LUN that is not cached now
	lends             bool               // peers are reached as devices
	doubted           bool               // one of them lost power
	lent              []*lent            // by card
	cut               map[*card]bool     // cards of peers that lost power, and what was not flushed there
	size              int                // of a card
	mem               *arena
	only              func(*world) // the one event that there is, if it is one
	traced            bool
	trace             []string
}

// redo is the panic of a run without a trace that has failed.
type redo struct{}

func (w *world) note(format string, args ...any) {
	if !w.traced {
		return
	}
	w.trace = append(w.trace, fmt.Sprintf("%10d ", w.v.Now())+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	if !w.traced {
		panic(redo{})
	}
	for _, s := range w.trace[max(0, len(w.trace)-*lines):] {
		w.t.Log(s)
	}
	test, _, _ := strings.Cut(w.t.Name(), "/")
	w.t.Fatalf("seed %d: "+format+"\nrun it alone: go test ./internal/hostcache/tier -run '^%s$' -tier.seeds 1 -tier.seed %d", append(append([]any{w.seed}, args...), test, w.seed)...)
}

// was is an entry of a sector.
type was struct {
	sector uint64
	entry
}

// write begins a change: may says what each sector gets. old is what it replaces when it ends.
func (w *world) write(ranges []block.Range, value func(s uint64) uint64) (id int, old []was) {
	w.nextID++
	id = w.nextID
	for _, g := range ranges {
		for s := g.Start; s < min(g.End(), uint64(len(w.may))); s++ {
			for _, e := range w.may[s] {
				if w.flying[e.id] == nil {
					old = append(old, was{s, e})
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
func (w *world) wrote(id int, old []was, ok bool) {
	if ok {
		w.acked = append(w.acked, acked{id, w.flying[id]})
	}
	delete(w.flying, id)
	if !ok || id <= w.atCut {
		return // it may have ended below before the array lost it
	}
	for _, x := range old {
		if x.sector >= uint64(len(w.may)) {
			continue // it was cut off meanwhile
		}
		if i := slices.Index(w.may[x.sector], x.entry); i >= 0 {
			w.may[x.sector] = slices.Delete(slices.Clone(w.may[x.sector]), i, i+1)
		}
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
		if w.resized && whole && v == 0 && s >= w.smallest {
			continue // it was read between two sizes
		}
		if s >= uint64(len(w.may)) {
			if !whole || !slices.ContainsFunc(before[i], match) {
				w.fail("%s of sector %d at %d, which is cut off: got %d (whole %v), may be %v", what, s, w.v.Now(), v, whole, before[i])
			}
			continue
		}
		if !whole || !slices.ContainsFunc(before[i], match) && !slices.ContainsFunc(w.may[s], match) {
			w.fail("%s of sector %d at %d: got %d (whole %v), may be %v", what, s, w.v.Now(), v, whole, w.may[s])
		}
		busy := false
		for _, e := range w.may[s] {
			busy = busy || w.flying[e.id] != nil
		}
		if len(w.may[s]) > 1 && !busy && !w.blurred && !w.doubt() && !w.unsure() && slices.Equal(before[i], w.may[s]) {
			// From now on it is this, and nothing that was possible beside it.
			w.may[s] = slices.DeleteFunc(slices.Clone(w.may[s]), func(e entry) bool { return e.value != v })
		}
	}
}

// doubt tells whether the array has lost power and the host has not heard of it: what it reads may
// go.
func (w *world) doubt() bool { return w.path != nil && w.path.attention }

// before is what may be in a range now. The lists are not changed in their place, only appended to.
func (w *world) before(g block.Range) [][]entry { return slices.Clone(w.may[g.Start:g.End()]) }

func (w *world) submit(r *block.Request, done func(*block.Request)) {
	life := w.life
	w.inflight++
	w.pending = append(w.pending, r)
	r.Done = func(r *block.Request) {
		if life != w.life {
			return
		}
		w.inflight--
		w.pending = slices.DeleteFunc(w.pending, func(p *block.Request) bool { return p == r })
		if r.Status == block.Cancelled && !w.revoked[r] {
			w.fail("%v %v was cancelled by nobody", r.Op, r.Range)
		}
		if r.Status == block.Cancelled { // its memory is used for something else
			for _, b := range append(r.Data, r.Compare...) {
				for i := range b {
					b[i] = byte(i) | 0x80
				}
			}
		}
		done(r)
		delete(w.revoked, r)
	}
	w.d.Submit([]*block.Request{r})
}

// unsure tells whether the last flash takes no writes: what is dirty on it cannot be synced.
func (w *world) unsure() bool {
	m := w.d.source()
	return m != nil && m.state == memberFailing
}

// powerLost: what was not flushed may be there or not.
func (w *world) powerLost() {
	for s := range w.may {
		w.may[s] = slices.Clone(w.back[s])
	}
}

// flashPowerLost: what was not flushed on a flash may be there or not. That a sector cannot be read is
// undone by a write, and the write by this.
func (w *world) flashPowerLost() {
	w.powerLost()
	w.returned = w.returned[:0]
	for s := range w.backFails { // each on its own: order does not matter
		if !w.mayFail[s] {
			w.mayFail[s] = true
			w.returned = append(w.returned, s)
		}
	}
}

// found settles which of those a start has found so: all others have to be readable.
func (w *world) found() {
	for _, s := range w.returned {
		per := uint64(w.d.per)
		slot := w.d.ix.Lookup(hostcache.MakeKey(0, s/per))
		dirty := slot != hostcache.None && w.d.ix.Dirty(slot, int(s%per), 1)
		if !dirty && !w.d.damaged.overlaps(block.Range{Start: s, Count: 1}) {
			delete(w.mayFail, s)
		}
	}
	w.returned = w.returned[:0]
}

// spoil notes that the only copy of a sector cannot be read.
func (w *world) spoil(s uint64) {
	w.spoils++
	w.mayFail[s], w.backFails[s] = true, w.spoils
}

// unspoil notes that all sectors can be read, whatever comes.
func (w *world) unspoil() {
	clear(w.mayFail)
	clear(w.backFails)
	w.returned = w.returned[:0]
}

// resync takes what the array has for the truth: somebody gave up what the cache had.
func (w *world) resync() {
	for s := range w.may {
		w.takeArray(uint64(s))
	}
}

// takeArray takes what the array has in a sector for the truth.
func (w *world) takeArray(s uint64) {
	v, _ := valueOf(w.a.sector(s))
	w.may[s] = []entry{{value: v}}
	w.back[s] = []entry{{value: v}}
	for _, b := range w.a.undo[s] { // what is volatile there may go still
		v, _ := valueOf(b)
		w.back[s] = append(w.back[s], entry{value: v, id: -1 - int(v)})
	}
}

// settle waits until nothing is in flight.
func (w *world) settle() {
	w.t.Helper()
	for i := 0; w.inflight > 0; i++ {
		if i%64 == 0 {
			w.look()
		}
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
	for _, o := range d.parked {
		s += fmt.Sprintf(" parked{mode %d %v}", o.mode, o.ranges)
	}
	return s + fmt.Sprintf(" flushers %d marks %+v", len(d.flushers), d.marks)
}

// checkAll reads everything, by the disk, and, when it is clean, from the array. Where a read fails, each
// sector is read alone: only what has no copy may fail.
func (w *world) checkAll(below bool) {
	w.t.Helper()
	w.settle()
	read := func(g block.Range) (ok bool) {
		before := w.before(g)
		buf := w.blank(g.Count)
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
	if below {
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
