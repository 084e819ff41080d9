package array

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

var errNever = errors.New("it never ended")

// resize runs a change of size to its end.
func (r *rig) resize(v *Volume, sectors uint64) error {
	err := errNever
	r.a.Resize(v, sectors, func(e error) { err = e })
	for errors.Is(err, errNever) && r.clock.Step() {
	}
	return err
}

// stamped is a write of a stamp to each sector of a range; reads tells whether the range has it.
func stamped(g block.Range, stamp uint64) *block.Request {
	b := make([]byte, g.Bytes())
	fillStamp(b, stamp)
	return &block.Request{Op: block.OpWrite, Range: g, Data: [][]byte{b}}
}

func (r *rig) reads(v *Volume, g block.Range, stamp uint64) bool {
	r.t.Helper()
	got, want := make([]byte, g.Bytes()), make([]byte, g.Bytes())
	fillStamp(want, stamp)
	mustOK(r.t, r.do(v, &block.Request{Op: block.OpRead, Range: g, Data: [][]byte{got}}))
	return bytes.Equal(got, want)
}

// TestShrinkIsAChange: a volume that shrinks and grows again has lost what was between, and says so to who asks what has changed:
// hosts may have heard of neither size.
func TestShrinkIsAChange(t *testing.T) {
	r, _ := spaceRig(t, 128)
	v := r.volume("v", "p", 64*grainBytes, true)
	before, _, _ := v.ChangesFor(1)
	for _, n := range []uint64{20, 64} {
		if err := r.resize(v, n*windowSectors); err != nil {
			t.Fatal(err)
		}
	}
	if g, since, list := v.ChangesFor(1); g <= before || since > before || len(list) != 1 || list[0].Range != rng(20*windowSectors, 44*windowSectors) {
		t.Errorf("generation %d after %d, since %d: %+v", g, before, since, list)
	}
}

// TestShrinkInAnOvercommittedPool: a copy keeps what a thick volume has given up and may write again, so that less than
// nothing is free. Volumes that become smaller, or stay, need none of it; one that grows does.
func TestShrinkInAnOvercommittedPool(t *testing.T) {
	r, p := spaceRig(t, 128)
	v, w := r.volume("v", "p", 64*grainBytes, false), r.volume("w", "p", 64*grainBytes, false)
	mustOK(t, r.do(v, write(0, 64*windowSectors)))
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 64*windowSectors)}}
	mustOK(t, r.do(v, h))
	mustOK(t, r.do(v, unmap(0, rng(0, 64*windowSectors))))
	r.clock.Run()
	if free, _, _ := p.Space(); free >= 0 {
		t.Fatalf("%d bytes are free", free)
	}
	for _, n := range []uint64{64, 63, 20} {
		if err := r.resize(w, n*windowSectors); err != nil {
			t.Errorf("to %d windows: %v", n, err)
		}
		r.check()
	}
	if err := r.resize(w, 21*windowSectors); err == nil {
		t.Error("a volume grew where nothing is free")
	}
	if _, _, reserved := p.Space(); reserved != 84*grainBytes {
		t.Errorf("%d grains are reserved", reserved/grainBytes)
	}
	h.Ref.Release()
	if err := r.resize(w, 64*windowSectors); err != nil {
		t.Error(err)
	}
	r.check()
}

// TestFailedResizeLosesNothing: the commit of a new size fails. The volume has the old one and all that it had, now and
// after a start; what a thick one reserved for more is free again; and the next try works.
func TestFailedResizeLosesNothing(t *testing.T) {
	for _, thin := range []bool{true, false} {
		for _, to := range []uint64{100, 20_000, 40_100} {
			t.Run(fmt.Sprint(thin, to), func(t *testing.T) {
				r, s := lameRig(t)
				p := r.pool("p", PoolSpec{}, 64<<20)
				const size = 33_000
				v := r.volume("v", "p", size*512, thin)
				tail := rng(size-1000, 1000)
				mustOK(t, r.do(v, stamped(tail, 77)))
				had := p.Stats()
				s.refuse = 1
				if err := r.resize(v, to); !errors.Is(err, errDeaf) {
					t.Fatalf("it ended %v", err)
				}
				same := func(what string) {
					t.Helper()
					if v := r.a.Volume("v"); v.Info().Sectors != size || !r.reads(v, tail, 77) {
						t.Fatalf("%s: it has %d sectors, or has lost what they held", what, v.Info().Sectors)
					}
					now := r.a.Pool("p").Stats()
					if now.Reserved != had.Reserved || now.Allocated != had.Allocated {
						t.Errorf("%s: %d bytes are reserved and %d allocated, it were %d and %d", what, now.Reserved, now.Allocated, had.Reserved, had.Allocated)
					}
					r.check()
				}
				same("after the error")
				// What comes now does not carry what failed.
				r.a.SetBlob("x", []byte("y"), func(err error) {
					if err != nil {
						t.Error(err)
					}
				})
				r.clock.RunUntil(r.clock.Now() + 1e9)
				same("after another change")
				mustOK(t, r.do(v, stamped(rng(size-900, 20), 77)))
				r.crash()
				same("after a start")
				v = r.a.Volume("v")
				if err := r.resize(v, to); err != nil || v.Info().Sectors != to {
					t.Errorf("the next try: %v, %d sectors", err, v.Info().Sectors)
				}
				r.crash()
				if n := r.a.Volume("v").Info().Sectors; n != to {
					t.Errorf("after a start it has %d sectors", n)
				}
				r.check()
			})
		}
	}
}

