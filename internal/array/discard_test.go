package array

import (
	"bytes"
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// discardStore is a store whose discards a test sees, and lets go when it likes.
type discardStore struct {
	block.Store
	media map[string]*discardMedium
	keep  bool // discards wait for release
	fail  error
	kept  []func()
	// only, where it is set, is the mdisk that keep and fail are about.
	only string
	// taken, where it is set, says which run of bytes at or behind off takes room; 0, 0: none.
	taken func(name string, off uint64) (start, end uint64)
	// began is called when a discard begins.
	began func(name string, off, n uint64)
	// lost is the error of the next sync.
	lost error
	unit uint64
	// surveyed, where it is set, is called for each question for what takes room.
	surveyed func() error
}

type discardMedium struct {
	block.Medium
	name string
	s    *discardStore
}

func (s *discardStore) Medium(name string, size uint64) (block.Medium, error) {
	m, err := s.Store.Medium(name, size)
	d := &discardMedium{m, name, s}
	s.media[name] = d
	return d, err
}

func (m *discardMedium) under() block.Surveyor { return m.Medium.(block.Surveyor) }
func (m *discardMedium) Discarded() uint64     { return m.under().Discarded() }
func (m *discardMedium) Unit() uint64          { return max(m.s.unit, m.under().Unit()) }
func (m *discardMedium) Abandon(io *block.IO)  { m.Medium.(block.Abandoner).Abandon(io) }
func (m *discardMedium) Survey(off uint64, done func(start, end uint64, err error)) {
	if m.s.taken != nil {
		start, end := m.s.taken(m.name, off)
		if end == 0 {
			start, end = m.Size(), m.Size()
		}
		done(start, end, nil)
		return
	}
	if m.s.surveyed != nil {
		if err := m.s.surveyed(); err != nil {
			done(0, 0, err)
			return
		}
		m.under().Survey(off, func(start, end uint64, err error) { done(start, min(end, start+grainBytes), err) })
		return
	}
	m.under().Survey(off, done)
}

func (m *discardMedium) Discard(off, n uint64, done func(error)) {
	if m.s.began != nil {
		m.s.began(m.name, off, n)
	}
	it := m.s.only == "" || m.s.only == m.name
	if it && m.s.fail != nil {
		done(m.s.fail)
		return
	}
	end := func() { m.under().Discard(off, n, done) }
	if it && m.s.keep {
		m.s.kept = append(m.s.kept, end)
		return
	}
	end()
}

func (m *discardMedium) Sync(done func(error)) {
	err := m.s.lost
	m.s.lost = nil
	if err != nil {
		done(err)
		return
	}
	m.Medium.Sync(done)
}

// room returns the bytes that an mdisk takes.
func (m *discardMedium) room() (n uint64) {
	for at := uint64(0); at < m.Size(); {
		m.under().Survey(at, func(start, end uint64, _ error) { n, at = n+end-start, end })
	}
	return n
}

func (s *discardStore) room() (n uint64) {
	for _, m := range s.media {
		n += m.room()
	}
	return n
}

// discardRig is a rig over such a store.
func discardRig(t testing.TB, opt Options) (*rig, *discardStore) {
	t.Helper()
	s := &discardStore{media: map[string]*discardMedium{}}
	opt.Discard = true
	r := rigOver(t, opt, func(under block.Store) block.Store {
		s.Store = under
		return s
	})
	return r, s
}

// crash replaces the array of a rig by one that recovers from a copy of the store, as after the death of the process.
func (s *discardStore) crash(r *rig) {
	r.t.Helper()
	r.clock = &block.Virtual{}
	r.store = r.store.Clone(r.clock)
	s.Store = r.store
	r.opt.Exec, r.opt.Store = r.clock, s
	a, err := Open(r.opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.a = a
}

func written(at, n uint64, b byte) *block.Request {
	return &block.Request{Op: block.OpWrite, Range: rng(at, n), Data: [][]byte{bytes.Repeat([]byte{b}, int(n)*512)}}
}

// TestDeletedVolumesGiveRoomBack: what a volume had takes no room when it is gone, and what others have stays.
func TestDeletedVolumesGiveRoomBack(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 24<<20, true), r.volume("w", "p", 24<<20, true)
	for at := uint64(0); at < 16<<11; at += 512 {
		mustOK(t, r.do(v, written(at, 512, 1)))
	}
	mustOK(t, r.do(w, written(0, 3000, 2)))
	mustOK(t, r.clone(v, w, rng(8192, 2048)))
	r.clock.Run()
	if got := s.room(); got < 16<<20 {
		t.Fatalf("%d bytes take room", got)
	}
	if m := s.media["p.d0"]; m.Discarded() != 0 {
		t.Errorf("%d bytes were discarded before anything was deleted", m.Discarded())
	}
	var failed error
	r.a.DeleteVolume(v, func(err error) { failed = err })
	r.clock.Run()
	if failed != nil {
		t.Fatal(failed)
	}
	grains := uint64(r.a.Pool("p").Alloc.Allocated())
	if got := s.room(); got != grains*grainBytes {
		t.Errorf("%d bytes take room, %d grains are allocated", got, grains)
	}
	sum := uint64(0)
	for _, d := range r.a.Pool("p").Mdisks {
		operations, n := d.Discarded()
		if sum += n; operations == 0 {
			t.Errorf("mdisk %s has discarded nothing", d.Name())
		}
	}
	if had := s.media["p.d0"].Discarded() + s.media["p.d1"].Discarded(); sum != had {
		t.Errorf("%d bytes are counted, %d were discarded", sum, had)
	}
	got := make([]byte, 2048*512)
	mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(8192, 2048), Data: [][]byte{got}}))
	if !bytes.Equal(got, bytes.Repeat([]byte{1}, len(got))) {
		t.Error("what was copied from it is not there any more")
	}
	r.check()
}

