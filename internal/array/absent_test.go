package array

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/check"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// evict has all leaves of maps leave memory that may: not those in which volumes end.
func (r *rig) evict() {
	r.t.Helper()
	r.a.checkpoint(true)
	r.clock.RunUntil(r.clock.Now() + 1e9)
	r.a.boundMaps(1)
	for range 2 {
		r.a.arena.Evict(1 << 30)
	}
	if r.a.arena.Absent() == 0 {
		r.t.Fatal("no leaf has left memory")
	}
}

// leavesRig has a volume of 16 leaves, of which each begins with data, zeros, and data.
func leavesRig(t *testing.T, wrap func(block.Store) block.Store) (*rig, *Volume) {
	t.Helper()
	r := rigOver(t, Options{CacheBytes: 4 << 20}, wrap)
	r.pool("p", PoolSpec{}, 512<<20)
	v := r.volume("v", "p", 16*node.LeafSectors*512, true)
	for leaf := range uint64(16) {
		at := leaf * node.LeafSectors
		mustOK(t, r.do(v, stamped(rng(at, 300), leaf<<20)))
		mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(at+100, 50)}))
	}
	r.evict()
	return r, v
}

// badReads damages what is read of pages of maps, keeps it, or takes its time by a clock.
type badReads struct {
	block.Store
	bad   bool
	stuck bool
	held  []func()
	clock *block.Virtual
}

type badMeta struct {
	block.MetaStore
	s *badReads
}

func (s *badReads) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return badMeta{m, s}, err
}

func (m badMeta) Read(key []byte, done func([]byte, error)) {
	m.MetaStore.Read(key, func(value []byte, err error) {
		if m.s.bad {
			value = bytes.Clone(value)
			value[8] ^= 1
		}
		if m.s.stuck {
			m.s.held = append(m.s.held, func() { done(value, err) })
			return
		}
		if m.s.clock != nil {
			m.s.clock.At(m.s.clock.Now()+100_000, func() { done(value, err) })
			return
		}
		done(value, err)
	})
}

// leafRequests are requests of each kind that need the second leaf of a volume.
func leafRequests(ref block.Ref) map[string]*block.Request {
	const at = node.LeafSectors
	return map[string]*block.Request{
		"read":     {Op: block.OpRead, Range: rng(at, 8), Data: [][]byte{make([]byte, 8*512)}},
		"status":   {Op: block.OpStatus, Range: rng(at, 0), Extents: make([]block.Extent, 0, 4)},
		"hold":     {Op: block.OpHold, Ranges: []block.Range{rng(at-10, 200)}},
		"write":    write(at+8, 8),
		"compare":  compare(at+110, 8),
		"zeros":    {Op: block.OpWriteSame, Range: rng(at+8, 1000)},
		"unmap":    unmap(0, rng(at+500, 8), rng(at+8, 8)),
		"copy":     {Op: block.OpPlace, Range: rng(at+64, 8), Ref: ref, Origin: block.OriginXCopy},
		"anchored": unmap(block.Anchor, rng(at+8, node.LeafSectors)),
	}
}