// TestTwoResizesOverAFailingFlush: two changes of size are under way, and flushes of NVRAM fail for the first, or
// for both, or commits do. Each is answered for itself, from the size that the one before has left; after a
// loss of power the size is what was answered, and what was cut off does not come back.
func TestTwoResizesOverAFailingFlush(t *testing.T) {
	base := testkit.Seed(t)
	for s := base; s < base+60; s++ {
		rnd := rand.New(rand.NewPCG(s, 11))
		r := newPowerRig(t, s, false)
		const vol, size = 2, 2001
		if got := r.put(vol, 600, 1401, 5); got != block.OK {
			t.Fatal(got)
		}
		r.wait(vol, &block.Request{Op: block.OpFlush})
		fails, sizes := rnd.IntN(4), []uint64{700, 2500, 33_000}
		r.failSyncs(fails)
		want, low := uint64(size), uint64(size)
		var open []uint64 // sizes that were asked for and have no answer
		for range 2 {
			to := sizes[rnd.IntN(len(sizes))]
			open = append(open, to)
			r.a.Resize(r.vols[vol], to, func(err error) {
				open = open[1:]
				if err == nil {
					want = to
					low = min(low, to)
				}
				if got := r.vols[vol].Info().Sectors; got != want {
					t.Errorf("-seed %d: after the answer %v it has %d sectors, not %d", s, err, got, want)
				}
			})
		}
		for left := rnd.IntN(40); (left > 0 || s%2 == 0 && len(open) > 0) && r.clock.Step(); left-- {
		}
		if s%2 == 0 && len(open) > 0 {
			t.Fatalf("-seed %d: %d have no answer", s, len(open))
		}
		r.failSyncs(0)
		r.losePower()
		r.find()
		v := r.vols[vol]
		if got := v.Info().Sectors; got != want && (len(open) == 0 || got != open[0]) {
			t.Fatalf("-seed %d: after a loss of power it has %d sectors, not %d", s, got, want)
		}
		if p := r.a.Check(true).Problems; len(p) > 0 {
			t.Fatalf("-seed %d: %s", s, p[0])
		}
		low = min(low, v.Info().Sectors)
		if !r.holds(vol, 600, min(low, size)-600, 5) {
			t.Fatalf("-seed %d: what was never cut off is lost", s)
		}
		// All that lies behind the smallest size that was ever answered is gone for good.
		ended := false
		r.a.Resize(v, 40_000, func(err error) { ended = err == nil })
		for !ended && r.clock.Step() {
		}
		if low < size && strings.Trim(string(r.read("", vol, rng(low, size-low))), "\x00") != "" {
			t.Fatalf("-seed %d: what was cut off at %d is back", s, low)
		}
		r.files.Close()
	}
}

// TestGrownWhenItIsDurable: hosts may use more of a volume only when a start finds it so, and less from the moment
// that it may.
func TestGrownWhenItIsDurable(t *testing.T) {
	r := newPowerRig(t, testkit.Seed(t), false)
	v := r.vols[2]
	for _, to := range []uint64{33_000, 700} {
		was, ended := v.Info().Sectors, false
		r.a.Resize(v, to, func(err error) { r.must(nil, err); ended = true })
		for !ended {
			if n := v.Info().Sectors; n != was {
				t.Fatalf("from %d to %d: it has %d sectors before that is durable", was, to, n)
			}
			if s := r.put(2, min(was, to), 1, 9); !ended && s != block.OutOfRange {
				t.Fatalf("from %d to %d: a write behind the end ended %v", was, to, s)
			}
			r.clock.Step()
		}
		if n := v.Info().Sectors; n != to {
			t.Fatalf("it has %d sectors, not %d", n, to)
		}
	}
	r.files.Close()
}