// TestWithheldIsNotTaken: nobody gets space that is being discarded, however short space is; who needs it waits, and
// what is written there afterwards stays.
func TestWithheldIsNotTaken(t *testing.T) {
	for _, thin := range []bool{true, false} {
		r, s := discardRig(t, Options{})
		p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: layout.ExtentBytes}}}, 0)
		v := r.volume("v", "p", layout.ExtentBytes, thin)
		mustOK(t, r.do(v, written(0, extentSectors, 1)))
		r.clock.Run()
		if thin {
			mustOK(t, r.do(v, unmap(0, rng(0, extentSectors))))
		} else {
			mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(0, extentSectors)}))
		}
		s.keep = true
		r.clock.RunUntil(r.clock.Now() + 3e9)
		if len(s.kept) != 1 || p.Alloc.Withheld() != layout.ExtentGrains || p.Alloc.Available() != map[bool]int64{true: layout.ExtentGrains}[thin] {
			t.Fatalf("thin %v: %d discards are under way, %d grains are withheld, %d available", thin, len(s.kept), p.Alloc.Withheld(), p.Alloc.Available())
		}
		q := written(100, 1000, 7)
		ended := false
		q.Done = func(*block.Request) { ended = true }
		v.Submit([]*block.Request{q})
		r.clock.RunUntil(r.clock.Now() + 3e9)
		if ended {
			t.Errorf("thin %v: a write ended %v while all space was being discarded", thin, q.Status)
		}
		r.check()
		s.keep = false
		release(&s.kept)
		r.clock.Run()
		if !ended || q.Status != block.OK {
			t.Fatalf("thin %v: the write ended: %v, %v", thin, ended, q.Status)
		}
		got := make([]byte, 1000*512)
		mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(100, 1000), Data: [][]byte{got}}))
		if !bytes.Equal(got, q.Data[0]) || r.a.Dirty() != 0 {
			t.Errorf("thin %v: what was written is gone; %d bytes are dirty", thin, r.a.Dirty())
		}
		r.check()
	}
}

// TestNothingUnderWayIsDiscarded: what is on its way to an mdisk when its space becomes free has ended, and needs no redo any
// more, before that is discarded.
func TestNothingUnderWayIsDiscarded(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 16 << 20}}}, 0)
	v := r.volume("v", "p", 16<<20, true)
	var held []*block.IO
	hold := true
	m := s.media["p.m"]
	under := m.Medium
	m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
		if hold {
			held = append(held, ios...)
			return
		}
		under.Submit(ios)
	}}
	s.began = func(_ string, off, n uint64) {
		for _, io := range held {
			if io.Off < off+n && off < io.Off+io.N {
				t.Errorf("%d bytes at %d are discarded, and %d at %d are on their way", n, off, io.N, io.Off)
			}
		}
	}
	mustOK(t, r.do(v, written(0, 2048, 1)))
	r.clock.RunUntil(r.clock.Now() + 2e9)
	if len(held) == 0 {
		t.Fatal("nothing is on its way")
	}
	mustOK(t, r.do(v, unmap(0, rng(0, 2048))))
	r.clock.RunUntil(r.clock.Now() + 10e9)
	if m.Discarded() != 0 {
		t.Errorf("%d bytes were discarded", m.Discarded())
	}
	hold = false
	late := held
	held = nil
	under.Submit(late)
	r.clock.Run()
	if got := s.room(); got != 0 {
		t.Errorf("%d bytes take room", got)
	}
	r.check()
}

