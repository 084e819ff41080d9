package report

import (
	"math"
	"math/rand/v2"
	"testing"
)

// hostWritten is a volume of 60 samples of 10 s that hosts write at 10 MB/s: part of it is
// replaced in the cache before it is destaged, a copy adds to it from sample copyFrom on, and flows
// and the gauge of what it holds are off by normal errors of these standard deviations.
func hostWritten(r *rand.Rand, replaced, held float64, copyFrom int, flowError, gaugeError float64) *Volume {
	const n, rate = 60, 10e6
	gauge := func() float64 { return held * (1 + gaugeError*r.NormFloat64()) }
	v := &Volume{Name: "v", Pool: "p", Span: make(Series, n), Held: make(Series, n), Lower: make(Series, n), Held0: gauge()}
	v.Host[write] = make(Series, n)
	for i := range n {
		v.Span[i] = 10
		v.Host[write][i] = rate * (1 + flowError*r.NormFloat64())
		v.Lower[i] = rate * (1 - replaced) * (1 + flowError*r.NormFloat64())
		if i >= copyFrom {
			v.Lower[i] += 20 * rate
		}
		v.Held[i] = gauge()
	}
	return v
}

// Noise is what counters and gauges are off by, and nothing else is taken for it: neither writes
// that replace one another in the cache nor the copy that is sought.
func TestNoise(t *testing.T) {
	const never = 1000
	for _, c := range []struct {
		name                string
		replaced, held      float64
		copyFrom            int
		flowError, gaugeErr float64
		flow, gauge         [2]float64 // bounds: five medians are 3.4 standard deviations
	}{
		{"exact counters", 0, 1e6, never, 0, 0, [2]float64{leastNoise, leastNoise}, [2]float64{0, 0}},
		{"nine writes in ten are replaced", 0.9, 1e6, never, 0, 0, [2]float64{leastNoise, leastNoise}, [2]float64{0, 0}},
		{"a copy for most of the time", 0, 1e6, 15, 0, 0, [2]float64{leastNoise, leastNoise}, [2]float64{0, 0}},
		{"counters that are 4 % off", 0.2, 1e6, never, 0.04, 0, [2]float64{0.07, 0.25}, [2]float64{0.07, 0.25}},
		// The gauge's error is 50 MB, five times what hosts write in a second: it says nothing of the counters.
		{"a gauge that is 5 % off, of a lot", 0.9, 1e9, never, 0, 0.05, [2]float64{leastNoise, 0.3}, [2]float64{0.08, 0.3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 1))
			v := hostWritten(r, c.replaced, c.held, c.copyFrom, c.flowError, c.gaugeErr)
			d := &Data{Times: make([]int64, len(v.Span)), Volumes: []*Volume{v}}
			for i := range d.Times {
				d.Times[i] = int64(i+1) * 10e9
			}
			got := d.noise()
			within := func(x float64, b [2]float64) bool { return x >= b[0]-1e-9 && x <= b[1]+1e-9 }
			if !within(got.flow, c.flow) || !within(got.gauge, c.gauge) || math.IsNaN(got.flow+got.gauge) {
				t.Errorf("noise is %+v; flow should be in %v, gauge in %v", got, c.flow, c.gauge)
			}
		})
	}
}
