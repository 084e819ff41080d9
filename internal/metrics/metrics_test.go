package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// durations are all bounds with their neighbours, the extremes, and others.
func durations() []int64 {
	out := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	for _, bounds := range [][]int64{LatencyBounds[:], fineBounds[:]} {
		for _, b := range bounds {
			out = append(out, b-1, b, b+1)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		out = append(out, int64(r.Uint64()>>(1+r.IntN(63))))
	}
	return out
}

func TestObserveFindsTheBuckets(t *testing.T) {
	for _, ns := range durations() {
		var h Histogram
		h.Observe(ns)
		coarse, _ := slices.BinarySearch(LatencyBounds[:], ns)
		fine, _ := slices.BinarySearch(fineBounds[:fineBuckets-1], ns)
		if h.Buckets[coarse] != 1 || h.Fine[fine] != 1 || h.Count != 1 || h.Sum != ns {
			t.Fatalf("%d ns are not in buckets %d and %d: %v", ns, coarse, fine, h)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	r := rand.New(rand.NewPCG(1, 2))
	var ns [4096]int64
	for i := range ns {
		ns[i] = int64(100e3 + r.Float64()*400e3)
	}
	for i := range b.N {
		h.Observe(ns[i%len(ns)])
	}
}
