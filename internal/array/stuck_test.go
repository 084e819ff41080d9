package array

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
)

// stuck is mdisks that can stop to answer.
type stuck struct {
	stuck bool
	held  []func()
}

func (s *stuck) submit(m block.Medium, ios []*block.IO) {
	if !s.stuck {
		m.Submit(ios)
		return
	}
	for _, io := range ios {
		s.held = append(s.held, func() { m.Submit([]*block.IO{io}) })
	}
}

// answer lets the mdisks answer again.
func (s *stuck) answer() {
	s.stuck = false
	held := s.held
	s.held = nil
	for _, fn := range held {
		fn()
	}
}

func stuckRig(t *testing.T, opt Options) (*rig, *stuck) {
	s := &stuck{}
	return hookedRig(t, opt, s.submit), s
}

// TestStuckMdisk: an mdisk takes work and never answers. Who waits for room in the cache ends with a medium error before
// an initiator would abort, reads of what is in the cache go on, health says why, and when the mdisk answers again so does all.
func TestStuckMdisk(t *testing.T) {
	r, s := stuckRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10})
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	s.stuck = true
	good, bad := 0, 0
	for i := range uint64(12) {
		at := r.clock.Now()
		switch status := r.do(v, write(i*512, 512)); status {
		case block.OK:
			good++
		case block.MediumWrite:
			bad++
		default:
			t.Fatalf("write %d ended %v", i, status)
		}
		if took := r.clock.Now() - at; took > patience+5e9 {
			t.Errorf("write %d took %d s", i, took/1e9)
		}
	}
	if good == 0 || bad == 0 {
		t.Errorf("%d writes ended well, %d did not", good, bad)
	}
	buf := make([]byte, 512*512)
	if status := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 512), Data: [][]byte{buf}}); status != block.OK {
		t.Errorf("a read of what is in the cache ended %v", status)
	}
	if h := strings.Join(r.a.Health(), "; "); !strings.Contains(h, "nothing was read or written") {
		t.Errorf("health is %q", h)
	}
	s.answer()
	for i := range uint64(12) {
		if status := r.do(v, write(i*512, 512)); status != block.OK {
			t.Errorf("afterwards write %d ended %v", i, status)
		}
	}
	if h := r.a.Health(); len(h) > 0 {
		t.Errorf("health is %q", h)
	}
	r.clock.RunUntil(r.clock.Now() + 60e9)
	r.check()
}

// TestStuckReads: what only a stuck mdisk has is waited for as long as writes are, by hosts, compares and copies; their buffers
// are their own again then, and all goes on when the mdisk answers.
func TestStuckReads(t *testing.T) {
	r, s := stuckRig(t, Options{})
	r.pool("p", PoolSpec{}, 64<<20)
	r.pool("q", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 16<<20, true), r.volume("w", "q", 16<<20, true)
	const n = 1024
	r.do(v, write(0, n))
	r.do(w, write(0, n))
	r.clock.RunUntil(r.clock.Now() + 60e9)
	s.stuck = true
	timed := func(v *Volume, q *block.Request, want block.Status) {
		t.Helper()
		at := r.clock.Now()
		if status := r.do(v, q); status != want {
			t.Fatalf("%v ended %v, not %v", q.Op, status, want)
		}
		took := r.clock.Now() - at
		if want == block.Hardware && took < patience || took > patience+5e9 {
			t.Errorf("%v took %d ms", q.Op, took/1e6)
		}
	}
	buf := make([]byte, n*512)
	timed(v, &block.Request{Op: block.OpRead, Range: rng(0, n), Data: [][]byte{buf}}, block.Hardware)
	for i := range buf {
		buf[i] = 0xAA
	}
	sector := make([]byte, 512)
	caw := func() *block.Request {
		return &block.Request{Op: block.OpCompareWrite, Range: rng(7, 1), Compare: [][]byte{sector}, Data: [][]byte{sector}}
	}
	timed(v, caw(), block.Hardware)
	timed(v, caw(), block.Hardware) // the lock of the first is gone
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, n)}}
	r.do(v, h)
	timed(w, &block.Request{Op: block.OpPlace, Range: rng(0, n), Ref: h.Ref, Origin: block.OriginXCopy}, block.Hardware)
	h.Ref.Release()
	// What a write made dirty meanwhile is read from the cache.
	timed(v, write(0, 8), block.OK)
	timed(v, &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{make([]byte, 8*512)}}, block.OK)
	if h := strings.Join(r.a.Health(), "; "); !strings.Contains(h, "nothing was read or written") {
		t.Errorf("health is %q", h)
	}
	s.answer()
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if !bytes.Equal(buf, bytes.Repeat([]byte{0xAA}, len(buf))) {
		t.Error("a read that had ended moved data")
	}
	for _, v := range []*Volume{v, w} {
		timed(v, &block.Request{Op: block.OpRead, Range: rng(0, n), Data: [][]byte{buf}}, block.OK)
	}
	if h := r.a.Health(); len(h) > 0 || r.a.back.WaitedFor() != 0 {
		t.Errorf("health is %q, %d reads are waited for", h, r.a.back.WaitedFor())
	}
	r.check()
}