// TestCommandsThatMeetAShrink: writes, copies and map edits are under way, most of them waiting for something, when
// their volume becomes smaller. Each ends, what they had to do behind the end is not done, and the account of space
// stays right.
func TestCommandsThatMeetAShrink(t *testing.T) {
	base := testkit.Seed(t)
	for s := base; s < base+60; s++ {
		rnd := rand.New(rand.NewPCG(s, 12))
		r := newRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10}, false)
		r.pool("p", PoolSpec{CopyData: s%2 == 0, Mdisks: []MdiskSpec{{Name: "m", Size: 128 << 20, Bandwidth: 2 << 20}}}, 0)
		const size = 40_000
		v := r.volume("v", "p", size*512, s%3 == 0)
		mustOK(t, r.do(v, write(0, 3000)))
		h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 3000)}}
		mustOK(t, r.do(v, h))
		open := 0
		for range 30 {
			n := 1 + rnd.Uint64N(3000)
			g := rng(rnd.Uint64N(size-n), n)
			q := write(g.Start, n)
			switch rnd.IntN(6) {
			case 0:
				q = unmap(0, g)
			case 1:
				q = &block.Request{Op: block.OpPlace, Range: g, Ref: h.Ref, Origin: block.OriginXCopy}
			case 2:
				q = &block.Request{Op: block.OpWriteSame, Range: g, Data: [][]byte{make([]byte, 512)}}
			case 3:
				q = &block.Request{Op: block.OpCompareWrite, Range: rng(g.Start, 1), Compare: [][]byte{make([]byte, 512)}, Data: [][]byte{make([]byte, 512)}}
			}
			open++
			q.Done = func(q *block.Request) {
				open--
				if q.Status != block.OK && q.Status != block.OutOfRange {
					t.Errorf("-seed %d: %v ended %v", s, q.Op, q.Status)
				}
			}
			v.Submit([]*block.Request{q})
		}
		r.clock.RunUntil(r.clock.Now() + rnd.Int64N(2e9))
		to := 1 + rnd.Uint64N(size-1)
		if err := r.resize(v, to); err != nil {
			t.Fatal(err)
		}
		r.clock.RunUntil(r.clock.Now() + 200e9)
		if open > 0 {
			t.Fatalf("-seed %d: %d commands never ended", s, open)
		}
		v.Map.Walk(block.Range{Start: to, Count: v.Map.Span() - to}, func(x extent.Run) bool {
			if x.State == block.Data {
				t.Errorf("-seed %d: %v is mapped behind %d", s, x.Range, to)
			}
			return true
		})
		h.Ref.Release()
		r.check()
		r.crash()
		r.check()
	}
}

// TestCompareThatMeetsAShrink: a COMPARE AND WRITE waits for another one's lock when its volume becomes smaller. It hears
// that its range is beyond the end, and not how what is nowhere any more compares.
func TestCompareThatMeetsAShrink(t *testing.T) {
	l := newLives(t, Policy{}, 1<<20, func(*request.Engine) {})
	l.submit(l.v, write(8192, 8))
	l.quiet()
	first, second := l.submit(l.v, compare(8192, 8)), compare(8192, 8)
	second.Compare[0][0] = 1
	if l.submit(l.v, second); waitsFor(second) != ticket.Lock {
		t.Fatalf("it is %s", request.Doing(second))
	}
	if err := l.resize(l.v, 4096); err != nil {
		t.Fatal(err)
	}
	l.answer()
	l.clock.RunUntil(l.clock.Now() + 90e9)
	if first.Status != block.OutOfRange || second.Status != block.OutOfRange {
		t.Errorf("they ended %v and %v", first.Status, second.Status)
	}
}

// TestResizeThatCannotBe: what cannot have another size says so, and in time.
func TestResizeThatCannotBe(t *testing.T) {
	r, s := lameRig(t)
	r.pool("p", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 1<<20, true), r.volume("w", "p", 1<<20, true)
	if err := r.delete(v); err != nil {
		t.Fatal(err)
	}
	if err := r.resize(v, 4096); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a deleted volume: %v", err)
	}
	// While the log has no room, and no checkpoint can be written that would make some.
	r.suspend(w)
	for room, ok := r.a.log.Claim(1); ok; room, ok = r.a.log.Claim(1) {
		room.Append([]nvlog.Edit{{Volume: w.ID()}}, 0)
	}
	from := r.clock.Now()
	if err := r.resize(w, 4096); err == nil || r.clock.Now()-from > patience+1e9 {
		t.Errorf("without room in the log it ended %v after %d s", err, (r.clock.Now()-from)/1e9)
	}
	if n := w.Info().Sectors; n != 2048 {
		t.Errorf("it has %d sectors", n)
	}
	if err := r.resize(w, 1024); err != nil {
		t.Errorf("what becomes smaller needs no log: %v", err)
	}
	s.deaf = true
	if err := r.resize(w, 512); !errors.Is(err, errDeaf) || w.Info().Sectors != 1024 {
		t.Errorf("it ended %v, with %d sectors", err, w.Info().Sectors)
	} else if s := err.Error(); strings.Contains(s, "keeps") || !strings.Contains(s, "1024 or 512") {
		t.Errorf("nobody knows its size at the next start, and the answer is: %v", err)
	}
	// Nobody knows what a start would find: it must not lack what was acknowledged.
	if s := r.do(w, write(1000, 1)); s != block.Hardware {
		t.Errorf("a write ended %v", s)
	}
	if err := r.resize(w, 2048); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("it ended %v", err)
	}
}

// delete deletes a volume.
func (r *rig) delete(v *Volume) error {
	err := errNever
	r.a.DeleteVolume(v, func(e error) { err = e })
	for errors.Is(err, errNever) && r.clock.Step() {
	}
	return err
}
