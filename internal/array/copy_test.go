package array

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// holdOf returns a reference to a range.
func (r *rig) holdOf(v *Volume, g block.Range) block.Ref {
	r.t.Helper()
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{g}}
	mustOK(r.t, r.do(v, h))
	return h.Ref
}

// TestLongCopyByReferenceLetsOthersGo copies 3,000 runs: a read that comes later ends earlier, a full log holds the
// copy up and does not fail it, a cancelled one stops between two runs, and what was copied is right.
func TestLongCopyByReferenceLetsOthersGo(t *testing.T) {
	for name, log := range map[string]int{"room in the log": 4 << 20, "a small log": 64 << 10} {
		t.Run(name, func(t *testing.T) { testLongCopy(t, log) })
	}
}

func testLongCopy(t *testing.T, log int) {
	const runs, n = 3000, 6000
	r := newRig(t, Options{CacheBytes: 8 << 20, LogBytes: log}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 8<<20, true), r.volume("w", "p", 8<<20, true)
	want := make([]byte, n*512)
	for s := range uint64(n) {
		fillStamp(want[s*512:(s+1)*512], 1<<20|s)
	}
	mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(0, n), Data: [][]byte{want}}))
	for from := uint64(0); from < runs; from += 500 {
		q := &block.Request{Op: block.OpUnmap}
		for i := from; i < from+500; i++ {
			q.Ranges = append(q.Ranges, rng(2*i, 1))
			clear(want[2*i*512 : (2*i+1)*512])
		}
		mustOK(t, r.do(v, q))
	}
	h := r.holdOf(v, rng(0, n))
	place := func(done func(*block.Request)) *block.Request {
		q := &block.Request{Op: block.OpPlace, Range: rng(100, n), Ref: h, Origin: block.OriginXCopy, Done: done}
		w.Submit([]*block.Request{q})
		return q
	}
	ended := ""
	place(func(q *block.Request) { mustOK(t, q.Status); ended += "copy " })
	w.Submit([]*block.Request{{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{make([]byte, 4096)}, Done: func(*block.Request) { ended += "read " }}})
	r.clock.Run()
	if ended != "read copy " {
		t.Errorf("they ended in this order: %s", ended)
	}
	got := make([]byte, n*512)
	mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(100, n), Data: [][]byte{got}}))
	if !bytes.Equal(got, want) {
		t.Error("the copy differs")
	}
	r.check()

	mustOK(t, r.do(w, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 8<<11)}}))
	q := place(func(*block.Request) { ended = "cancelled" })
	r.clock.Step()
	w.Cancel(q)
	h.Release()
	r.clock.Run()
	if q.Status != block.Cancelled || ended != "cancelled" {
		t.Errorf("a cancelled copy ended %v", q.Status)
	}
	mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(100, n), Data: [][]byte{got}}))
	for s := range n {
		if b := got[s*512 : (s+1)*512]; !bytes.Equal(b, want[s*512:(s+1)*512]) && !bytes.Equal(b, make([]byte, 512)) {
			t.Fatalf("sector %d is neither copied nor as it was", s)
		}
	}
	r.crash()
	r.check()
}

// TestCancelledCopyThatWaitedLeavesItsSuccessorAlone: a data copy meets a range lock that was taken after it began, and waits. It
// is cancelled, and its request is used again at once for a command that reads. That one and all others end as they should.
func TestCancelledCopyThatWaitedLeavesItsSuccessorAlone(t *testing.T) {
	r, s := stuckRig(t, Options{Policy: Policy{CopyPieces: 1}})
	r.pool("p", PoolSpec{}, 64<<20)
	r.pool("q", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 16<<20, true), r.volume("w", "q", 16<<20, true)
	mustOK(t, r.do(v, write(0, 8)))
	for _, at := range []uint64{50, 200, 400} {
		mustOK(t, r.do(w, write(at, 8)))
	}
	r.clock.Run()
	s.stuck = true
	submit := func(q *block.Request) {
		q.Status, q.Done = block.Gone, func(*block.Request) {}
		w.Submit([]*block.Request{q})
	}
	h := r.holdOf(v, rng(0, 100)) // 8 sectors of data, and nothing behind them
	place := block.Request{Op: block.OpPlace, Range: rng(0, 100), Ref: h, Origin: block.OriginXCopy}
	caw := block.Request{Op: block.OpCompareWrite, Compare: [][]byte{make([]byte, 512)}, Data: [][]byte{bytes.Repeat([]byte{1}, 512)}}
	copied, cancelled := place, place
	submit(&copied)
	submit(&cancelled)
	locked := caw
	locked.Range = rng(50, 1)
	submit(&locked)
	s.held[0]() // both copies have read their data
	s.held[1]()
	w.Cancel(&cancelled)
	for cancelled.Status != block.Cancelled && r.clock.Step() {
	}
	cancelled = caw
	cancelled.Range = rng(200, 1)
	submit(&cancelled)
	r.clock.RunUntil(r.clock.Now() + 5e6)
	s.held = s.held[2:]
	s.answer()
	r.clock.Run()
	h.Release()
	for _, q := range []*block.Request{&copied, &cancelled, &locked} {
		if q.Status != block.OK {
			t.Errorf("%v of %v ended %v", q.Op, q.Range, q.Status)
		}
	}
	r.check()
}