// TestStuckWriteThrough: who waits for the back end to have a write ends in time, too. The write stays in NVRAM and goes there
// in the end.
func TestStuckWriteThrough(t *testing.T) {
	r, s := stuckRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10})
	p := r.pool("p", PoolSpec{CopyData: true}, 64<<20)
	p.SetWriteMode(FlushThrough)
	v := r.volume("v", "p", 16<<20, true)
	r.do(v, write(0, 512))
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 64)}}
	r.do(v, h)
	s.stuck = true
	for _, q := range []*block.Request{
		write(0, 8),
		write(64, 2048), // more than the cache has room for
		{Op: block.OpWriteSame, Range: rng(4096, 128), Data: [][]byte{make([]byte, 512)}},
		{Op: block.OpWrite, Range: rng(0, 8), Data: [][]byte{make([]byte, 4096)}, Flags: block.FUA},
	} {
		at := r.clock.Now()
		status := r.do(v, q)
		if took := r.clock.Now() - at; status != block.MediumWrite || took > patience+5e9 {
			t.Errorf("%v of %v ended %v after %d ms", q.Op, q.Range, status, took/1e6)
		}
	}
	s.answer()
	h.Ref.Release()
	r.clock.RunUntil(r.clock.Now() + 60e9)
	buf := bytes.Repeat([]byte{0xAA}, 4096)
	if status := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{buf}}); status != block.OK || !bytes.Equal(buf, make([]byte, 4096)) {
		t.Errorf("what the last write left reads %v, %x", status, buf[:16])
	}
	if status := r.do(v, write(0, 512)); status != block.OK {
		t.Errorf("a write ended %v afterwards", status)
	}
	if what := r.a.engine.Leftover(); what != "" {
		t.Error(what)
	}
	r.check()
}

// TestWaitersOfAnOfflineMdisk: what is pinned for an mdisk that is away fills its pool's partition. Who waits
// there ends in time, and all goes on when it is back.
func TestWaitersOfAnOfflineMdisk(t *testing.T) {
	for name, through := range map[string]bool{"full": false, "through": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 1 << 20, CapPercent: []int{50}, DestageStart: 100, Policy: Policy{DestageDepth: 1}}, false)
			p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m0", Size: 64 << 20, Bandwidth: 64 << 10}, {Name: "m1", Size: 64 << 20}}}, 0)
			v, w := r.volume("v", "p", 32<<20, true), r.volume("w", "p", 32<<20, true)
			if through {
				p.SetWriteMode(FlushThrough)
			}
			// The first extent, of v, is on m0, the next one, of w, on m1. All but a page of the partition is dirty.
			left := 2
			submit := func(v *Volume, count uint64) {
				q := write(0, count)
				q.Done = func(*block.Request) { left-- }
				v.Submit([]*block.Request{q})
			}
			submit(v, 1016)
			if err := p.SetMdiskOffline("m0", true); err != nil {
				t.Fatal(err)
			}
			submit(w, 1024)
			r.clock.RunUntil(r.clock.Now() + patience + 5e9)
			if left != 0 {
				t.Errorf("after %d s %d writes have not ended", int64(patience+5e9)/1e9, left)
			}
			if err := p.SetMdiskOffline("m0", false); err != nil {
				t.Fatal(err)
			}
			r.clock.RunUntil(r.clock.Now() + 10e9)
			mustOK(t, r.do(v, write(0, 2048)))
			r.check()
		})
	}
}

// mutableRig is an array whose flushes of NVRAM fail while bad is set.
func mutableRig(t *testing.T, bad *bool) *rig {
	t.Helper()
	clock := &block.Virtual{}
	st := store.NewMemory(clock, store.MemoryOptions{})
	a, err := Open(Options{Exec: clock, Store: mutableStore{st, clock, bad}, CacheBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, clock: clock, store: st, a: a}
}

// mutableStore is a store with a mutableRegion.
type mutableStore struct {
	*store.Memory
	x   block.Executor
	bad *bool
}

func (s mutableStore) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	region, fresh, err := s.Memory.Region(name, l)
	return mutableRegion{region, s.x, s.bad}, fresh, err
}

// mutableRegion is an NVRAM whose flushes fail while it is told so.
type mutableRegion struct {
	block.Region
	x   block.Executor
	bad *bool
}

func (d mutableRegion) Flush(done func(error)) {
	d.x.At(d.x.Now()+1e6, func() {
		if *d.bad {
			done(errors.New("input/output error"))
		} else {
			d.Region.Flush(done)
		}
	})
}

