package metrics

// Growth is what h has more than was; see [Histogram.AddGrowth].
func (h *Histogram) Growth(was *Histogram) Histogram {
	var g Histogram
	g.AddGrowth(h, was)
	return g
}

// Quantile estimates the duration, in nanoseconds, that a share q of all observations does not exceed:
// interpolated within a fine bucket, whose bounds are a factor of the square root of two apart. ok is
// false where nothing was observed, and the estimate of what is beyond the last bound is that bound.
func (h *Histogram) Quantile(q float64) (ns int64, ok bool) {
	sum := uint64(0)
	for _, n := range h.Fine {
		sum += n
	}
	if sum == 0 {
		return 0, false
	}
	want := q * float64(sum)
	below := 0.0
	for i, n := range h.Fine {
		if n == 0 || below+float64(n) < want {
			below += float64(n)
			continue
		}
		low := int64(0)
		if i > 0 {
			low = fineBounds[i-1]
		}
		high := fineBounds[min(i, fineBuckets-2)]
		low = min(low, high)
		return low + int64(float64(high-low)*(want-below)/float64(n)), true
	}
	return fineBounds[fineBuckets-2], true
}
