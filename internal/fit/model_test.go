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
