package array

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestNobodyIsForgotten: whoever gives something back wakes who waits for it. Cases that are rare
// in the swarm have small caches, budgets and logs here, and every resource is waited for.
func TestNobodyIsForgotten(t *testing.T) {
	met := map[ticket.Resource]int{}
	seed := testkit.Seed(t)
	for n := range 6 {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		r := newRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10, MapBytes: uint64(n % 2), Policy: randomPolicy(rnd)}, false)
		r.a.ckpt.StepNodes = 1
		pol := r.a.Policy()
		pol.Budget = Budget{Percent: n % 2 * 25, HostPercent: n % 3 * 10, Pressure: true} // without pressure an offload may wait for ever
		// drawn, no run of some seeds has one that is small enough
		pol.CopyBytes = int64(n%3) << 19
		mustDo(t, r.a.SetPolicy(pol))
		mdisk := []MdiskSpec{{Name: "m", Size: 64 << 20, Bandwidth: 200 << 20}}
		r.pool("p", PoolSpec{CopyData: n%2 == 0, Mdisks: mdisk}, 0)
		r.pool("q", PoolSpec{Mdisks: mdisk}, 0)
		vols := []*Volume{r.volume("v", "p", 16<<20, true), r.volume("w", "p", 16<<20, false), r.volume("x", "q", 16<<20, true)}
		r.a.afterStep = func() {
			if what := r.a.engine.Forgotten(r.a.ckpt.Running()); what != "" {
				t.Fatalf("run %d, at %d ns: %s", n, r.clock.Now(), what)
			}
			if reads := r.a.arena.ReadInCalls(); reads > 0 {
				t.Fatalf("run %d, at %d ns: %d leaves were read by who should have waited for them", n, r.clock.Now(), reads)
			}
		}
		left := 0
		for step := range 600 {
			v := vols[rnd.IntN(3)]
			at, count := rnd.Uint64N(16<<11-4096), 1+rnd.Uint64N(4096)
			q := &block.Request{Op: block.OpWrite, Range: rng(at, count), Host: uint32(rnd.IntN(2)), Origin: []block.Origin{block.OriginHost, block.OriginXCopy}[rnd.IntN(2)]}
			switch rnd.IntN(9) {
			case 8: // edits that fill the log
				q.Op, q.Range = block.OpUnmap, block.Range{}
				for i := range uint64(400) {
					q.Ranges = append(q.Ranges, rng(at/2+i*8, 1+i%2))
				}
			case 0, 1, 2:
				q.Data = [][]byte{make([]byte, count*512)}
			case 3:
				q.Op = block.OpWriteSame
				if rnd.IntN(2) == 0 {
					q.Data = [][]byte{make([]byte, 512)}
				}
			case 4, 5:
				h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(at, count)}}
				if s := r.do(vols[rnd.IntN(3)], h); s != block.OK {
					t.Fatal(s)
				}
				q.Op, q.Ref, q.Origin, q.Range.Start = block.OpPlace, h.Ref, block.OriginXCopy, rnd.Uint64N(16<<11-4096)
			case 6:
				q.Op, q.Range.Count = block.OpCompareWrite, 8
				q.Compare, q.Data = [][]byte{make([]byte, 4096)}, [][]byte{make([]byte, 4096)}
			case 7:
				q.Op = block.OpUnmap
				q.Ranges, q.Range = []block.Range{rng(at, count), rng(at+8192%(16<<11-4096), 1)}, block.Range{}
			}
			batch := []*block.Request{q}
			if len(q.Ranges) == 400 { // enough of them to fill it
				for range 6 {
					more := *q
					batch = append(batch, &more)
				}
			}
			for _, q := range batch {
				left++
				q.Done = func(q *block.Request) {
					left--
					if q.Ref != nil {
						q.Ref.Release()
					}
				}
			}
			v.Submit(batch)
			for _, q := range batch {
				if r := waitsFor(q); r != ticket.Nothing {
					met[r]++
				}
			}
			for range rnd.IntN(6) {
				r.clock.Step()
			}
			switch rnd.IntN(40) {
			case 0:
				v.Cancel(q)
			case 1:
				r.a.checkpoint(true)
			case 2:
				v.Pool().SetWriteMode(WriteMode(rnd.IntN(3)))
			case 3:
				if step%3 == 0 {
					mustDo(t, r.a.SetPolicy(pol))
				}
			}
		}
		r.clock.RunUntil(r.clock.Now() + 120e9)
		if left != 0 {
			t.Errorf("run %d: %d commands never ended", n, left)
		}
		r.check()
	}
	t.Log(met)
	for _, want := range []ticket.Resource{ticket.Room, ticket.Budget, ticket.Log, ticket.CopyEngine} {
		if met[want] == 0 {
			t.Errorf("nobody waited for %v", want)
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
