package fit

import (
	"math"
	"testing"
)

// TestBeginningDoesNotCount: a simulation of twice the length has the same latency where many wait, as a measurement of
// any length has.
func TestBeginningDoesNotCount(t *testing.T) {
	o := &Observation{Load: Load{IO: 4 << 10, Outstanding: 64}}
	var mean [2]float64
	for i := range mean {
		m := &Model{Profile: "all-flash", Seed: 1, Work: 1 + 3*float64(i)}
		params, err := m.Parameters([]string{"mdisks.default.parallel"})
		if err != nil {
			t.Fatal(err)
		}
		if mean[i], _, err = m.Latency(o, params, []float64{2}); err != nil {
			t.Fatal(err)
		}
	}
	if off := mean[0]/mean[1] - 1; math.Abs(off) > 0.008 {
		t.Errorf("%.3f ms in a simulation, %.3f ms in one of four times the length: %.1f %%", mean[0]*1e3, mean[1]*1e3, 100*off)
	}
}

// TestDeepLargeWrites: a load that has more in flight than a short simulation would write has a latency, which grows with
// what is in flight where the link is the bottleneck.
func TestDeepLargeWrites(t *testing.T) {
	m := &Model{Profile: "all-flash", Seed: 1}
	var mean [2]float64
	for i, depth := range []int{32, 128} {
		var err error
		if mean[i], err = m.simulate(&Observation{Load: Load{IO: 1 << 20, Outstanding: depth, Write: 1}, Writes: true}, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%.2f ms and %.2f ms", mean[0]*1e3, mean[1]*1e3)
	if grown := mean[1] / mean[0]; math.Abs(grown/4-1) > 0.1 {
		t.Errorf("%.2f ms with 32 in flight, %.2f ms with 128", mean[0]*1e3, mean[1]*1e3)
	}
}

// TestSmallNVRAM: latencies do not depend on how little of NVRAM the model sets up.
func TestSmallNVRAM(t *testing.T) {
	m := &Model{Profile: "all-flash", Seed: 1}
	for _, l := range []Load{{IO: 32 << 10, Outstanding: 16}, {IO: 4 << 10, Outstanding: 8, Write: 1}} {
		o := &Observation{Load: l, Writes: l.Write > 0}
		small, err := m.simulate(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.scenario(l)
		if err != nil {
			t.Fatal(err)
		}
		if s.CounterRows == 0 {
			t.Errorf("%s: the model sets up all of NVRAM", l)
		}
		s.CounterRows, s.LogBytes = 0, 0
		if whole, err := m.simulate(o, nil); err != nil || whole != small {
			t.Errorf("%s: %v with a small NVRAM, %v with a whole one, error %v", l, small, whole, err)
		}
	}
}
