package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// random is n values that a seed gives, some of them equal.
func random(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = math.Floor(1000 * r.ExpFloat64())
	}
	return x
}

func TestQuantileIsGonums(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := random(r, 1+r.IntN(40))
		sorted := slices.Sorted(slices.Values(x))
		for _, q := range []float64{0, 0.05, 0.33, 0.5, 0.9, 0.95, 1, r.Float64()} {
			if got, want := Quantile(x, q), stat.Quantile(q, stat.Empirical, sorted, nil); got != want {
				t.Fatalf("seed %d: quantile %g of %v is %g, gonum's %g", seed, q, sorted, got, want)
			}
		}
	}
	// What is not known is left out, and nothing gives nothing.
	nan := math.NaN()
	if got := Quantile([]float64{nan, 3, nan, 1, 2}, 0.5); got != 2 {
		t.Errorf("the median of 1, 2, 3 and what is not known is %g", got)
	}
	if got := Quantile([]float64{nan}, 0.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %g", got)
	}
}

// A percentile of a histogram of latency is the same quantile, whatever the number of values.
func TestPercentileIsTheQuantile(t *testing.T) {
	for n := range 300 {
		x := make([]float64, n)
		h := hdrhistogram.New(1, 100000, 5)
		for i := range x {
			x[i] = float64(i + 1)
			if err := h.RecordValue(int64(i + 1)); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range []float64{0, 1, 50, 90, 99, 99.9, 100} {
			want := Quantile(x, p/100)
			if n == 0 {
				want = 0
			}
			if got := float64(Percentile(h, p)); got != want {
				t.Errorf("percentile %g of %d values is %g, the quantile %g", p, n, got, want)
			}
		}
	}
	h := hdrhistogram.New(1, 100, 3)
	for v := range int64(16) {
		if err := h.RecordValue(v + 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := Percentile(h, 90); got != 15 {
		t.Errorf("the 90th percentile of 1 to 16 is %d", got)
	}
}

func TestCorrelationIsGonums(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 3 + r.IntN(40)
		x, y := random(r, n), random(r, n)
		offset := math.Pow(10, float64(r.IntN(12))) // as bytes of a cache are
		for i := range y {
			x[i] += offset
			y[i] += offset + x[i]*r.Float64()
		}
		if got, want := Correlation(x, y), stat.Correlation(x, y, nil); math.Abs(got-want) > 1e-6 {
			t.Fatalf("seed %d: correlation is %g, gonum's %g", seed, got, want)
		}
	}
	for _, x := range [][]float64{{1, 2}, {1, 1, 1}, {1, math.NaN(), 2}} {
		if got := Correlation(x, []float64{3, 4, 5}); got != 0 {
			t.Errorf("%v has the correlation %g", x, got)
		}
	}
}

func TestIntervalIsStudents(t *testing.T) {
	for n := 1; n < 200; n++ {
		if got, want := student(n), (distuv.StudentsT{Sigma: 1, Nu: float64(n)}).Quantile(0.975); math.Abs(got-want) > 0.0002 {
			t.Errorf("%d degrees of freedom: %g, gonum's %g", n, got, want)
		}
	}
	x := random(rand.New(rand.NewPCG(4, 1)), 20)
	mean, half := Interval(x)
	m, s := stat.MeanStdDev(x, nil)
	if want := student(19) * s / math.Sqrt(20); math.Abs(mean-m) > 1e-9*m || math.Abs(half-want) > 1e-9*want {
		t.Errorf("%g +- %g, want %g +- %g", mean, half, m, want)
	}
	if _, half := Interval(x[:1]); !math.IsNaN(half) {
		t.Errorf("one value has an interval of %g", half)
	}
	for _, v := range []float64{0.1, 2048, 131072, 2097152, 4294967296} {
		if mean, half := Interval(slices.Repeat([]float64{v}, 20)); mean != v || half != 0 {
			t.Errorf("20 times %g is %g +- %g", v, mean, half)
		}
	}
}
