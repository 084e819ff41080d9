package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// An estimate is within the bucket of the exact value: a factor of the square root of two.
func TestQuantile(t *testing.T) {
	seed := testkit.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		var h Histogram
		var all []int64
		for range 1 + r.IntN(2000) {
			ns := int64(10e3 * math.Exp(12*r.Float64()))
			h.Observe(ns)
			all = append(all, ns)
		}
		slices.Sort(all)
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			exact := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
			got, ok := h.Quantile(q)
			if f := float64(got) / float64(exact); !ok || f < 0.70 || f > 1.42 {
				t.Fatalf("the %v quantile of %d durations is %d, exactly %d", q, len(all), got, exact)
			}
		}
	}
	var h Histogram
	if _, ok := h.Quantile(0.99); ok {
		t.Error("a histogram of nothing has a quantile")
	}
	h.Observe(-1)
	h.Observe(math.MaxInt64)
	if ns, ok := h.Quantile(1); !ok || ns != fineBounds[fineBuckets-2] {
		t.Errorf("what is beyond all bounds is %d", ns)
	}
}

func TestGrowth(t *testing.T) {
	var was Histogram
	was.Observe(1e6)
	now := was
	now.Observe(3e6)
	g := now.Growth(&was)
	if g.Count != 1 || g.Sum != 3e6 {
		t.Errorf("the growth is %d of %d ns", g.Count, g.Sum)
	}
	if g = was.Growth(&now); g.Count != 1 || g.Sum != 1e6 {
		t.Errorf("a histogram that began anew grew by %d of %d ns", g.Count, g.Sum)
	}
}
