package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

// TestStatusInSteps: GET LBA STATUS of a large volume looks at so much of the map and no more. Who asks on hears of all.
func TestStatusInSteps(t *testing.T) {
	const w, node, all = windowSectors, 256 * windowSectors, 8192 * windowSectors
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", all*512, true)
	mustOK(t, r.do(v, write(0, w)))
	place := func(at, n uint64) {
		h := r.holdOf(v, rng(0, n))
		mustOK(t, r.do(v, &block.Request{Op: block.OpPlace, Range: rng(at, n), Ref: h, Origin: block.OriginXCopy}))
		h.Release()
	}
	for n := uint64(w); n < node/2; n *= 2 {
		place(n, n)
	}
	place(node/2, node/2-w) // the last window of each node has nothing
	for n := uint64(node); n < all; n *= 2 {
		place(n, n)
	}
	answers, at := 0, uint64(0)
	for ; at < all; answers++ {
		q := &block.Request{Op: block.OpStatus, Range: rng(at, 0), Extents: make([]block.Extent, 0, 256)}
		mustOK(t, r.do(v, q))
		from := at
		for _, x := range q.Extents {
			hole := at%node == node-w
			if want := map[bool]block.State{true: block.Unmapped, false: block.Data}[hole]; x.Start != at || x.State != want || at < all && hole && x.Count != w {
				t.Fatalf("at %d: %v is %v", at, x.Range, x.State)
			}
			at = x.End()
		}
		if at == from || at-from > pool.StatusSlots*w {
			t.Fatalf("an answer covers %d windows", (at-from)/w)
		}
	}
	if answers < 2 {
		t.Errorf("%d answers tell it all", answers)
	}
}
