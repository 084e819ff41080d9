package array

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestEntriesInSteps: counted in steps a map has as many entries as in one walk, whatever lies at the steps' ends.
func TestEntriesInSteps(t *testing.T) {
	const step = 1 << 16 * windowSectors
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	for range 20 {
		r := newRig(t, Options{}, false)
		r.pool("p", PoolSpec{}, 64<<30)
		v := r.volume("v", "p", 5*step*block.SectorSize, rnd.IntN(4) > 0)
		for range rnd.IntN(60) {
			n := 1 + rnd.Uint64N(1<<rnd.IntN(12))
			at := min(rnd.Uint64N(5)*step+rnd.Uint64N(step), 5*step-n)
			if rnd.IntN(2) == 0 { // over the end of a step
				at = (1+rnd.Uint64N(4))*step - rnd.Uint64N(n+1)
			}
			q := write(at, n)
			if rnd.IntN(4) == 0 {
				q = unmap(0, rng(at, n))
			}
			r.do(v, q) // it may lack space
		}
		var c EntryCount
		steps := 1
		for ; v.CountEntries(&c); steps++ {
		}
		if want := v.Stats().Entries; c.Entries != want || steps < 5 {
			t.Fatalf("%d entries in %d steps, and %d in one walk", c.Entries, steps, want)
		}
	}
}

// BenchmarkEntries counts the entries of a map that has a million, in one walk and in steps; of the latter it reports the longest.
func BenchmarkEntries(b *testing.B) {
	const entries = 1 << 20
	r := newRig(b, Options{CacheBytes: 256 << 20}, true)
	r.pool("p", PoolSpec{}, 1<<40)
	v := r.volume("v", "p", entries*windowSectors*block.SectorSize, true)
	for w := uint64(0); w < entries; w += 2 {
		r.do(v, write(w*windowSectors, windowSectors))
	}
	r.clock.RunUntil(r.clock.Now() + 1e9)
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if n := v.Stats().Entries; n < entries/2 {
				b.Fatalf("%d entries", n)
			}
		}
	})
	b.Run("steps", func(b *testing.B) {
		steps := 0
		for b.Loop() {
			var c EntryCount
			for steps++; v.CountEntries(&c); steps++ {
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
	})
}
