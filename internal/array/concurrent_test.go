package array

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// flight is a command under way in the concurrent test: where it changes what, and
// what each sector becomes.
type flight struct {
	vol   int
	at    []block.Range
	after [][]uint64 // stamps by range
	src   *flightSource
	req   *block.Request
	done  bool
	since int64 // when it was sent
	// late: it has waited as long as anybody does, and an mdisk has failed or been away as long.
	late bool
}

type flightSource struct {
	vol int
	at  block.Range
}

// swarm runs many commands at once over slow and failing media, kills the array
// now and then, and checks every sector against what may be there.
type swarm struct {
	*rig
	rnd     *rand.Rand
	chaos   blocktest.Chaos
	names   []string
	vols    []*Volume
	sectors []uint64
	stamps  [][]uint64
	flights []*flight
	batch   [3][]*block.Request
	stamp   uint64
	caps    capKept
	tear    tear
	slow    *extent.Audit // goes on while commands do
	slowly  int           // that have ended

	pages  bool // pages of maps are not always read
	unread int  // commands that met one
	// shake changes policies and breaks and mends hardware; heal mends all of it.
	shake, heal func()
}

func TestManyCommandsAtOnce(t *testing.T) {
	for _, errs := range []int{0, 10} {
		for _, copyData := range []bool{false, true} {
			t.Run(fmt.Sprintf("errors=%d%%/copyData=%v", errs, copyData), func(t *testing.T) {
				s := &swarm{rnd: rand.New(rand.NewPCG(testkit.Seed(t), 2)), sectors: []uint64{300000, 8000, 50001}, names: []string{"v0", "v1", "v2"}}
				s.run(t, errs, copyData)
			})
		}
	}
}

// TestManyCommandsOverBadPages: pages of maps are damaged, cannot be read, or come late or very late. Who needs one ends well, or
// with a medium error and what it had done before that; what lies elsewhere is as it was, and a start finds all of it.
func TestManyCommandsOverBadPages(t *testing.T) {
	for _, copyData := range []bool{false, true} {
		t.Run(fmt.Sprintf("copyData=%v", copyData), func(t *testing.T) {
			s := &swarm{rnd: rand.New(rand.NewPCG(testkit.Seed(t), 3)), sectors: []uint64{300000, 8000, 50001}, names: []string{"v0", "v1", "v2"}, pages: true}
			s.run(t, 0, copyData)
			if s.unread < 10 {
				t.Errorf("%d commands met a page that was not read: the test shows too little", s.unread)
			}
		})
	}
}

func (s *swarm) run(t *testing.T, errs int, copyData bool) {
	s.chaos = blocktest.Chaos{MaxDelay: 3e6, WriteErrors: errs, SyncErrors: errs, Inline: s.rnd.IntN(2) * 80, SyncHangs: s.rnd.IntN(2) * 5, Rand: s.rnd}
	opt := Options{CacheBytes: 1 << 20, LogBytes: 64 << 10, MapBytes: s.rnd.Uint64N(2)}
	if s.pages {
		opt.MapBytes, s.chaos.PageErrors, s.chaos.PageHangs = 1, 30, 5
	}
	s.rig = newRig(t, opt, false)
	s.pool("a", PoolSpec{CopyData: copyData}, 256<<20)
	s.pool("b", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20, Bandwidth: 100 << 20}}}, 0)
	for i, n := range s.sectors {
		s.volume(s.names[i], []string{"a", "a", "b"}[i], n*512, i != 1)
		s.stamps = append(s.stamps, make([]uint64, n))
	}
	s.restart()
	for step := 0; step < 3000; step++ {
		switch k := s.rnd.IntN(1000); {
		case k < 400 && len(s.flights) < 24:
			// Several at once, as a front end submits them.
			for range 1 + s.rnd.IntN(8) {
				s.launch()
			}
			for i, v := range s.vols {
				v.Submit(s.batch[i])
				s.batch[i] = nil
			}
		case k < 430:
			s.cancel()
		case k >= 985 && s.shake != nil:
			s.shake()
		case k < 440:
			s.read(step)
		case k < 444:
			s.restart()
		case k < 450:
			s.audit()
		case k < 500:
			s.a.checkpoint(true)
		default:
			for range []int{1, 1, 2, 5, 20}[s.rnd.IntN(5)] {
				s.clock.Step()
			}
			s.land()
			s.stepAudit()
		}
	}
	if s.slowly == 0 {
		t.Error("no audit in steps came to its end")
	}
	if s.heal != nil {
		s.heal()
	}
	s.settle()
	s.chaos.PageErrors, s.chaos.PageHangs = 0, 0
	s.chaos.WriteErrors, s.chaos.SyncErrors, s.chaos.SyncHangs = 0, 0, 0
	s.clock.Run()
	if s.shake != nil { // a ramp may leave data where it is
		drained := false
		s.a.Drain(func() { drained = true })
		s.clock.Run()
		if !drained {
			t.Error("the array does not drain")
		}
	}
	if s.audit(); s.pages { // what stayed taken is found
		s.restart()
	}
	if d := s.a.Dirty(); d != 0 {
		t.Errorf("%d bytes are still dirty", d)
	}
	for i := range s.vols {
		s.verifyRange(-1, i, rng(0, s.sectors[i]))
	}
}

