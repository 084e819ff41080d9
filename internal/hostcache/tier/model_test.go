package tier

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

var (
	seeds = flag.Int("tier.seeds", 300, "random runs of TestModel")
	first = flag.Uint64("tier.seed", 1, "the first seed of TestModel")
	lines = flag.Int("tier.lines", 60, "lines of a failing run that are shown")
)

// entry is a value that a sector may have.
type entry struct {
	value uint64
	id    int // of the write that made it
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

	may      [][]entry // by sector
	flying   map[int][]block.Range
	nextID   int
	value    uint64
	inflight int
	mayLose  bool // the last copy of dirty data went: reads may fail
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

// boot opens the disk of a host on its card, or on the copy that peer has of it.
func (w *world) boot(peer int) {
	w.life++
	w.path = &path{array: w.a}
	w.slots = nil
	w.a.notify = nil
	opt := w.opt
	opt.Below = w.path
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
		opt.TakeOver = true
		opt.Policy = Policy{Mode: WriteThrough}
	}
	opened := false
	Open(opt, func(d *Disk, err error) {
		if err != nil {
			w.fail("open: %v", err)
		}
		w.d, opened = d, true
	})
	for !opened && w.v.Step() {
	}
	if !opened {
		w.fail("open does not end")
	}
	rec := w.d.Recovery()
	if rec.Damaged > 0 {
		w.fail("%d sectors are damaged after a crash", rec.Damaged)
	}
	w.note("boot peer %d: %+v", peer, rec)
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
	w.submit(&block.Request{Op: block.OpRead, Range: g, Data: [][]byte{buf[:len(buf)/1024*512], buf[len(buf)/1024*512:]}}, func(r *block.Request) {
		if r.Status != block.OK {
			if w.a.failing == 0 && !w.mayLose {
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
				}
			}
			return
		case r.Status != block.OK && w.a.failing == 0 && !w.mayLose:
			w.fail("%v %v: %v", op, ranges, r.Status)
		}
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
	w.submit(&block.Request{Op: block.OpHold, Ranges: []block.Range{g}}, func(r *block.Request) {
		if r.Status != block.OK {
			if w.a.failing == 0 && !w.mayLose {
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
			if r.Status != block.OK && w.a.failing == 0 && !w.mayLose {
				w.fail("place: %v", r.Status)
			}
			w.wrote(id, old, r.Status == block.OK)
		})
	})
}

// settle waits until nothing is in flight.
func (w *world) settle() {
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

// checkAll reads everything, by the disk, and, when it is clean, from the array.
func (w *world) checkAll(below bool) {
	w.settle()
	all := block.Range{Count: w.a.sectors}
	before := w.before(all)
	buf := make([]byte, all.Bytes())
	w.submit(&block.Request{Op: block.OpRead, Range: all, Data: [][]byte{buf}}, func(r *block.Request) {
		if r.Status != block.OK {
			if !w.mayLose {
				w.fail("read of all: %v", r.Status)
			}
			return
		}
		w.saw("read of all", all, before, flat([][]byte{buf}))
	})
	w.settle()
	if below && !w.mayLose {
		w.saw("the array's own copy", all, w.before(all), w.a.sector)
	}
}

func (w *world) step() {
	switch p := w.r.IntN(100); {
	case p < 35:
		w.put(block.OpWrite)
	case p < 62:
		w.read()
	case p < 68:
		w.put(block.OpWriteSame)
	case p < 74:
		w.put(block.OpUnmap)
	case p < 82:
		w.copy()
	case p < 85:
		w.put(block.OpCompareWrite)
	case p < 87:
		w.submit(&block.Request{Op: block.OpFlush}, func(*block.Request) {})
	default:
		w.v.RunUntil(w.v.Now() + w.r.Int64N(3_000_000))
	}
}

func newWorld(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 17))
	w := &world{t: t, seed: seed, r: r, v: &block.Virtual{}, flying: map[int][]block.Range{}}
	w.a = newArray(w.v, r, 600)
	policies := hostcache.Policies()
	w.opt = Options{Exec: w.v, BlockSectors: 8 << r.IntN(3), Eviction: policies[r.IntN(len(policies))], PowerSafe: r.IntN(2) == 0,
		DestageSectors: uint64(8 << r.IntN(5)), FillBytes: uint64(32<<10) << r.IntN(4), Policy: Policy{Mode: WriteBack, Peers: r.IntN(3)}}
	w.opt.Throttle.Area = uint64(32<<10) << r.IntN(4)
	for range w.opt.Policy.Peers + 1 + r.IntN(2) {
		c := newCard(w.v, r, 1<<20)
		if w.opt.PowerSafe {
			c.undo = []map[int][][]byte{{}}
		}
		w.cards = append(w.cards, c)
	}
	w.may = make([][]entry, w.a.sectors)
	for s := range w.may {
		w.may[s] = []entry{{}}
	}
	return w
}