// TestCompareAndWriteIsWhole: a COMPARE AND WRITE is one record of the log wherever it lies, so that it is done or not done
// for all who read beside it, end it, or start behind a loss of power.
func TestCompareAndWriteIsWhole(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	was := bytes.Repeat([]byte{1}, 2048*512)
	for _, n := range []uint64{1, 2, 7, 128, 511, 512} { // 512: 64 blocks of 4096 bytes
		for _, at := range []uint64{512 - n/2, 513 - n, 511, 512, 1000} {
			mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(0, 2048), Data: [][]byte{was}}))
			before := r.a.log.Seq()
			q := &block.Request{Op: block.OpCompareWrite, Range: rng(at, n), Compare: [][]byte{was[:n*512]}, Data: [][]byte{bytes.Repeat([]byte{2}, int(n)*512)}}
			mustOK(t, r.do(v, q))
			if records := r.a.log.Seq() - before; records != 1 {
				t.Errorf("%d sectors at %d are %d records", n, at, records)
			}
		}
	}
}

// TestCopyThatEndedWritesNothing: pieces of a data copy are reading when it is cancelled, or when its reference is given
// up. They write nothing, and the copy ends with them, whatever they would have waited for.
func TestCopyThatEndedWritesNothing(t *testing.T) {
	for _, cancelled := range []bool{true, false} {
		r, s := stuckRig(t, Options{})
		r.pool("p", PoolSpec{}, 64<<20)
		r.pool("q", PoolSpec{}, 64<<20)
		v, w := r.volume("v", "p", 16<<20, true), r.volume("w", "q", 16<<20, true)
		mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(0, 100), Data: [][]byte{bytes.Repeat([]byte{1}, 100*512)}}))
		r.clock.Run()
		s.stuck = true
		h := r.holdOf(v, rng(0, 100))
		q := &block.Request{Op: block.OpPlace, Range: rng(0, 100), Ref: h, Origin: block.OriginXCopy, Status: block.Gone, Done: func(*block.Request) {}}
		w.Submit([]*block.Request{q})
		if len(s.held) == 0 {
			t.Fatal("nothing reads")
		}
		want := block.NoSpace
		if cancelled {
			w.Cancel(q)
			want = block.Cancelled
		} else {
			r.a.arena.Refs.GiveUp(v.Pool().Alloc)
		}
		s.answer()
		r.clock.RunUntil(r.clock.Now() + 1e6)
		if q.Status != want {
			t.Errorf("cancelled %v: it ended %v", cancelled, q.Status)
		}
		r.clock.Run()
		got := make([]byte, 100*512)
		mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(0, 100), Data: [][]byte{got}}))
		if !bytes.Equal(got, make([]byte, len(got))) {
			t.Errorf("cancelled %v: the copy has written behind its end", cancelled)
		}
		h.Release()
		r.check()
	}
}

// Grains that only a copy holds count as free: to place them again takes them from what is available, and
// must not take what is reserved.
func TestPlaceOfHeldGrainsSparesReserved(t *testing.T) {
	r, p := spaceRig(t, 64)
	thick := r.volume("t", "p", 64*grainBytes, false)
	thin := r.volume("d", "p", 1<<30, true)
	for i := range uint64(64) {
		mustOK(t, r.do(thick, write(i*windowSectors, 8)))
	}
	h := r.holdOf(thick, rng(0, 10*windowSectors))
	mustOK(t, r.do(thick, unmap(0, rng(0, 10*windowSectors))))
	s := r.do(thin, &block.Request{Op: block.OpPlace, Range: rng(0, 10*windowSectors), Ref: h, Origin: block.OriginODX})
	h.Release()
	if s == block.OK {
		t.Errorf("the copy got the space of the thick volume: available %d", p.Alloc.Available())
	}
	r.check()
	mustOK(t, r.do(thick, write(0, 8)))
}
