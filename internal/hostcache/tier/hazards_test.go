package tier

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// lab is a disk for tests of one thing: write-back, one block of 4 KiB as pattern.
type lab struct {
	*world
}

func newLab(t *testing.T, change func(*world)) *lab {
	w := &world{t: t, r: rand.New(rand.NewPCG(1, 1)), v: &block.Virtual{}, flying: map[int][]block.Range{}}
	w.a = newArray(w.v, w.r, 4096)
	w.opt = Options{Exec: w.v, Policy: Policy{Mode: WriteBack}, Eviction: "lru"}
	w.cards = []*card{newCard(w.v, w.r, 1<<20)}
	if change != nil {
		change(w)
	}
	w.may, w.back, w.bootID = make([][]entry, w.a.sectors), make([][]entry, w.a.sectors), 1
	w.mayFail, w.backFails = map[uint64]bool{}, map[uint64]int{}
	w.boot(0)
	w.wait(func() bool { return w.d.State().Why == "" })
	return &lab{w}
}

func (w *world) wait(until func() bool) {
	w.t.Helper()
	for range 1_000_000 {
		if until() {
			return
		}
		if !w.v.Step() {
			break
		}
	}
	if !until() {
		w.t.Fatalf("it never comes to that: %s", w.d.dump())
	}
}

// do carries out a request.
func (l *lab) do(r *block.Request) block.Status {
	l.t.Helper()
	end := l.start(r)
	l.wait(end)
	return r.Status
}

// start submits a request; the function tells whether it has ended.
func (l *lab) start(r *block.Request) func() bool {
	ended := false
	r.Done = func(*block.Request) { ended = true }
	l.d.Submit([]*block.Request{r})
	return func() bool { return ended }
}

func (l *lab) write(at, n, value uint64) {
	l.t.Helper()
	if s := l.do(&block.Request{Op: block.OpWrite, Range: block.Range{Start: at, Count: n}, Data: [][]byte{pattern(value, n)}}); s != block.OK {
		l.t.Fatalf("write: %v", s)
	}
}

// want reads sectors by the cache and holds them against a value.
func (l *lab) want(at, n, value uint64) {
	l.t.Helper()
	buf := make([]byte, n<<block.SectorShift)
	if s := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: n}, Data: [][]byte{buf}}); s != block.OK {
		l.t.Fatalf("read: %v", s)
	}
	if !bytes.Equal(buf, pattern(value, n)) {
		l.t.Fatalf("sectors %d+%d are not all %d: the first is %d", at, n, value, le.Uint64(buf))
	}
}

// wantBelow holds what the array has against a value.
func (l *lab) wantBelow(at, n, value uint64) {
	l.t.Helper()
	for s := at; s < at+n; s++ {
		if v, _ := valueOf(l.a.sector(s)); v != value {
			l.t.Fatalf("the array has %d in sector %d, not %d", v, s, value)
		}
	}
}

// dirty makes sectors dirty and keeps the destager from them until the gate is opened.
func (l *lab) dirty(at, n, value uint64) {
	l.t.Helper()
	l.a.gate[block.OpWrite] = true
	l.write(at, n, value)
	if l.d.ix.DirtySectors() == 0 {
		l.t.Fatal("the write is not dirty")
	}
}

// withoutDestager has no slot for a destage that nobody waits for.
func withoutDestager(w *world) {
	w.opt.Destager = NewDestager(1)
	w.opt.Destager.used = w.opt.Destager.ahead()
}

func TestHazardDirtySourceIsDestagedBeforeACopyReadsIt(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.write(64, 8, 2)
	l.wantBelow(0, 8, 0)
	hold := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 0, Count: 8}}}
	if s := l.do(hold); s != block.OK {
		t.Fatal(s)
	}
	if v, _ := valueOf(hold.Ref.(heldRef)[7]); v != 1 {
		t.Fatalf("the copy reads %d, not what was written", v)
	}
	l.wantBelow(64, 8, 0) // nothing else was destaged for it
	if got := l.d.Stats().OffloadFlushSectors; got != 8 {
		t.Errorf("%d sectors were destaged for the copy, want 8", got)
	}
}