func (w *world) run() {
	w.boot(0)
	for range 4 {
		n := 20 + w.r.IntN(120)
		for range n {
			w.step()
			if w.inflight > 24 {
				w.v.RunUntil(w.v.Now() + 500_000)
			}
		}
		switch p := w.r.IntN(100); {
		case p < 40: // the process dies
			w.crash()
			if w.opt.PowerSafe && w.r.IntN(2) == 0 {
				w.note("power cut")
				for _, c := range w.cards {
					c.powerCut()
				}
			}
			w.boot(0)
			w.checkAll(false)
		case p < 50 && len(w.cards) > 1: // a peer goes
			w.cards[1+w.r.IntN(len(w.cards)-1)].broken = true
			w.note("a peer is lost")
			for range 30 {
				w.step()
			}
			w.checkAll(false)
		case p < 60: // the flash goes
			w.note("the flash is lost")
			w.mayLose = w.mayLose || len(w.d.State().Peers) == 0
			w.cards[0].broken = true
			for range 30 {
				w.step()
			}
			w.checkAll(false)
			return
		case p < 70 && len(w.d.State().Peers) > 0: // the host goes, a peer takes over
			peer := 0
			for i, m := range w.d.members {
				if m.state == memberPresent && m.peer != nil && !w.cards[i].broken {
					peer = i
				}
			}
			if peer == 0 {
				continue
			}
			w.crash()
			w.boot(peer)
			w.checkAll(false)
			clean := false
			w.d.Quiesce(1e12, func(uint64) { clean = true })
			for !clean && w.v.Step() {
			}
			if !clean {
				w.fail("the peer does not destage: %s", w.d.dump())
			}
			w.checkAll(true)
			return
		case p < 80:
			clean := false
			w.d.Quiesce(1e9, func(uint64) {
				clean = true
				if w.d.ix.DirtySectors() > 0 {
					w.fail("quiesced, and %d sectors are dirty", w.d.ix.DirtySectors())
				}
			})
			for range 20 {
				w.step()
			}
			w.settle()
			for !clean && w.v.Step() {
			}
			w.checkAll(true)
		case p < 90:
			w.a.failing = 20
			for range 30 {
				w.step()
			}
			w.settle()
			w.a.failing = 0
			w.checkAll(false)
		default:
			w.d.SetPolicy(Policy{Mode: Mode(w.r.IntN(3)), Peers: w.r.IntN(2)}, nil)
		}
	}
	w.settle()
	closed := false
	w.checkAll(false)
	w.d.Close(false, func() { closed = true })
	for !closed && w.v.Step() {
	}
	if !closed {
		w.fail("close does not end: %s", w.d.dump())
	}
	if !w.mayLose {
		all := block.Range{Count: w.a.sectors}
		w.saw("the array after the end", all, w.before(all), w.a.sector)
	}
}

// TestModel runs random requests, crashes, losses and offloads, and never may a sector be
// other than the last acknowledged write, or one that was not acknowledged since.
func TestModel(t *testing.T) {
	for i := range *seeds {
		newWorld(t, *first+uint64(i)).run()
	}
}
