package wcache

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// TestRounds: behind a flush, pages that are dirty ask for the next one when they are a round, and
// before only where somebody waits or all of it is to go; without rounds the first one asks.
func TestRounds(t *testing.T) {
	const round = 8
	for _, x := range []struct {
		name           string
		round, pages   int
		waits, drained bool
		want           bool
	}{
		{name: "no rounds", pages: 1, want: true},
		{name: "less than a round", round: round, pages: round - 1},
		{name: "a round", round: round, pages: round, want: true},
		{name: "somebody waits", round: round, pages: 1, waits: true, want: true},
		{name: "a drain", round: round, pages: 1, drained: true, want: true},
	} {
		r := newRig(t, rand.New(rand.NewPCG(1, 1)), true, Policy{Round: x.round})
		r.alwaysFull()
		r.flush()
		for n := range x.pages {
			r.write(0, key(0, 0, 2*n), 0, layout.PageSectors, block.OriginHost, Fast)
		}
		r.c.Drain(x.drained)
		if r.send(0, x.waits) {
			t.Errorf("%s: a page was sent before it was flushed", x.name)
		}
		if r.fl.Poll(false); r.fl.Running() != x.want {
			t.Errorf("%s: %d pages ask for a flush: %v", x.name, x.pages, !x.want)
		}
	}
}

// TestSmallDestages: an mdisk has destages under way as the depth says, and more as long as they are
// of few pages.
func TestSmallDestages(t *testing.T) {
	for _, pages := range []int{0, 1, 5} {
		r := newRig(t, rand.New(rand.NewPCG(1, 1)), true, Policy{DestageDepth: 2, DestagePages: pages})
		r.alwaysFull()
		for n := range 8 {
			r.write(0, key(0, 0, 2*n), 0, layout.PageSectors, block.OriginHost, Fast)
		}
		r.flush()
		for r.send(0, false) {
		}
		if n := r.parts[0].InFlight(0); n != max(2, pages) {
			t.Errorf("of up to %d pages %d destages are under way", pages, n)
		}
	}
}

// alwaysFull makes all partitions full enough to destage.
func (r *rig) alwaysFull() {
	r.c.destageStart = 0
	r.c.SetPolicy(r.c.policy)
}
