// Package stats has the few statistics that findings, figures of runs and intervals of replicates share,
// so that a quantile means the same everywhere.
//
// A quantile is by nearest rank: the smallest value that a share q of all values does not exceed. It is a value that
// occurred, and the convention of gonum's Empirical, which tests compare with. The functions are here and not gonum's for what gonum's stat brings: linear algebra,
// four seconds of compiling that `make run` would wait for (docs/decisions).
package stats

import (
	"math"
	"slices"
)

// Quantile returns the smallest value that a share q, 0 to 1, of the known values does not exceed. NaN is a value that
// is not known; the quantile of nothing is not known either.
func Quantile(values []float64, q float64) float64 {
	known := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) {
			known = append(known, v)
		}
	}
	if len(known) == 0 {
		return math.NaN()
	}
	slices.Sort(known)
	return known[int(rank(q, float64(len(known))))-1]
}

// rank is the number of a quantile among n sorted values, from 1 to n.
func rank(q, n float64) float64 {
	// A share that is a whole number of values but for rounding is that number.
	return min(max(math.Ceil(q*n-1e-9), 1), n)
}

// Histogram is what Percentile needs of HdrHistogram's.
type Histogram interface {
	TotalCount() int64
	ValueAtQuantile(percent float64) int64
}

// Percentile returns the percentile p, 0 to 100, of a histogram's values, in their unit and to its digits; 0 if it has none. It
// is Quantile's: the histogram alone takes the rank that is next to p percent, which may be one less.
func Percentile(h Histogram, p float64) int64 {
	n := float64(h.TotalCount())
	if n == 0 {
		return 0
	}
	return h.ValueAtQuantile(rank(p/100, n) / n * 100)
}

// Correlation is Pearson's coefficient of the pairs of which both are known; 0 where there are fewer than
// three, or one side never changes.
func Correlation(a, b []float64) float64 {
	n, ma, mb := 0.0, 0.0, 0.0
	var saa, sbb, sab float64
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if math.IsNaN(x) || math.IsNaN(y) {
			continue
		}
		// Welford's updates: sums of squares of large values would lose what is small.
		n++
		dx, dy := x-ma, y-mb
		ma, mb = ma+dx/n, mb+dy/n
		saa, sbb, sab = saa+dx*(x-ma), sbb+dy*(y-mb), sab+dx*(y-mb)
	}
	if n < 3 || saa <= 0 || sbb <= 0 {
		return 0
	}
	return sab / math.Sqrt(saa*sbb)
}

// Interval returns the mean of values and half the width of its 95 % interval by Student's t, NaN with
// fewer than two values.
func Interval(values []float64) (mean, half float64) {
	n, squares := 0.0, 0.0
	for _, v := range values {
		// Welford's updates: of values that are all the same the mean is that value, and the interval nothing.
		n++
		d := v - mean
		mean += d / n
		squares += d * (v - mean)
	}
	if n < 2 {
		return mean, math.NaN()
	}
	return mean, student(len(values)-1) * math.Sqrt(squares/(n-1)/n)
}

// student is the 97.5 % quantile of Student's t for so many degrees of freedom: to 10 by the tables, beyond
// by its expansion in 1/n, which is right to 0.0002 there.
func student(n int) float64 {
	table := [...]float64{12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281}
	if n <= len(table) {
		return table[n-1]
	}
	const z = 1.959964
	d := float64(n)
	return z + (z*z*z+z)/(4*d) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*d*d) + (3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*d*d*d)
}