// While NVRAM cannot be flushed, nothing leaves the cache: who waits for room gets an error in time.
func TestWritesEndWhileFlushesFail(t *testing.T) {
	bad := false
	r := mutableRig(t, &bad)
	p := r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 32<<20, true)
	bad = true
	open, ended := 0, map[block.Status]int{}
	for i := range uint64(3000) {
		open++
		q := write(i*8, 8)
		q.Done = func(q *block.Request) { open--; ended[q.Status]++ }
		v.Submit([]*block.Request{q})
	}
	r.clock.RunUntil(r.clock.Now() + 25e9)
	if open > 0 || ended[block.Hardware] == 0 {
		t.Errorf("%d of %d pages are used, %d commands are open, ended: %v", p.Part.Room.Used(), p.Part.Limit(), open, ended)
	}
	if h := strings.Join(r.a.Health(), "\n"); !strings.Contains(h, "flushes of NVRAM have failed") {
		t.Errorf("health: %q", h)
	}
	bad = false
	r.clock.Run()
	if h := r.a.Health(); len(h) > 0 {
		t.Errorf("health when flushes succeed again: %q", h)
	}
	mustOK(t, r.do(v, write(0, 8)))
	r.check()
}

// TestFlushFailuresAreTold: who listens to a volume hears once that flushes of NVRAM have begun to fail, and once that they work
// again, each time when the array's health says so already.
func TestFlushFailuresAreTold(t *testing.T) {
	bad := false
	r := mutableRig(t, &bad)
	r.pool("p", PoolSpec{}, 64<<20)
	r.pool("q", PoolSpec{}, 64<<20)
	told := map[string][]int{} // by volume: the lines of health at each event
	var all []*Volume
	for _, name := range []string{"p", "q"} {
		v := r.volume("v"+name, name, 32<<20, true)
		v.Notify(func(e block.Event) {
			if e.Kind == block.EventHealth {
				told[name] = append(told[name], len(r.a.Health()))
			}
		})
		all = append(all, v)
	}
	want := []int(nil)
	for range 2 {
		for _, bad = range []bool{false, true, false} {
			for range 3 {
				s := block.OK
				if bad {
					s = block.Hardware
				}
				if got := r.do(all[0], &block.Request{Op: block.OpFlush}); got != s {
					t.Fatalf("a flush ended %v", got)
				}
			}
			if bad {
				want = append(want, 1)
			} else if n := len(want); n%2 == 1 {
				want = append(want, 0)
			}
			for name, got := range told {
				if !slices.Equal(got, want) {
					t.Errorf("bad %v: pool %s's volume was told at %v lines of health, not at %v", bad, name, got, want)
				}
			}
			if len(told) == 0 && len(want) > 0 {
				t.Fatal("nobody is told")
			}
		}
	}
}

// idle is an executor that has no time for what is to be done later.
type idle struct{ block.Executor }

// At never calls what it is given.
func (idle) At(int64, func()) block.Timer { return nil }

// suspend begins a checkpoint that never ends: it gives the log no room.
func (r *rig) suspend(v *Volume) {
	r.t.Helper()
	r.a.ckpt.Exec = idle{r.clock}
	mustOK(r.t, r.do(v, write(0, 8))) // so that there is something to write
	if r.a.checkpoint(true); !r.a.ckpt.Running() {
		r.t.Fatal("no checkpoint begins")
	}
}

// TestWaitersEndWhenTheArrayBreaksDown: no checkpoint makes room in the log any more, and who waits for
// that hears it.
func TestWaitersEndWhenTheArrayBreaksDown(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 32<<20, true)
	r.suspend(v)
	for room, ok := r.a.log.Claim(1); ok; room, ok = r.a.log.Claim(1) {
		room.Append([]nvlog.Edit{{Volume: v.ID()}}, 0)
	}
	ended := map[block.Status]int{}
	for _, q := range []*block.Request{write(0, 8), {Op: block.OpUnmap, Ranges: []block.Range{{Start: 64, Count: 8}}}} {
		q.Done = func(q *block.Request) { ended[q.Status]++ }
		v.Submit([]*block.Request{q})
	}
	if len(ended) > 0 {
		t.Fatalf("without room in the log they ended %v", ended)
	}
	r.a.engine.BreakDown("a test says so")
	r.clock.RunUntil(r.clock.Now() + 3e9)
	if ended[block.Hardware] != 2 {
		t.Errorf("they ended %v", ended)
	}
}

// TestStopWhileFlushesFail: a checkpoint that waits for a flush does not keep the array from stopping.
func TestStopWhileFlushesFail(t *testing.T) {
	bad := false
	r := mutableRig(t, &bad)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 32<<20, true)
	mustOK(t, r.do(v, write(0, 8)))
	bad = true
	r.a.checkpoint(true)
	ended := 0
	r.a.Stop(func(err error) {
		if ended++; err == nil {
			t.Error("it stopped without an error")
		}
	})
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if ended != 1 {
		t.Errorf("after a minute it has stopped %d times", ended)
	}
}
