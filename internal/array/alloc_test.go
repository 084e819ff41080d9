package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestReadAllocatesNothing: a read that the mdisks answer takes no memory from the heap.
func TestReadAllocatesNothing(t *testing.T) {
	r := newRig(t, Options{}, true)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 32<<20, true)
	submit := func(q *block.Request) {
		ended := false
		q.Done = func(*block.Request) { ended = true }
		v.Submit([]*block.Request{q})
		r.clock.Run()
		if !ended || q.Status != block.OK {
			t.Fatalf("a request ended: %v, with %v", ended, q.Status)
		}
	}
	submit(&block.Request{Op: block.OpWrite, Range: rng(0, 64), Data: [][]byte{make([]byte, 32<<10)}})
	r.a.Drain(func() {})
	r.clock.Run()
	if r.a.Dirty() != 0 {
		t.Fatal("something is dirty, and would be read from the cache")
	}
	q := &block.Request{Op: block.OpRead, Data: [][]byte{make([]byte, 4096)}, Done: func(*block.Request) {}}
	reqs := []*block.Request{q}
	if n := testing.AllocsPerRun(1000, func() {
		q.Range = rng(8, 8)
		v.Submit(reqs)
		r.clock.Run()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
