package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
)

// TestRepeat: what differs between measurements of one load is the measurement's, and what differs between loads is not.
func TestRepeat(t *testing.T) {
	load := func(depth int) Load { return Load{IO: 4096, Outstanding: depth} }
	var obs []Observation
	for depth := 1; depth <= 4; depth++ {
		obs = append(obs, Observation{Load: load(depth), Mean: float64(depth) * 1e-3})
	}
	if d, n := repeat(obs); n != 0 || !math.IsNaN(d) {
		t.Errorf("nothing was measured again: %v of %d loads", d, n)
	}
	// The logarithms of two of them are 0.2 apart, so that their deviation is 0.2 over the root of 2; those of one are the same.
	obs = append(obs, Observation{Load: load(2), Mean: 2e-3 * math.Exp(0.2)}, Observation{Load: load(3), Mean: 3e-3 * math.Exp(-0.2)}, Observation{Load: load(4), Mean: 4e-3})
	if d, n := repeat(obs); n != 3 || math.Abs(d-math.Sqrt(0.04/3)) > 1e-9 {
		t.Errorf("%v of %d loads", d, n)
	}
	obs = append(obs, Observation{Load: load(1), Writes: true, Mean: 9})
	if d, n := repeat(obs); n != 3 || math.Abs(d-math.Sqrt(0.04/3)) > 1e-9 {
		t.Errorf("writes of a load are its reads measured again: %v of %d loads", d, n)
	}
}

// TestRepeatsAreNoise: an array whose latencies are 25 % up or down from one measurement to the next, as that of a disk
// with other users, is found within the intervals if it was measured again, and no residual then says that the model
// lacks something. Without repeats it does.
func TestRepeatsAreNoise(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	free := []string{"cache.read", "mdisks.default.base"}
	m := &Model{Profile: "all-flash", Seed: 1}
	params, err := m.Parameters(free)
	if err != nil {
		t.Fatal(err)
	}
	truth := []float64{60e3, 900e3}
	src := rand.New(rand.NewPCG(1, 2))
	var once, all []Observation
	for round := range 4 {
		for _, io := range []uint64{4 << 10, 64 << 10} {
			for _, depth := range []int{1, 8, 64} {
				l := Load{IO: io, Outstanding: depth}
				o := Observation{Load: l, Name: l.String(), Spread: 0.5, N: 5000}
				mean, _, err := m.Latency(&o, params, truth)
				if err != nil {
					t.Fatal(err)
				}
				o.Mean = mean * math.Exp(0.25*src.NormFloat64())
				if all = append(all, o); round == 0 {
					once = append(once, o)
				}
			}
		}
	}
	scales := map[bool]float64{}
	for again, obs := range map[bool][]Observation{false: once, true: all} {
		f, err := Run(context.Background(), obs, Options{Model: m, Free: free})
		if err != nil {
			t.Fatal(err)
		}
		scales[again] = f.Scale
		if !again {
			continue
		}
		for i, e := range f.Estimates {
			if e.Known() && (truth[i] < e.Low || truth[i] > e.High) {
				t.Errorf("%s is %s, the interval %s to %s", e.Key, e.Text(truth[i]), e.Text(e.Low), e.Text(e.High))
			}
		}
		if f.Repeated != 6 || f.Repeat < 0.15 || f.Repeat > 0.35 {
			t.Errorf("%d loads differ by %.2f", f.Repeated, f.Repeat)
		}
	}
	if scales[true] > 2 || scales[false] < 3 {
		t.Errorf("residuals over noise: %.1f of what was measured again, %.1f of what was not", scales[true], scales[false])
	}
}
