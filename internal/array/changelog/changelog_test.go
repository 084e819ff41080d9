package changelog

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

func TestChangesAreThoseOfOtherPorts(t *testing.T) {
	v := &Log{}
	gen, since, list := v.For(1)
	if gen != since || len(list) != 0 {
		t.Fatalf("the first question: generation %d, since %d, %v", gen, since, list)
	}
	v.Ended(&block.Request{Op: block.OpWrite, Host: 1, Port: 1, Range: block.Range{Start: 0, Count: 8}}, block.OK)
	if g, _, list := v.For(1); g != gen || len(list) != 0 {
		t.Errorf("its own write is told: generation %d, %v", g, list)
	}
	v.Ended(&block.Request{Op: block.OpWrite, Host: 2, Port: 2, Range: block.Range{Start: 8, Count: 8}}, block.OK)
	v.Ended(&block.Request{Op: block.OpUnmap, Host: 2, Port: 2, Ranges: []block.Range{{Start: 16, Count: 8}, {Start: 100, Count: 1}}}, block.MediumWrite)
	v.Ended(&block.Request{Op: block.OpCompareWrite, Host: 2, Port: 2, Range: block.Range{Start: 50, Count: 1}}, block.Miscompare)
	v.Ended(&block.Request{Op: block.OpRead, Host: 2, Port: 2, Range: block.Range{Start: 60, Count: 1}}, block.OK)
	g, since, list := v.For(1)
	if since > gen || len(list) != 2 || list[0].Range != (block.Range{Start: 8, Count: 16}) || list[1].Range != (block.Range{Start: 100, Count: 1}) ||
		list[0].Host != 2 || list[0].Generation <= gen || list[1].Generation != g {
		t.Errorf("generation %d, since %d: %+v", g, since, list)
	}
	// What goes on where a told extent ends is a new one: the host has to hear of it alone.
	v.Ended(&block.Request{Op: block.OpWrite, Host: 3, Port: 3, Range: block.Range{Start: 101, Count: 1}}, block.OK)
	if _, _, list := v.For(1); len(list) != 3 || list[2].Generation <= g || list[2].Host != 3 {
		t.Errorf("after the answer: %+v", list)
	}
	// Another port of the same initiator may be another cache's.
	v.Ended(&block.Request{Op: block.OpWrite, Host: 1, Port: 9, Range: block.Range{Start: 200, Count: 1}}, block.OK)
	if _, _, list := v.For(1); len(list) != 4 || list[3].Host != 1 {
		t.Errorf("after the write of another port: %+v", list)
	}
}

// TestCutIsToldToAll: what a volume loses as it shrinks is nobody's own change.
func TestCutIsToldToAll(t *testing.T) {
	v := &Log{}
	v.Cut(block.Range{Start: 0, Count: 8}) // nobody has asked
	for port := range uint32(2) {
		v.For(port)
	}
	v.Cut(block.Range{Start: 100, Count: 28})
	for port := range uint32(2) {
		g, since, list := v.For(port)
		if len(list) != 1 || list[0].Range != (block.Range{Start: 100, Count: 28}) || list[0].Host != 0 || list[0].Generation != g || since >= g {
			t.Errorf("port %d: generation %d, since %d: %+v", port, g, since, list)
		}
	}
}

// TestChangesAreNeverForgotten: whatever hosts change, and however often a watcher asks, it hears
// of each change, or that it has to take everything for changed.
func TestChangesAreNeverForgotten(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := &Log{}
		known, _, _ := v.For(1)
		stale, whole := map[uint64]bool{}, 0
		for range 12 {
			for range r.IntN(4000) {
				q := block.Request{Op: block.OpWrite, Port: 1 + r.Uint32N(3), Range: block.Range{Start: r.Uint64N(1 << 18), Count: 1 + r.Uint64N(4)}}
				v.Ended(&q, block.OK)
				if q.Port != 1 {
					for s := range q.Range.Count {
						stale[q.Range.Start+s] = true
					}
				}
			}
			if r.IntN(20) == 0 { // others ask as well, so many that the first may be forgotten
				for h := range r.Uint32N(2 * MaxWatchers) {
					v.For(10 + h)
				}
			}
			gen, since, list := v.For(1)
			if len(list) > MaxChanges {
				t.Fatalf("seed %d: %d extents", seed, len(list))
			}
			if r.IntN(4) == 0 {
				continue // the answer is lost
			}
			if known < since || known > gen {
				clear(stale)
				whole++
			}
			for _, c := range list {
				if c.Generation > known {
					if c.Count < 64 {
						for s := range c.Count {
							delete(stale, c.Start+s)
						}
						continue
					}
					for s := range stale {
						if s >= c.Start && s < c.End() {
							delete(stale, s)
						}
					}
				}
			}
			known = gen
			if len(stale) > 0 {
				t.Fatalf("seed %d: %d sectors were changed by others, and the watcher never heard of it", seed, len(stale))
			}
		}
		if whole > 10 {
			t.Errorf("seed %d: the list was complete in few of 12 rounds only", seed)
		}
	}
}