// TestAbandonedReadsKeepFromDiscarding: a read that was given up may still find its way to space that is free by now: as long as the
// medium has it, that grain is not discarded, and all others are.
func TestAbandonedReadsKeepFromDiscarding(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 16 << 20}}}, 0)
	v := r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, written(0, 2048, 1)))
	mustOK(t, r.do(v, written(8192, 8, 1)))
	r.clock.Run()
	m := s.media["p.m"]
	under, held := m.Medium, []*block.IO(nil)
	m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
		for _, io := range ios {
			if !io.Write && io.Off < 1<<20 {
				held = append(held, io)
			} else {
				r.clock.Call(r.clock.Now()+1e6, func() { under.Submit([]*block.IO{io}) })
			}
		}
	}}
	if got := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{make([]byte, 4096)}}); got != block.Hardware || len(held) != 1 {
		t.Fatalf("the read ended %v, %d are held", got, len(held))
	}
	mustOK(t, r.do(v, unmap(0, rng(0, 2048))))
	for range 10 { // the mdisk is not silent: it does what others want
		mustOK(t, r.do(v, written(8192, 8, 2)))
		r.clock.RunUntil(r.clock.Now() + 2e9)
	}
	if got := m.Discarded(); got != 15*grainBytes {
		t.Errorf("%d bytes were discarded", got)
	}
	under.Submit(held)
	r.clock.Run()
	if m.Discarded() < 1<<20 {
		t.Errorf("%d bytes were discarded when it had ended", m.Discarded())
	}
	r.check()
}

// TestRedoBesideDiscards: a redo does not wait for a discard that is under way, and writes nothing there.
func TestRedoBesideDiscards(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 16 << 20}}}, 0)
	v := r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, written(0, 2048, 1)))
	r.clock.Run()
	mustOK(t, r.do(v, unmap(0, rng(0, 2048))))
	s.keep = true
	r.clock.RunUntil(r.clock.Now() + 3e9)
	if len(s.kept) == 0 {
		t.Fatal("nothing is being discarded")
	}
	m := s.media["p.m"]
	under, writes := m.Medium, 0
	m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
		for _, io := range ios {
			if io.Write {
				writes++
			}
		}
		under.Submit(ios)
	}}
	s.lost = errors.New("it is lost")
	mustOK(t, r.do(v, written(8192, 8, 2)))
	r.clock.RunUntil(r.clock.Now() + 10e9)
	if s.lost != nil || r.a.Pool("p").Mdisks[0].Redoing() || writes != 2 {
		t.Fatalf("the sync failed: %v; it redoes: %v; %d writes", s.lost == nil, r.a.Pool("p").Mdisks[0].Redoing(), writes)
	}
	s.keep = false
	release(&s.kept)
	r.clock.Run()
	if r.a.Pool("p").Mdisks[0].Redoing() || writes != 2 || r.a.Dirty() != 0 {
		t.Errorf("it redoes: %v, after %d writes; %d bytes are dirty", r.a.Pool("p").Mdisks[0].Redoing(), writes, r.a.Dirty())
	}
	r.check()
}

// TestPoolGoesWithDiscards: a pool is deleted while its mdisks discard; another one of its name has nothing to do with that.
func TestPoolGoesWithDiscards(t *testing.T) {
	r, s := discardRig(t, Options{})
	p := r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, written(0, 20000, 1)))
	r.clock.Run()
	s.keep = true
	r.a.DeleteVolume(v, func(error) {})
	r.clock.RunUntil(r.clock.Now() + 3e9)
	if len(s.kept) == 0 {
		t.Fatal("nothing is being discarded")
	}
	var failed error
	r.a.DeletePool(p, func(err error) { failed = err })
	if r.clock.RunUntil(r.clock.Now() + 3e9); failed != nil {
		t.Fatal(failed)
	}
	r.pool("p", PoolSpec{}, 64<<20)
	v = r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, written(0, 20000, 2)))
	s.keep = false
	release(&s.kept)
	r.clock.Run()
	got := make([]byte, 20000*512)
	mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 20000), Data: [][]byte{got}}))
	if !bytes.Equal(got, bytes.Repeat([]byte{2}, len(got))) {
		t.Error("what was written is gone")
	}
	stopped := errors.New("it does not stop")
	r.a.Stop(func(err error) { stopped = err })
	if r.clock.Run(); stopped != nil {
		t.Error(stopped)
	}
	r.check()
}

