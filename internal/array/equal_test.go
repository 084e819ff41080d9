package array

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// equals runs commands that all write what is there already, over each other: so any order of them
// leaves the same, every comparison holds, and nobody but those who are cancelled may end with
// anything but OK.
type equals struct {
	*rig
	rnd   *rand.Rand
	seed  uint64
	v     *Volume
	twin  block.Ref // all of another pool's volume of the same contents
	data  []byte
	under []*equal
	saw   map[string]int
}

// equal is a command under way.
type equal struct {
	q         *block.Request
	cancelled bool
	ended     bool
}

// equalSectors is small: commands are to meet.
const equalSectors = 3 * pieceSectors

func newEquals(t *testing.T, seed uint64, saw map[string]int) *equals {
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := &equals{rig: newRig(t, Options{CacheBytes: 2 << 20, LogBytes: 64 << 10, UUID: 1}, false), rnd: rnd, seed: seed, saw: saw}
	chaos := &blocktest.Chaos{Store: r.store, Clock: r.clock, Rand: rnd, MaxDelay: 3e6, Inline: rnd.IntN(2) * 70}
	r.opt.Store = chaos
	a, err := Open(r.opt)
	if err != nil {
		t.Fatal(err)
	}
	r.a = a
	p := r.pool("p", PoolSpec{CopyData: rnd.IntN(2) == 0}, 64<<20)
	r.pool("q", PoolSpec{}, 64<<20)
	r.v = r.volume("v", "p", equalSectors*512, rnd.IntN(2) == 0)
	w := r.volume("w", []string{"p", "q"}[rnd.IntN(2)], equalSectors*512, true)
	r.data = make([]byte, equalSectors*512)
	for i := range r.data {
		r.data[i] = byte(i>>9 + i)
	}
	for _, v := range []*Volume{r.v, w} {
		mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(0, equalSectors), Data: [][]byte{bytes.Clone(r.data)}}))
	}
	r.twin = r.holdOf(w, rng(0, equalSectors))
	p.SetWriteMode([]WriteMode{WriteThrough, WriteThrough, FlushThrough, WriteFast}[rnd.IntN(4)])
	pol := r.a.Policy()
	pol.CopyPieces, pol.CopyReads, pol.CopyBytes = 1+rnd.IntN(3), rnd.IntN(2), int64(rnd.IntN(2))<<18
	if err := r.a.SetPolicy(pol); err != nil {
		t.Fatal(err)
	}
	return r
}

// launch submits a command, mostly where others are.
func (r *equals) launch() {
	at := r.rnd.Uint64N(3) * 8
	g := rng(at, 8)
	if r.rnd.IntN(4) == 0 {
		g.Count = 1 + r.rnd.Uint64N(equalSectors-at)
	}
	part := func() [][]byte { return [][]byte{bytes.Clone(r.data[g.Start*512 : g.End()*512])} }
	q := &block.Request{Range: g}
	switch k := r.rnd.IntN(12); {
	case k < 6:
		g.Count = 8
		*q = block.Request{Op: block.OpCompareWrite, Origin: block.OriginCAW, Range: g, Compare: part(), Data: part()}
	case k == 6:
		g.Count = min(g.Count, 64)
		*q = block.Request{Op: block.OpOrWrite, Origin: block.OriginCAW, Range: g, Data: part()}
	case k < 9:
		*q = block.Request{Op: block.OpWrite, Range: g, Data: part()}
		if r.rnd.IntN(6) == 0 {
			q.Flags = block.FUA
		}
	case k < 11:
		*q = block.Request{Op: block.OpPlace, Origin: block.OriginXCopy, Range: g, Ref: r.twin, RefOffset: g.Start}
	default:
		*q = block.Request{Op: block.OpRead, Range: g, Data: [][]byte{make([]byte, g.Bytes())}}
	}
	e := &equal{q: q}
	q.Done = func(q *block.Request) {
		if e.ended {
			r.t.Fatalf("-seed %d: %v of %v was answered twice", r.seed, q.Op, q.Range)
		}
		e.ended = true
		if q.Status != block.OK && !(q.Status == block.Cancelled && e.cancelled) {
			r.t.Fatalf("-seed %d: %v of %v, cancelled: %v, ended %v", r.seed, q.Op, q.Range, e.cancelled, q.Status)
		}
		if q.Op == block.OpRead && q.Status == block.OK && !bytes.Equal(q.Data[0], r.data[q.Range.Start*512:q.Range.End()*512]) {
			r.t.Fatalf("-seed %d: %v reads something else", r.seed, q.Range)
		}
	}
	r.under = append(r.under, e)
	r.v.Submit([]*block.Request{q})
}

// cancel withdraws a command, mostly one whose answer the mdisks keep while another one waits for
// its lock.
func (r *equals) cancel() {
	settles := func(e *equal) bool {
		return e.q.Op == block.OpCompareWrite && request.Doing(e.q) == "settling" && slices.ContainsFunc(r.under, func(e *equal) bool { return waitsFor(e.q) == ticket.Lock })
	}
	var some []*equal
	for _, e := range r.under {
		if settles(e) {
			some = append(some, e)
		}
	}
	if len(some) > 0 {
		r.saw["a comparison that settled was cancelled while others waited for its lock"]++
	} else if some = r.under; len(some) == 0 {
		return
	}
	e := some[r.rnd.IntN(len(some))]
	e.cancelled = true
	r.v.Cancel(e.q)
}

// land forgets what has ended.
func (r *equals) land() {
	left := r.under[:0]
	for _, e := range r.under {
		if !e.ended {
			left = append(left, e)
		}
	}
	r.under = left
}

// TestEqualCommandsOverEachOther: comparisons, writes and copies that change nothing meet on the
// same sectors, and some are cancelled wherever they are.
func TestEqualCommandsOverEachOther(t *testing.T) {
	base, n := testkit.Seed(t), uint64(60)
	if testing.Short() {
		n = 20
	}
	saw := map[string]int{}
	for seed := base; seed < base+n; seed++ {
		r := newEquals(t, seed, saw)
		for range 400 {
			switch k := r.rnd.IntN(10); {
			case k < 4 && len(r.under) < 12:
				r.launch()
			case k == 4:
				r.cancel()
			default:
				for range 1 + r.rnd.IntN(3) {
					r.clock.Step()
				}
				r.land()
			}
		}
		r.clock.RunUntil(r.clock.Now() + 60e9)
		if r.land(); len(r.under) > 0 {
			t.Fatalf("seed %d: %d commands do not end, the first is %v of %v", seed, len(r.under), r.under[0].q.Op, r.under[0].q.Range)
		}
		got := make([]byte, len(r.data))
		mustOK(t, r.do(r.v, &block.Request{Op: block.OpRead, Range: rng(0, equalSectors), Data: [][]byte{got}}))
		if !bytes.Equal(got, r.data) {
			t.Fatalf("seed %d: the contents have changed", seed)
		}
		r.twin.Release()
		r.check()
	}
	if len(saw) == 0 {
		t.Error("the case that the test is for never came up")
	}
	t.Log(saw)
}
