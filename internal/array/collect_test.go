package array

import (
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// TestStartThatCollects: a start that collects garbage before it serves tells how far it is. It can be ended at each step, and the
// next start does all of it.
func TestStartThatCollects(t *testing.T) {
	r := rigOver(t, Options{CacheBytes: 4 << 20}, func(s block.Store) block.Store { return s })
	r.pool("p", PoolSpec{}, 512<<20)
	r.volume("thick", "p", 64<<20, false) // which is promised space
	v := r.volume("v", "p", 16*node.LeafSectors*512, true)
	for leaf := range uint64(16) {
		mustOK(t, r.do(v, stamped(rng(leaf*node.LeafSectors, 300), leaf<<20)))
	}
	r.evict()
	mustOK(t, r.do(v, unmap(0, rng(0, 16*node.LeafSectors))))
	stop := errors.New("stop")
	ends, all := 0, 0
	for after := 1; ; after++ {
		steps, last := 0, 0
		r.opt.Progress = func(p Progress) error {
			if p.Step == "" || p.Pool == "" && p.Collected != 0 || p.Collected < 0 {
				t.Errorf("%+v", p)
			}
			if p.Pool != "" {
				if p.Collected < last {
					t.Errorf("%d pages are collected after %d", p.Collected, last)
				}
				last = p.Collected
			}
			if steps++; steps == after {
				return stop
			}
			return nil
		}
		err := r.restart()
		if err == nil {
			all = last
			break
		}
		if ends++; !errors.Is(err, stop) {
			t.Fatalf("it ends with %v", err)
		}
		if steps != after {
			t.Errorf("%d steps after it was stopped at %d", steps-after, after)
		}
	}
	if ends < 16 || all < 12 {
		t.Errorf("it was stopped at %d steps, and collected %d pages", ends, all)
	}
	r.check()
}