// holding is a medium whose transfers a test holds.
type holding struct {
	block.Surveyor
	block.Medium
	submit func([]*block.IO)
}

func (h holding) Submit(ios []*block.IO) { h.submit(ios) }

func (h holding) Abandon(io *block.IO) { h.Medium.(block.Abandoner).Abandon(io) }

// TestStartSweeps: a start discards what an earlier life had no time for, and finds it without reading.
func TestStartSweeps(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 24<<20, true), r.volume("w", "p", 24<<20, true)
	mustOK(t, r.do(v, written(0, 20000, 1)))
	mustOK(t, r.do(w, written(0, 1000, 2)))
	r.clock.Run()
	r.a.DeleteVolume(v, func(error) {})
	r.clock.RunUntil(r.clock.Now() + 500e6) // the first round comes later
	if s.room() < 20000*512 {
		t.Fatal("it is discarded before the crash: nothing is shown")
	}
	s.crash(r)
	r.clock.Run()
	if got, want := s.room(), uint64(r.a.Pool("p").Alloc.Allocated())*grainBytes; got != want {
		t.Errorf("%d bytes take room, %d are allocated", got, want)
	}
	got := make([]byte, 1000*512)
	mustOK(t, r.do(r.a.Volume("w"), &block.Request{Op: block.OpRead, Range: rng(0, 1000), Data: [][]byte{got}}))
	if !bytes.Equal(got, bytes.Repeat([]byte{2}, len(got))) {
		t.Error("what another volume has is gone")
	}
	r.check()
}

// TestDiscardsThatFail: an mdisk that cannot discard is asked no more; one that fails is asked again, not for ever, and
// space is taken meanwhile.
func TestDiscardsThatFail(t *testing.T) {
	for _, fail := range []error{errors.ErrUnsupported, errors.New("broken")} {
		r, s := discardRig(t, Options{})
		p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: layout.ExtentBytes}}}, 0)
		v := r.volume("v", "p", layout.ExtentBytes, true)
		calls := 0
		s.fail, s.began = fail, func(string, uint64, uint64) { calls++ }
		free := func() {
			t.Helper()
			mustOK(t, r.do(v, written(0, extentSectors, 1)))
			r.clock.Run()
			mustOK(t, r.do(v, unmap(0, rng(0, extentSectors))))
			r.clock.Run() // it ends
			if p.Alloc.Withheld() != 0 {
				t.Errorf("%v: %d grains are withheld", fail, p.Alloc.Withheld())
			}
		}
		free()
		first := calls
		if d := p.Mdisks[0]; !errors.Is(fail, errors.ErrUnsupported) {
			if free(); first != 8 || calls != first+1 || d.FailedDiscards() != uint64(calls) {
				t.Errorf("it was asked %d and %d times, and has failed %d times", first, calls-first, d.FailedDiscards())
			}
		}
		s.fail = nil
		free()
		if unsupported := errors.Is(fail, errors.ErrUnsupported); unsupported && (first != 1 || calls != 1) {
			t.Errorf("it was asked %d and %d times", first, calls-first)
		} else if !unsupported && (first < 2 || s.room() != 0) {
			t.Errorf("it was asked %d and %d times; %d bytes take room", first, calls-first, s.room())
		}
		r.check()
	}
}

// TestDiscardThatHangs: who waits for space that a silent mdisk has not given back hears of an error in time.
func TestDiscardThatHangs(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: layout.ExtentBytes}}}, 0)
	v := r.volume("v", "p", layout.ExtentBytes, true)
	mustOK(t, r.do(v, written(0, extentSectors, 1)))
	r.clock.Run()
	mustOK(t, r.do(v, unmap(0, rng(0, extentSectors))))
	s.keep = true
	r.clock.RunUntil(r.clock.Now() + 3e9)
	from := r.clock.Now()
	if got := r.do(v, written(0, 8, 2)); got != block.MediumWrite || r.clock.Now()-from > 30e9 {
		t.Errorf("it ended %v after %d s", got, (r.clock.Now()-from)/1e9)
	}
	s.keep = false
	release(&s.kept)
	mustOK(t, r.do(v, written(0, 8, 2)))
	r.clock.Run()
	if h := r.a.Health(); len(h) > 0 {
		t.Error(h)
	}
	r.check()
}