// TestRequestsWaitForLeaves: whatever needs a leaf that is absent waits for it, and ends well; and what is given up while it
// waits has changed nothing. Nothing is kept behind it.
func TestRequestsWaitForLeaves(t *testing.T) {
	for name := range leafRequests(nil) {
		for _, cancel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cancelled=%v", name, cancel), func(t *testing.T) {
				r, v := leavesRig(t, func(s block.Store) block.Store { return s })
				h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(15*node.LeafSectors, 8)}}
				mustOK(t, r.do(v, h))
				r.evict()
				was := *v.Map
				q, ended := leafRequests(h.Ref)[name], false
				q.Done = func(*block.Request) { ended = true }
				v.Submit([]*block.Request{q})
				if leaves := r.a.arena.Demand().Reads(); ended || leaves != 1 {
					t.Fatalf("it has ended: %v, and %d leaves are read", ended, leaves)
				}
				want := block.OK
				if cancel {
					want = block.Cancelled
					v.Cancel(q)
				}
				r.clock.RunUntil(r.clock.Now() + 1e9)
				if !ended || q.Status != want {
					t.Fatalf("ended %v with %v, not %v", ended, q.Status, want)
				}
				if cancel && was.Sums() != v.Map.Sums() {
					t.Errorf("the volume has %+v, it had %+v", v.Map.Sums(), was.Sums())
				}
				if q.Op == block.OpHold && !cancel {
					q.Ref.Release()
				}
				h.Ref.Release()
				if what := r.a.engine.Leftover(); what != "" || r.a.arena.Demand().Kept() != 0 || r.a.arena.Demand().Reads() != 0 || r.a.arena.ReadInCalls() != 0 {
					t.Errorf("left: %q, %d who keep leaves, %d reads, %d in calls", what, r.a.arena.Demand().Kept(), r.a.arena.Demand().Reads(), r.a.arena.ReadInCalls())
				}
				r.check()
			})
		}
	}
}

// TestDamagedLeaf: a leaf that no copy has as it was is a medium error for who needs it, for no longer than it is so, and for
// nobody else. Who covers all of it needs it not.
func TestDamagedLeaf(t *testing.T) {
	const leaf = node.LeafSectors
	s := &badReads{}
	r, v := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(15*leaf, 8)}}
	mustOK(t, r.do(v, h))
	r.evict()
	s.bad = true
	for name, q := range leafRequests(h.Ref) {
		want := block.MediumWrite
		if q.Op == block.OpRead || q.Op == block.OpStatus || q.Op == block.OpHold || q.Op == block.OpCompareWrite {
			want = block.MediumRead
		}
		if got := r.do(v, q); got != want {
			t.Errorf("%s ended with %v, not %v", name, got, want)
		}
	}
	if !r.reads(v, rng(15*leaf, 100), 15<<20) {
		t.Error("a leaf that is there is read wrongly")
	}
	if lines := strings.Join(r.a.Health(), ", "); !strings.Contains(lines, "maps could not be read 9 times") {
		t.Errorf("health says %q", lines)
	}
	s.bad = false
	if !r.reads(v, rng(2*leaf, 100), 2<<20) {
		t.Error("a leaf is not read when it is good again")
	}
	r.evict()
	s.bad = true
	mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(leaf, leaf)}))
	r.clock.RunUntil(r.clock.Now() + 1e9) // its references cannot be given back
	mustOK(t, r.do(v, stamped(rng(leaf+8, 8), 77<<20)))
	if !r.reads(v, rng(leaf+8, 8), 77<<20) {
		t.Error("what was written where a damaged leaf was is not read")
	}
	h.Ref.Release()
	s.bad = false
	r.crash()
	r.check()
	if v = r.a.Volume("v"); !r.reads(v, rng(leaf+8, 8), 77<<20) || !r.reads(v, rng(3*leaf, 100), 3<<20) {
		t.Error("it reads otherwise behind a start")
	}
}