func TestHazardOffloadSupersedesCleanAndDirtyData(t *testing.T) {
	for _, row := range []struct {
		name string
		req  block.Request
		want uint64
	}{
		{"write same", block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 0, Count: 16}, Data: [][]byte{pattern(9, 1)}}, 9},
		{"zeros", block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 0, Count: 16}}, 0},
		{"unmap", block.Request{Op: block.OpUnmap, Ranges: []block.Range{{Start: 0, Count: 16}}}, 0},
		{"place", block.Request{Op: block.OpPlace, Range: block.Range{Start: 0, Count: 16}, Ref: make(heldRef, 0)}, 7},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, nil)
			l.write(0, 8, 1)
			l.wait(l.d.clean) // clean on flash
			l.a.gate[block.OpWrite] = true
			l.d.destager.used = l.d.destager.ahead()
			l.write(8, 8, 2) // dirty
			r := row.req
			if r.Op == block.OpPlace {
				var h heldRef
				for range 16 {
					h = append(h, pattern(7, 1))
				}
				r.Ref = h
			}
			if s := l.do(&r); s != block.OK {
				t.Fatal(s)
			}
			l.want(0, 16, row.want)
			if n := l.d.ix.DirtySectors(); n != 0 {
				t.Errorf("%d sectors are still dirty", n)
			}
			if n := l.d.Stats().SupersededSectors; n != 8 {
				t.Errorf("%d superseded sectors, want 8", n)
			}
		})
	}
}

func TestHazardDestageInFlightLandsBeforeTheOffload(t *testing.T) {
	l := newLab(t, nil)
	l.dirty(0, 8, 1)
	l.wait(func() bool { return len(l.a.kept) == 1 }) // the destage is below, and hangs
	ended := l.start(&block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 0, Count: 8}, Data: [][]byte{pattern(9, 1)}})
	l.v.RunUntil(l.v.Now() + 1e9)
	for _, r := range l.a.log {
		if r.Op == block.OpWriteSame {
			t.Fatal("the offload was forwarded beside a destage of its range")
		}
	}
	l.path.open(block.OpWrite)
	l.wait(ended)
	l.wantBelow(0, 8, 9)
	l.want(0, 8, 9)
}

func TestHazardPartialHeadAndTailSectors(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 24, 1) // three blocks
	if s := l.do(&block.Request{Op: block.OpUnmap, Ranges: []block.Range{{Start: 5, Count: 14}}}); s != block.OK {
		t.Fatal(s)
	}
	l.want(0, 5, 1)
	l.want(5, 14, 0)
	l.want(19, 5, 1)
	l.d.destager.used = 0
	l.d.turn.wake(l.d)
	l.d.pump()
	l.wait(l.d.clean)
	l.wantBelow(0, 5, 1)
	l.wantBelow(5, 14, 0)
	l.wantBelow(19, 5, 1)
}

func TestHazardCrashBetweenForwardAndLog(t *testing.T) {
	for _, acknowledged := range []bool{false, true} {
		l := newLab(t, withoutDestager)
		l.write(0, 8, 1)
		l.a.delay = 1
		ended := l.start(&block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 0, Count: 16}, Data: [][]byte{pattern(9, 1)}})
		l.wait(func() bool { return len(l.a.log) > 0 })
		if acknowledged {
			l.wait(ended)
		} else if ended() {
			t.Fatal("the test comes too late")
		}
		l.crash()
		l.opt.Destager = nil
		l.boot(0)
		l.want(8, 8, 9)
		if acknowledged {
			l.want(0, 8, 9) // what it superseded does not come back
			continue
		}
		// Nobody was told that it is done: old or new, but the same above and below.
		buf := make([]byte, 8*512)
		l.do(&block.Request{Op: block.OpRead, Range: block.Range{Count: 8}, Data: [][]byte{buf}})
		l.wait(l.d.clean)
		l.wantBelow(0, 8, le.Uint64(buf))
		l.want(0, 8, le.Uint64(buf))
	}
}

func TestHazardPeerDoesNotReplayWhatWasSuperseded(t *testing.T) {
	l := newLab(t, func(w *world) {
		withoutDestager(w)
		w.opt.Policy.Peers = 1
		w.cards = append(w.cards, newCard(w.v, w.r, 1<<20))
	})
	l.write(0, 8, 1)
	l.write(8, 8, 2)
	if s := l.do(&block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 0, Count: 8}, Data: [][]byte{pattern(9, 1)}}); s != block.OK {
		t.Fatal(s)
	}
	l.crash()
	l.opt.Destager = nil
	fenced := false
	l.opt.Fence = func(done func(error)) { fenced = true; done(nil) }
	l.boot(1)
	if !fenced {
		t.Error("the lost host was not fenced before the peer took over")
	}
	l.want(8, 8, 2)
	l.wait(l.d.clean)
	l.wantBelow(0, 8, 9)
	l.wantBelow(8, 8, 2)
}