// TestFreedSpaceWakesWhoWaits: a write waits for space that a discard keeps, which hangs. What a host frees elsewhere lets
// it go on at once.
func TestFreedSpaceWakesWhoWaits(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 2 * layout.ExtentBytes}}}, 0)
	v := r.volume("v", "p", 2*layout.ExtentBytes, true)
	for at := uint64(0); at < 2*extentSectors; at += extentSectors {
		mustOK(t, r.do(v, written(at, extentSectors, 1)))
	}
	r.clock.Run()
	mustOK(t, r.do(v, unmap(0, rng(0, extentSectors))))
	s.keep = true
	r.clock.RunUntil(r.clock.Now() + 3e9)
	if len(s.kept) == 0 {
		t.Fatal("no discard is under way")
	}
	q := written(0, 8, 2)
	q.Status, q.Done = block.Gone, func(*block.Request) {}
	v.Submit([]*block.Request{q})
	r.clock.RunUntil(r.clock.Now() + 1e9)
	if q.Status != block.Gone {
		t.Fatalf("it does not wait: %v", q.Status)
	}
	mustOK(t, r.do(v, unmap(0, rng(extentSectors, 128))))
	r.clock.RunUntil(r.clock.Now() + 1e6)
	if q.Status != block.OK {
		t.Errorf("behind an UNMAP it ended %v", q.Status)
	}
	s.keep = false
	release(&s.kept)
	r.clock.Run()
	r.check()
}

// TestDiscardsMakeWay: while an mdisk has something to do for others little is discarded, and from one extent of a medium
// that gives whole extents back nothing as long as a part of it is used.
func TestDiscardsMakeWay(t *testing.T) {
	r, s := discardRig(t, Options{CacheBytes: 128 << 20})
	s.unit = layout.ExtentBytes
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 200 << 20}}}, 0)
	v := r.volume("v", "p", 200<<20, true)
	for at := uint64(0); at < 192<<11; at += 8192 {
		mustOK(t, r.do(v, written(at, 8192, 1)))
		r.clock.RunUntil(r.clock.Now() + 2e9)
	}
	r.clock.Run()
	var busy block.Request
	m := s.media["p.m"]
	under, hold, held := m.Medium, true, []*block.IO(nil)
	m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
		if hold && !ios[0].Write {
			held = append(held, ios...)
			return
		}
		under.Submit(ios)
	}}
	count := 0
	s.began = func(_ string, off, n uint64) {
		if count++; off%layout.ExtentBytes != 0 || n != layout.ExtentBytes {
			t.Errorf("%d bytes at %d are discarded", n, off)
		}
	}
	mustOK(t, r.do(v, unmap(0, rng(8, 190<<11)))) // 8 sectors stay
	busy = block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{make([]byte, 4096)}, Done: func(*block.Request) {}}
	v.Submit([]*block.Request{&busy})
	r.clock.RunUntil(r.clock.Now() + 2e9)
	if count == 0 || count > 12 {
		t.Errorf("in one second beside a read, %d extents were discarded", count)
	}
	hold = false
	under.Submit(held)
	held = nil
	r.clock.RunUntil(r.clock.Now() + 1e9)
	if count < 46 {
		t.Errorf("in a second at rest, it were %d", count)
	}
	r.clock.Run()
	if want := uint64(r.a.Pool("p").Alloc.Allocated()+layout.ExtentGrains-2) / layout.ExtentGrains * layout.ExtentBytes; s.room() > want+layout.ExtentBytes {
		t.Errorf("%d bytes take room", s.room())
	}
	r.check()
}

// TestNoDiscards: without the option, and where nothing is kept, nobody asks for any.
func TestNoDiscards(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, written(0, 8192, 1)))
	r.clock.Run()
	mustOK(t, r.do(v, unmap(0, rng(0, 8192))))
	r.clock.Run()
	if m, _ := r.store.Medium("p.d0", 32<<20); m.(block.Discarder).Discarded() != 0 {
		t.Error("something was discarded")
	}
	r = newRig(t, Options{Discard: true}, true)
	r.pool("p", PoolSpec{}, 64<<20)
	v = r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, write(0, 8192)))
	r.clock.Run()
	mustOK(t, r.do(v, unmap(0, rng(0, 8192))))
	r.clock.Run()
	if m, _ := r.store.Medium("p.d0", 32<<20); m.(block.Discarder).Discarded() != 0 {
		t.Error("without payload something was discarded")
	}
}