// TestLateLeaf: who needs a leaf that does not come has an error before a host would abort, and can be cancelled before. Health says
// why, a check waits, and all goes on when the leaf has come.
func TestLateLeaf(t *testing.T) {
	const leaf = node.LeafSectors
	s := &badReads{}
	r, v := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(15*leaf, 8)}}
	mustOK(t, r.do(v, h))
	r.evict()
	s.stuck = true
	requests, ended := leafRequests(h.Ref), 0
	for _, q := range requests {
		q.Done = func(*block.Request) { ended++ }
		v.Submit([]*block.Request{q})
	}
	counted, resized := errNever, errNever
	v.CountEntries(func(_ int, err error) { counted = err })
	r.a.Resize(v, 5*leaf+40, func(err error) { resized = err })
	r.clock.RunUntil(r.clock.Now() + patience/2)
	if lines := r.a.Health(); ended != 0 || len(lines) != 0 {
		t.Fatalf("%d have ended too early, and health says %q", ended, lines)
	}
	r.clock.RunUntil(r.clock.Now() + patience/2 + 2e9)
	for name, q := range requests {
		want := block.MediumWrite
		if q.Op == block.OpRead || q.Op == block.OpStatus || q.Op == block.OpHold || q.Op == block.OpCompareWrite {
			want = block.MediumRead
		}
		if q.Status != want {
			t.Errorf("%s ended with %v, not %v", name, q.Status, want)
		}
	}
	if lines := strings.Join(r.a.Health(), ", "); ended != len(requests) || !strings.Contains(lines, "map has not been read for 2") {
		t.Errorf("%d of %d have ended, and health says %q", ended, len(requests), lines)
	}
	for what, err := range map[string]error{"a count": counted, "a size": resized} {
		if !errors.Is(err, demand.ErrLate) {
			t.Errorf("%s ended with %v", what, err)
		}
	}
	if what := r.a.engine.Leftover(); what != "" || r.a.arena.Demand().Kept() != 0 {
		t.Errorf("left: %q, %d who keep leaves", what, r.a.arena.Demand().Kept())
	}
	verify, more := r.a.NewVerify(false), true
	var step func(bool)
	step = func(m bool) {
		if more = m; more {
			r.clock.At(r.clock.Now(), func() { verify.Step(step) })
		}
	}
	step(true)
	scrubbed := false
	scrub := r.a.checker().NewScrub(0, false, func(*check.Scrub) { scrubbed = true })
	r.clock.RunUntil(r.clock.Now() + 3*patience)
	if !more || scrubbed {
		t.Errorf("a check does not wait, or a scrub: %v, %v", verify.Report().Problems, scrubbed)
	}
	s.stuck = false
	for _, fn := range s.held {
		fn()
	}
	r.clock.RunUntil(r.clock.Now() + 2e9)
	if got := verify.Report(); more || !scrubbed || scrub.Unread > 0 || len(got.Problems) > 0 || len(r.a.Health()) > 0 {
		t.Errorf("the check goes on: %v, with %v, the scrub has ended: %v, %d pages not read; health says %q", more, got.Problems, scrubbed, scrub.Unread, r.a.Health())
	}
	if !r.reads(v, rng(leaf, 100), 1<<20) || r.a.arena.Demand().Reads() != 0 || r.a.arena.ReadInCalls() != 0 {
		t.Error("the leaf is read wrongly, or in a call")
	}
	h.Ref.Release()
	r.check()
}

// TestLateGarbage: who needs the space of garbage whose leaf does not come, or has to wait until some of it is collected, ends
// like one who needs the leaf, and goes on when it has come.
func TestLateGarbage(t *testing.T) {
	const leaf = node.LeafSectors
	s := &badReads{}
	r, v := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(15*leaf, 200)}}
	mustOK(t, r.do(v, h))
	r.evict()
	s.stuck = true
	free, _, _ := r.a.Pool("p").Space()
	r.volume("w", "p", uint64(free), false)
	requests := map[string]*block.Request{"write": write(15*leaf+9*windowSectors, 8), "anchored": unmap(block.Anchor, rng(15*leaf+9*windowSectors, 2*windowSectors)),
		"compare": {Op: block.OpOrWrite, Range: rng(15*leaf+20*windowSectors, 8), Data: [][]byte{make([]byte, 8*512)}}}
	mustOK(t, r.do(v, unmap(0, rng(0, 15*leaf))))
	ended := 0
	for _, q := range requests {
		q.Done = func(*block.Request) { ended++ }
		v.Submit([]*block.Request{q})
	}
	r.clock.RunUntil(r.clock.Now() + patience/2)
	if ended != 0 || r.a.arena.Demand().Reads() == 0 {
		t.Fatalf("%d have ended too early, of %d leaves", ended, r.a.arena.Demand().Reads())
	}
	r.clock.RunUntil(r.clock.Now() + patience/2 + 2e9)
	for name, q := range requests {
		if q.Status != block.MediumWrite {
			t.Errorf("%s ended with %v", name, q.Status)
		}
	}
	if what := r.a.engine.Leftover(); ended != len(requests) || what != "" || r.a.arena.Demand().Kept() != 0 {
		t.Errorf("%d of %d have ended; left: %q, %d who keep leaves", ended, len(requests), what, r.a.arena.Demand().Kept())
	}
	s.stuck = false
	for _, fn := range s.held {
		fn()
	}
	r.clock.RunUntil(r.clock.Now() + 2e9)
	mustOK(t, r.do(v, stamped(rng(15*leaf+9*windowSectors, 8), 77<<20)))
	h.Ref.Release()
	r.check()
}

