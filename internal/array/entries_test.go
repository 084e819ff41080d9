package array

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
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
		n, steps := countEntries(r, v)
		if want := entriesInOne(v); n != want || steps < 5 {
			t.Fatalf("%d entries in %d steps, and %d in one walk", n, steps, want)
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
			if n := entriesInOne(v); n < entries/2 {
				b.Fatalf("%d entries", n)
			}
		}
	})
	b.Run("steps", func(b *testing.B) {
		steps := 0
		for b.Loop() {
			_, n := countEntries(r, v)
			steps += n
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
	})
}

// countEntries counts the entries of a map that nothing else happens to, and the steps that it takes.
func countEntries(r *rig, v *Volume) (n, steps int) {
	ended := false
	v.CountEntries(func(m int, _ error) { n, ended = m, true })
	for steps = 1; !ended && r.clock.Step(); steps++ {
	}
	return n, steps
}

// entriesInOne counts the entries of a map in one walk.
func entriesInOne(v *Volume) (n int) {
	var last extent.Run
	v.Map.Walk(rng(0, v.Spec.Sectors), func(x extent.Run) bool {
		if last.Count == 0 || last.State != x.State || x.State == block.Data && last.Phys+last.Count != x.Phys {
			n++
		}
		last = x
		return true
	})
	return n
}
