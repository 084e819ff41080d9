package fit

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	cases = flag.Int("cases", 1, "profiles to make and to find again")
	seed  = flag.Uint64("seed", 5, "of the profiles; 0 is one of the clock")
)

// loads are what a made array is measured with.
func loads() []Load {
	var out []Load
	for _, io := range []uint64{4 << 10, 32 << 10, 256 << 10} {
		for _, depth := range []int{1, 4, 16, 64} {
			out = append(out, Load{IO: io, Outstanding: depth})
		}
	}
	for _, io := range []uint64{4 << 10, 64 << 10} {
		for _, depth := range []int{1, 8} {
			out = append(out, Load{IO: io, Outstanding: depth, Write: 1})
		}
	}
	return out
}

// measure is a measurement of an array with other parameters, by another seed and with more I/Os. Its means are off by what
// so many I/Os with that spread leave: loads in a closed loop hardly depend on the seed, and without it every interval
// would hold.
func measure(t *testing.T, params []Parameter, values []float64, seed uint64) []Observation {
	t.Helper()
	m := &Model{Profile: "all-flash", Seed: seed, Work: 2}
	var obs []Observation
	for _, l := range loads() {
		obs = append(obs, Observation{Load: l, Name: l.String(), Writes: l.Write > 0, Spread: 0.5, N: m.ios(l)})
	}
	mean, _, err := m.latencies(obs, params, values)
	if err != nil {
		t.Fatal(err)
	}
	src := rand.New(rand.NewPCG(seed, 1))
	for i := range obs {
		o := &obs[i]
		o.Mean = mean[i] * math.Exp(o.Spread/math.Sqrt(float64(o.N))*src.NormFloat64())
	}
	return obs
}

// TestRecovery: the parameters with which arrays were made are all inside the intervals, which hold them
// together with 95 %.
func TestRecovery(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-cases %d -seed %d", *cases, *seed)
	inside, known, all, width := 0, 0, 0, 0.0
	for c := range *cases {
		src := rand.New(rand.NewPCG(*seed, uint64(c)))
		logUniform := func(from, to float64) float64 { return from * math.Exp(src.Float64()*math.Log(to/from)) }
		m := &Model{Profile: "all-flash", Seed: 1}
		params, err := m.Parameters(Usual)
		if err != nil {
			t.Fatal(err)
		}
		truth := []float64{logUniform(20e3, 500e3), logUniform(30e3, 500e3), logUniform(100e6, 3200e6), logUniform(50e3, 8e6), logUniform(30e6, 1000e6), math.Round(logUniform(2, 40))}
		obs := measure(t, params, truth, *seed+uint64(c)+1000)
		f, err := Run(context.Background(), obs, Options{Model: m, HoldOut: 0.2})
		if err != nil {
			t.Fatalf("case %d: %v", c, err)
		}
		good := true
		for i, e := range f.Estimates {
			all++
			if !e.Known() {
				continue
			}
			known++
			width += math.Log(e.High / e.Low)
			if truth[i] < e.Low || truth[i] > e.High {
				good = false
				t.Logf("case %d: %s is %s, the interval %s to %s (scale %.2f)", c, e.Key, e.Text(truth[i]), e.Text(e.Low), e.Text(e.High), f.Scale)
			}
		}
		if good {
			inside++
		}
		median, worst, n := f.Errors(true)
		t.Logf("case %d: good %v, scale %.2f, %d looks, %d held out: median %.1f %%, worst %.1f %%, confused %v", c, good, f.Scale, f.Looks, n, 100*median, 100*worst, f.Confused)
		if median > 0.05 {
			t.Errorf("case %d: what was held out is %.1f %% off in the median", c, 100*median)
		}
	}
	t.Logf("%d of %d cases have all true parameters inside; %d of %d parameters are determined, their intervals span a factor of %.2f in the mean",
		inside, *cases, known, all, math.Exp(width/float64(max(known, 1))))
	// Of a few cases, one may be outside by chance.
	least := int(math.Ceil(0.95 * float64(*cases)))
	if *cases < 50 {
		least = max(1, *cases*8/10)
	}
	if inside < least {
		t.Errorf("true parameters are inside in %d of %d cases, want %d", inside, *cases, least)
	}
	if 10*known < 6*all {
		t.Errorf("only %d of %d parameters are determined: the intervals say nothing", known, all)
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