// TestGarbageOfAbsentLeaves: what was cut off with leaves that are absent gives its space back, a pool that needs that waits for
// it, and where a leaf is made again nothing of the old one is lost.
func TestGarbageOfAbsentLeaves(t *testing.T) {
	const leaf = node.LeafSectors
	r, v := leavesRig(t, func(s block.Store) block.Store { return s })
	p := r.a.Pool("p")
	for range 2 {
		r.evict()
		ended := 0
		done := func(*block.Request) { ended++ }
		cut := unmap(0, rng(0, 15*leaf))
		again := stamped(rng(2*leaf, 8), 5<<20)
		cut.Done, again.Done = done, done
		v.Submit([]*block.Request{cut, again}) // the leaf that is made has the key of one that is absent
		free, _, _ := p.Space()
		var w *Volume
		size := uint64(free)/512 + 10*windowSectors
		r.a.CreateVolume(VolumeSpec{Name: "w", Pool: "p", Sectors: size, Thin: false}, func(made *Volume, err error) {
			if w = made; err != nil {
				t.Errorf("a volume that needs what garbage has: %v", err)
			}
		})
		r.clock.RunUntil(r.clock.Now() + 10e9)
		if ended != 2 || w == nil || !r.reads(v, rng(2*leaf, 8), 5<<20) {
			t.Fatalf("%d of 2 have ended, and the volume is %v", ended, w)
		}
		r.check()
		if n := r.a.arena.ReadInCalls(); n != 0 {
			t.Errorf("%d leaves were read in calls", n)
		}
		r.a.DeleteVolume(w, func(err error) { mustDo(t, err) })
		r.clock.RunUntil(r.clock.Now() + 10e9)
		for i := range uint64(15) {
			mustOK(t, r.do(v, stamped(rng(i*leaf, 300), i<<20)))
		}
	}
	r.crash()
	r.check()
}

// TestStopWithAbsentGarbage: an array stops although leaves of its garbage are absent; the next start removes them.
func TestStopWithAbsentGarbage(t *testing.T) {
	r, v := leavesRig(t, func(s block.Store) block.Store { return s })
	cut := unmap(0, rng(0, 15*node.LeafSectors))
	cut.Done = func(*block.Request) {}
	v.Submit([]*block.Request{cut})
	stopped := false
	r.a.Stop(func(err error) { mustDo(t, err); stopped = true })
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if !stopped {
		t.Fatal("it does not stop")
	}
	r.crash()
	r.check()
	if n, _, _ := r.a.Pool("p").Space(); n < 500<<20 {
		t.Errorf("%d bytes are free", n)
	}
}