// audit checks the array in the middle of everything.
func (s *swarm) audit() {
	s.t.Helper()
	for _, p := range s.a.Check(true).Problems {
		if s.a.arena.PassedOver() > 0 && strings.HasPrefix(p, "space: ") && strings.Contains(p, "could not be read") {
			continue
		}
		s.t.Errorf("check: %s", p)
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// stepAudit goes on with an audit of a pool's maps, or begins one.
func (s *swarm) stepAudit() {
	s.t.Helper()
	if s.slow == nil {
		p := s.vols[s.rnd.IntN(len(s.vols))].Pool()
		s.slow = s.a.set.Arena.NewAudit(p.Alloc, func(vol uint32, why string) { s.t.Fatalf("an audit in steps: volume %d: %s", vol, why) })
	}
	if s.slow.Step(s.rnd.IntN(300)) {
		return
	}
	for _, why := range s.slow.Compare() {
		s.t.Fatalf("an audit in steps: %s", why)
	}
	s.slow.End()
	s.slow = nil
	s.slowly++
}

// restart kills the array where it stands and recovers. What was under way may have
// happened or not, sector by sector; what is found is then the truth.
func (s *swarm) restart() {
	lost := s.flights
	s.flights = nil
	s.clock = &block.Virtual{Late: lateness(s.rnd)}
	s.store = s.store.Clone(s.clock)
	s.chaos.Store, s.chaos.Clock = s.store, s.clock
	s.opt.Exec, s.opt.Store = s.clock, &s.chaos
	a, err := Open(s.opt)
	if err != nil {
		s.t.Fatal(err)
	}
	s.a, s.slow = a, nil
	a.ckpt.StepNodes = 1
	s.caps = capKept{}
	s.caps.look(a) // what the start found
	// Conservation holds at every event, not only now and then.
	a.afterStep = func() {
		var r Report
		a.checker().Conservation(&r)
		if len(r.Problems) > 0 {
			s.t.Fatal(r.Problems[0])
		}
		if what := a.engine.Forgotten(a.ckpt.Running()); what != "" {
			s.t.Fatalf("at %d ns somebody waits, but %s", s.clock.Now(), what)
		}
		if what := s.caps.look(a); what != "" {
			s.t.Fatalf("at %d ns %s", s.clock.Now(), what)
		}
		if n := a.arena.ReadInCalls(); n > 0 {
			s.t.Fatalf("at %d ns %d leaves were read by who should have waited for them", s.clock.Now(), n)
		}
	}
	s.vols = nil
	for _, n := range s.names {
		s.vols = append(s.vols, a.Volume(n))
	}
	s.audit()
	for _, f := range lost {
		for i, g := range f.at {
			buf := s.readRange(f.vol, g)
			for n := range g.Count {
				got := le.Uint64(buf[n*512:])
				old, now := s.stamps[f.vol][g.Start+n], f.after[i][n]
				if got != old && got != now {
					s.t.Fatalf("after a kill sector %d of %s holds %x; it was %x and was to become %x", g.Start+n, s.names[f.vol], got, old, now)
				}
				s.stamps[f.vol][g.Start+n] = got
			}
		}
	}
}

// free tells whether no command under way changes anything in g, or reads it when excl.
func (s *swarm) free(vol int, g block.Range, excl bool) bool {
	for _, f := range s.flights {
		if f.vol == vol {
			for _, x := range f.at {
				if x.Overlaps(g) {
					return false
				}
			}
		}
		if excl && f.src != nil && f.src.vol == vol && f.src.at.Overlaps(g) {
			return false
		}
	}
	return true
}

func (s *swarm) span(vol int, limit uint64) block.Range {
	n := min(1+s.rnd.Uint64N(limit), s.sectors[vol])
	at := s.rnd.Uint64N(s.sectors[vol] - n + 1)
	if s.rnd.IntN(2) == 0 {
		at &^= 7
	}
	return rng(at, n)
}

func (s *swarm) launch() {
	vol := s.rnd.IntN(len(s.vols))
	f := &flight{vol: vol, req: &block.Request{}, since: s.clock.Now()}
	q := f.req
	q.Done = func(*block.Request) { s.ended(f) }
	k := s.rnd.IntN(18)
	if k >= 14 {
		s.launchTear(f)
		return
	}
	if k >= 12 {
		s.launchRead(vol, f)
		return
	}
	g := s.span(vol, 700)
	if k == 8 || k == 9 { // a copy over several extents, and so over both mdisks
		g = s.span(vol, 20000)
	}
	if k >= 10 { // a long map edit
		if g = s.span(vol, 100000); s.rnd.IntN(4) == 0 {
			g = rng(0, s.sectors[vol])
		}
	}
	if !s.free(vol, g, true) {
		return
	}
	after := make([]uint64, g.Count)
	s.stamp++
	fill := func() [][]byte {
		buf := make([]byte, g.Bytes())
		for i := range after {
			after[i] = s.stamp<<20 | uint64(i)
			fillStamp(buf[i*512:(i+1)*512], after[i])
		}
		return [][]byte{buf}
	}
	q.Range = g
	switch {
	case k == 10:
		q.Op = block.OpWriteSame
	case k == 11:
		q.Op, q.Ranges = block.OpUnmap, []block.Range{g}
	case k < 5:
		q.Op, q.Data = block.OpWrite, fill()
		if s.rnd.IntN(8) == 0 {
			q.Flags = block.FUA
		}
	case k < 6:
		q.Op = block.OpWriteSame
	case k < 7:
		q.Op, q.Ranges = block.OpUnmap, []block.Range{g}
	case k < 8:
		g = rng(g.Start, min(g.Count, 16))
		q.Range, after = g, after[:g.Count]
		q.Op, q.Data, q.Origin = block.OpCompareWrite, fill(), block.OriginCAW
		was := make([]byte, g.Bytes())
		for i := range g.Count {
			fillStamp(was[i*512:(i+1)*512], s.stamps[vol][g.Start+i])
		}
		q.Compare = [][]byte{was}
	default:
		from := s.rnd.IntN(len(s.vols))
		src := rng(s.rnd.Uint64N(s.sectors[from]-min(s.sectors[from]-1, g.Count)), g.Count)
		if src.End() > s.sectors[from] || !s.free(from, src, false) || from == vol && src.Overlaps(g) {
			return
		}
		h := s.hold(from, src)
		copy(after, s.stamps[from][src.Start:src.End()])
		q.Op, q.Ref, q.Origin = block.OpPlace, h.Ref, block.OriginXCopy
		f.src = &flightSource{from, src}
		q.Done = func(*block.Request) { s.ended(f); h.Ref.Release() }
	}
	f.at, f.after = []block.Range{g}, [][]uint64{after}
	s.flights = append(s.flights, f)
	s.batch[vol] = append(s.batch[vol], q)
}

// hold returns a reference to a range. Leaves of the map may be absent, and then time goes by.
func (s *swarm) hold(vol int, src block.Range) *block.Request {
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{src}, Done: func(*block.Request) {}}
	for s.vols[vol].Submit([]*block.Request{h}); h.Ref == nil; {
		if h.Status == block.MediumRead && s.pages {
			s.wellRead(func() { s.do(s.vols[vol], h) })
			continue
		}
		if !s.clock.Step() {
			s.t.Fatalf("a reference to %v never comes: %v", src, h.Status)
		}
	}
	return h
}

// launchRead reads a long range while nothing changes it.
func (s *swarm) launchRead(vol int, f *flight) {
	g := s.span(vol, 30000)
	if !s.free(vol, g, false) {
		return
	}
	f.src = &flightSource{vol, g}
	f.req.Op, f.req.Range, f.req.Data = block.OpRead, g, [][]byte{make([]byte, g.Bytes())}
	s.flights = append(s.flights, f)
	s.batch[vol] = append(s.batch[vol], f.req)
}

// ended notes the end of a command.
func (s *swarm) ended(f *flight) {
	f.done = true
	now := s.clock.Now()
	for _, p := range s.a.Pools() {
		for _, d := range p.Mdisks {
			since, _ := d.Failing()
			if now-f.since >= patience && (since != 0 && now-since >= patience || d.Offline() || d.Silent(now) > 0) {
				f.late = true
			}
		}
	}
}

func (s *swarm) cancel() {
	if len(s.flights) > 0 {
		f := s.flights[s.rnd.IntN(len(s.flights))]
		if !f.done {
			s.vols[f.vol].Cancel(f.req)
		}
	}
}

// land takes in what has ended.
func (s *swarm) land() {
	left := s.flights[:0]
	for _, f := range s.flights {
		if !f.done {
			left = append(left, f)
			continue
		}
		status := f.req.Status
		if status == block.Resources && f.late { // an mdisk that fails for long holds what all pools share of the cache
			status = block.MediumWrite
		}
		if status == block.NoSpace && f.req.Op == block.OpPlace && s.heal != nil {
			status = block.Cancelled // with an mdisk away, what the reference kept may have gone to a thick volume
		}
		if s.pages {
			status = s.pageStatus(f, status)
		}
		switch status {
		case block.OK:
			if f.req.Op == block.OpRead {
				s.compare(-2, f.vol, f.src.at, f.req.Data[0])
			}
			for i, g := range f.at {
				copy(s.stamps[f.vol][g.Start:], f.after[i])
			}
		case block.Offline, block.MediumWrite, block.Cancelled: // pieces of it may have been written
			if f.req.Status == block.MediumWrite && !s.pages && s.chaos.WriteErrors+s.chaos.SyncErrors == 0 {
				s.t.Fatalf("%v of %v waited for a failing mdisk for longer than these fail", f.req.Op, f.req.Range)
			}
			if f.req.Status == block.Offline {
				if s.heal == nil {
					s.t.Fatalf("%v of %v found something offline", f.req.Op, f.req.Range)
				}
				s.heal()
			}
			for i, g := range f.at {
				buf := s.readRange(f.vol, g)
				for n := range g.Count {
					got := le.Uint64(buf[n*512:])
					if got != s.stamps[f.vol][g.Start+n] && got != f.after[i][n] {
						s.t.Fatalf("after a cancel sector %d holds %x", g.Start+n, got)
					}
					s.stamps[f.vol][g.Start+n] = got
				}
			}
		default:
			s.t.Fatalf("%v of %v ended with %v", f.req.Op, f.req.Range, f.req.Status)
		}
	}
	s.flights = left
}

// pageStatus returns the status of a command as it would be without pages that are not read: one that met such a page ends like one that
// was cancelled, and so does one that lacks the space of garbage that was passed over.
func (s *swarm) pageStatus(f *flight, status block.Status) block.Status {
	switch {
	case status == block.MediumRead && (f.req.Op == block.OpRead || f.req.Op == block.OpCompareWrite),
		status == block.MediumWrite && f.req.Op != block.OpRead:
		s.unread++
		return block.Cancelled
	case status == block.NoSpace && s.a.arena.PassedOver() > 0:
		return block.Cancelled
	}
	return status
}

// wellRead calls fn while all pages are read.
func (s *swarm) wellRead(fn func()) {
	errs, hangs := s.chaos.PageErrors, s.chaos.PageHangs
	s.chaos.PageErrors, s.chaos.PageHangs = 0, 0
	fn()
	s.chaos.PageErrors, s.chaos.PageHangs = errs, hangs
}

func (s *swarm) settle() {
	for len(s.flights) > 0 {
		if !s.clock.Step() {
			s.t.Fatalf("%d commands never end, the first is %v %v", len(s.flights), s.flights[0].req.Op, s.flights[0].req.Range)
		}
		s.land()
	}
}

func (s *swarm) readRange(vol int, g block.Range) []byte {
	if s.heal != nil {
		s.heal()
	}
	buf := make([]byte, g.Bytes())
	s.wellRead(func() {
		for try := 0; ; try++ {
			q := &block.Request{Op: block.OpRead, Range: g, Data: [][]byte{buf}}
			if status := s.do(s.vols[vol], q); status != block.MediumRead || !s.pages || try == 200 {
				mustOK(s.t, status)
				return
			}
		}
	})
	return buf
}

func (s *swarm) read(step int) {
	vol := s.rnd.IntN(len(s.vols))
	if g := s.span(vol, 1000); s.free(vol, g, false) {
		s.verifyRange(step, vol, g)
	}
}

func (s *swarm) verifyRange(step, vol int, g block.Range) {
	s.compare(step, vol, g, s.readRange(vol, g))
}

func (s *swarm) compare(step, vol int, g block.Range, buf []byte) {
	want := make([]byte, 512)
	for n := range g.Count {
		fillStamp(want, s.stamps[vol][g.Start+n])
		if !bytes.Equal(buf[n*512:(n+1)*512], want) {
			s.t.Fatalf("step %d: sector %d of %s holds %x, not %x", step, g.Start+n, s.names[vol], le.Uint64(buf[n*512:]), s.stamps[vol][g.Start+n])
		}
	}
}