func TestHazardAnotherHostOrTheArrayChangesTheLUN(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.d.SetPolicy(Policy{Mode: WriteThrough}, nil)
	l.write(0, 24, 1)
	l.want(0, 24, 1)
	l.a.listens = true
	for s := uint64(8); s < 16; s++ {
		l.a.data[s] = pattern(5, 1)
	}
	l.a.changed = []block.Range{{Start: 8, Count: 8}}
	for _, fn := range l.a.notify {
		fn(block.Event{Kind: block.EventGeneration})
	}
	l.v.RunUntil(l.v.Now() + 1e6)
	before := len(l.a.log)
	l.want(8, 8, 5)
	l.want(0, 8, 1)
	l.want(16, 8, 1)
	if n := len(l.a.log) - before; n != 1 {
		t.Errorf("%d reads below, want 1: only what changed is forgotten", n)
	}
}

func TestHazardFailedOffloadKeepsDirtyData(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.d.SetPolicy(Policy{Mode: WriteBack}, nil)
	l.write(0, 8, 1)
	l.a.failing = 100
	if s := l.do(&block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 0, Count: 8}, Data: [][]byte{pattern(9, 1)}}); s == block.OK {
		t.Fatal("it did not fail")
	}
	l.a.failing = 0
	l.want(0, 8, 1)
	l.d.destager.used = 0
	l.d.turn.wake(l.d)
	l.d.pump()
	l.wait(l.d.clean)
	l.wantBelow(0, 8, 1) // the half that the array did is overwritten
}

func TestHazardFillDoesNotOutliveAnInvalidation(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
	l.cards[0].delay = 50_000_000 // the fill takes long
	l.want(0, 8, 0)
	ended := l.start(&block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 0, Count: 8}, Data: [][]byte{pattern(9, 1)}})
	l.wait(ended)
	l.v.RunUntil(l.v.Now() + 1e9)
	l.want(0, 8, 9)
	l.want(0, 8, 9)
}

// TestCopyBetweenTwoCachedDisks has dirty data on both sides of a copy.
func TestCopyBetweenTwoCachedDisks(t *testing.T) {
	src, dst := newLab(t, withoutDestager), newLab(t, withoutDestager)
	src.write(0, 8, 1)
	dst.write(32, 8, 2)
	hold := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 0, Count: 8}}}
	if s := src.do(hold); s != block.OK {
		t.Fatal(s)
	}
	if s := dst.do(&block.Request{Op: block.OpPlace, Range: block.Range{Start: 32, Count: 8}, Ref: hold.Ref}); s != block.OK {
		t.Fatal(s)
	}
	dst.want(32, 8, 1)
	dst.wantBelow(32, 8, 1)
	if n := dst.d.ix.DirtySectors(); n != 0 {
		t.Errorf("%d sectors are dirty at the destination", n)
	}
}

// TestHazardDestageAcrossTheNewEnd: the LUN shrinks, and a destage that began before reaches beyond its new end. Who waits for what
// lies before the end has it, and what lies behind is dropped.
func TestHazardDestageAcrossTheNewEnd(t *testing.T) {
	l := newLab(t, nil)
	l.dirty(4000, 80, 1)
	l.wait(func() bool { return len(l.a.kept) == 1 })
	hold := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 4000, Count: 8}}}
	held := l.start(hold)
	over := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 4064, Count: 8}}}
	refused := l.start(over)
	l.wait(func() bool { return len(l.d.flushers) == 2 })
	l.a.resize(4044)
	for _, fn := range l.path.notify {
		fn(block.Event{Kind: block.EventCapacity})
	}
	l.path.open(block.OpWrite)
	l.wait(func() bool { return held() && refused() })
	if hold.Status != block.OK {
		t.Errorf("a copy reads what lies before the end, and ends %v", hold.Status)
	}
	if over.Status != block.OutOfRange {
		t.Errorf("a copy reads what lies behind the end, and ends %v", over.Status)
	}
	if n, m := l.d.Stats().DestageErrors, l.d.CacheStats().FailedDisk; n != 0 || m != 0 || l.d.turn.pausedTo != 0 {
		t.Errorf("%d destages and %d I/Os of the disk have failed, and it pauses to %d", n, m, l.d.turn.pausedTo)
	}
	l.wait(l.d.clean)
	l.wantBelow(4000, 44, 1)
}