// TestStopBesideALateLeaf: an array stops although a page of a map does not come, and not before those have their answer who wait
// for it. When it comes, that changes nothing.
func TestStopBesideALateLeaf(t *testing.T) {
	s := &badReads{stuck: true}
	r, v := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
	counted, stopped := errNever, false
	v.CountEntries(func(_ int, err error) { counted = err })
	r.clock.RunUntil(r.clock.Now() + 1e9)
	r.a.Stop(func(err error) { mustDo(t, err); stopped = true })
	r.clock.RunUntil(r.clock.Now() + patience/2)
	if stopped || counted != errNever {
		t.Errorf("it does not wait: stopped %v, counted %v", stopped, counted)
	}
	r.clock.RunUntil(r.clock.Now() + patience/2 + 3e9)
	if !stopped || !errors.Is(counted, demand.ErrLate) {
		t.Errorf("it has stopped: %v, the count has ended: %v", stopped, counted)
	}
	absent := r.a.arena.Absent()
	r.clock.Run() // nobody looks for what comes any longer
	for _, fn := range s.held {
		fn()
	}
	if r.clock.RunUntil(r.clock.Now() + 1e9); r.a.arena.Absent() != absent || r.a.arena.Demand().Reads() != 0 {
		t.Error("a page that comes later changes something")
	}
	s.stuck, s.held = false, nil
	r.crash()
	r.check()
}

// TestStopBesideAChangeThatNeedsGarbage: who waits for the space of garbage hears that there is none when that is left to the
// next start.
func TestStopBesideAChangeThatNeedsGarbage(t *testing.T) {
	r, v := leavesRig(t, func(s block.Store) block.Store { return s })
	cut := unmap(0, rng(0, 15*node.LeafSectors))
	cut.Done = func(*block.Request) {}
	v.Submit([]*block.Request{cut})
	free, _, _ := r.a.Pool("p").Space()
	refused, stopped := false, false
	r.a.CreateVolume(VolumeSpec{Name: "w", Pool: "p", Sectors: uint64(free)/512 + 20*windowSectors}, func(_ *Volume, err error) { refused = err != nil })
	r.a.Stop(func(err error) { mustDo(t, err); stopped = true })
	for range 100_000 {
		r.clock.Step()
	}
	if !refused || !stopped {
		t.Errorf("the volume is refused: %v, and the array stops: %v", refused, stopped)
	}
}

// TestScrubBetweenAbsentLeaves: a scrub comes to its end where a leaf leaves while the next one is read: where data lies in
// both, and where it begins in the next.
func TestScrubBetweenAbsentLeaves(t *testing.T) {
	const leaf = node.LeafSectors
	s := &badReads{}
	r, v := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
	s.clock = r.clock
	for _, at := range []uint64{3*leaf - 150, 8*leaf - 150} {
		mustOK(t, r.do(v, stamped(rng(at, 300), at)))
	}
	for at := uint64(5 * leaf); at < 6*leaf; at += pieceSectors {
		mustOK(t, r.do(v, write(at, pieceSectors)))
	}
	r.clock.RunUntil(r.clock.Now() + 10e9)
	r.evict()
	ended := false
	scrub := r.a.StartScrub(0, func(*Scrub) { ended = true })
	for range 100_000 {
		r.clock.Step()
	}
	want := v.Map.Sums().Data * 512
	if !ended || scrub.Read() != want || scrub.Unread > 0 {
		t.Errorf("it has ended: %v, %d of %d bytes were read, %d leaves were not", ended, scrub.Read(), want, scrub.Unread)
	}
	scrub.Stop()
}

