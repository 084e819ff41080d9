package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestReferencesAreBounded: who writes every other sector decides how much memory a reference takes. One that would take
// too much is refused, a host gets no more than its part, and what it gives back is there again.
func TestReferencesAreBounded(t *testing.T) {
	const sectors = 1 << 18 // each of them a run
	r := newRig(t, Options{}, true)
	r.pool("p", PoolSpec{}, 1<<30)
	v := r.volume("v", "p", 512<<20, true)
	mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 1<<20)}))
	for at := uint64(0); at < sectors+2000; at += 2000 {
		var every []block.Range
		for s := at; s < at+2000; s += 2 {
			every = append(every, rng(s, 1))
		}
		mustOK(t, r.do(v, unmap(0, every...)))
	}
	hold := func(host uint32, count uint64) (block.Ref, block.Status) {
		q := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, count)}, Host: host}
		s := r.do(v, q)
		return q.Ref, s
	}
	if ref, s := hold(1, sectors+1); s != block.Resources || ref != nil {
		t.Errorf("a reference of %d runs: %v, %v", sectors+1, ref, s)
	}
	var held []block.Ref
	for {
		ref, s := hold(1, sectors)
		if s != block.OK {
			break
		}
		held = append(held, ref)
	}
	if len(held) != 4 {
		t.Errorf("one host got %d references of %d runs", len(held), sectors)
	}
	if _, s := hold(1, 1); s != block.Resources {
		t.Errorf("and one more: %v", s)
	}
	other, s := hold(2, sectors)
	mustOK(t, s)
	held[0].Release()
	again, s := hold(1, sectors)
	mustOK(t, s)
	for _, ref := range append(held[1:], other, again) {
		ref.Release()
	}
	r.check()
}