// TestStartWithFewLeaves: a start with a bound finds what one without it finds, and keeps few leaves.
func TestStartWithFewLeaves(t *testing.T) {
	r, v := leavesRig(t, func(s block.Store) block.Store { return s })
	sums := v.Map.Sums()
	thick := r.volume("thick", "p", 3*node.LeafSectors*512, false)
	for leaf := range uint64(3) {
		mustOK(t, r.do(thick, write(leaf*node.LeafSectors+7, 500)))
	}
	mustOK(t, r.do(v, write(7, 3))) // for the log
	want := r.a.Check(true)
	for _, bytes := range []uint64{1, 0} {
		r.opt.MapBytes = bytes
		r.crash()
		pages, read, leaves := r.a.Recovery().MapPages, r.a.Recovery().PagesRead, r.a.arena.Absent()
		got := r.a.Check(true)
		if len(got.Problems)+len(want.Problems) > 0 || got.Windows != want.Windows || r.a.Volume("v").Map.Sums() != sums {
			t.Errorf("%d bytes: %v, %d windows, not %d", bytes, got.Problems, got.Windows, want.Windows)
		}
		if leaves < pages-6 || read > 5 {
			t.Errorf("%d bytes: of %d pages %d were read, %d leaves are absent", bytes, pages, read, leaves)
		}
		if !r.reads(r.a.Volume("v"), rng(4*node.LeafSectors, 100), 4<<20) {
			t.Errorf("%d bytes: a leaf is read wrongly", bytes)
		}
	}
}

// TestEntriesOfAbsentLeaves: the entries of a map are counted wherever its leaves are, and not by guess.
func TestEntriesOfAbsentLeaves(t *testing.T) {
	s := &badReads{}
	r, v := leavesRig(t, func(under block.Store) block.Store { s.Store = under; return s })
	if n := entriesOf(v); n != 16*4 {
		t.Errorf("%d entries, not %d", n, 16*4)
	}
	r.evict()
	s.bad = true
	ended := errNever
	v.CountEntries(func(_ int, err error) { ended = err })
	r.clock.RunUntil(r.clock.Now() + 1e9)
	if ended == nil || ended == errNever {
		t.Errorf("a map with a page that cannot be read is counted: %v", ended)
	}
}

// TestResizeThroughAbsentLeaves: a volume takes a size that ends in a leaf that is absent.
func TestResizeThroughAbsentLeaves(t *testing.T) {
	const leaf = node.LeafSectors
	r, v := leavesRig(t, func(s block.Store) block.Store { return s })
	for _, sectors := range []uint64{9*leaf + 200, 9 * leaf, 4*leaf + 80, 20 * leaf, 4*leaf + 40} {
		r.evict()
		if err := r.resize(v, sectors); err != nil {
			t.Fatal(err)
		}
		v.Map.SumsOf(sectors) // needs no leaf
		r.check()
		if n := r.a.arena.ReadInCalls(); n != 0 {
			t.Errorf("%d leaves were read in calls", n)
		}
		if r.a.arena.Demand().Kept() != 0 || !r.reads(v, rng(3*leaf, 100), 3<<20) || !r.reads(v, rng(4*leaf, 40), 4<<20) {
			t.Errorf("%d sectors: it reads otherwise, or keeps leaves", sectors)
		}
		mustOK(t, r.do(v, write(sectors-8, 8)))
		if sectors > 5*leaf {
			mustOK(t, r.do(v, write(5*leaf-leaf/2, 8)))
		}
	}
	r.crash()
	r.check()
}

// TestAnchorsNeedExactCosts: where the pool has just the space that anchoring takes, leaves are read to know that.
func TestAnchorsNeedExactCosts(t *testing.T) {
	const leaf = node.LeafSectors
	r := newRig(t, Options{}, false)
	p := r.pool("p", PoolSpec{}, 32<<20)
	v := r.volume("v", "p", 3*leaf*512, true)
	for at := uint64(0); at < leaf; at += pieceSectors { // a leaf of data that has its own grains takes nothing
		mustOK(t, r.do(v, write(at, pieceSectors)))
	}
	mustOK(t, r.do(v, write(2*leaf, 8)))
	r.clock.RunUntil(r.clock.Now() + 10e9)
	r.evict()
	if free, _, _ := p.Space(); free >= 16<<20 {
		t.Fatalf("%d bytes are free: it shows nothing", free)
	}
	mustOK(t, r.do(v, unmap(block.Anchor, rng(0, leaf))))
	if n := r.a.arena.ReadInCalls(); n != 0 {
		t.Errorf("%d leaves were read in calls", n)
	}
	r.check()
}
