package fit

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// only returns a fitter of some settings of all-flash, with a formula in place of the simulator.
func only(t *testing.T, free []string, obs []Observation, instead func(*Observation, map[string]any) (float64, error)) *fitter {
	t.Helper()
	m := &Model{Profile: "all-flash", Seed: 1, instead: instead}
	params, err := m.Parameters(free)
	if err != nil {
		t.Fatal(err)
	}
	return &fitter{ctx: context.Background(), opt: &Options{Model: m, Level: 0.95}, params: params, obs: obs}
}

// TestIntervalHasWhatIsDeeper: where each walk leads to a better fit, and the search gives up to start there again, the last
// interval has the best that was seen all the same.
func TestIntervalHasWhatIsDeeper(t *testing.T) {
	const from = 1e5
	var obs []Observation
	for depth := range 4 {
		obs = append(obs, Observation{Load: Load{IO: 4096, Outstanding: 1 + depth}, Mean: 1, Spread: 0.01, N: 1e6})
	}
	best := from
	// The residuals lie on a circle that becomes smaller, and turn on it so fast that no derivative says so.
	f := only(t, []string{"mdisks.default.base"}, obs, func(o *Observation, adjust map[string]any) (float64, error) {
		d, err := time.ParseDuration(adjust["mdisks.default.base"].(string))
		if err != nil {
			return 0, err
		}
		best = max(best, float64(d))
		z := math.Log(float64(d) / from)
		return math.Exp(3 * math.Exp(-z/2) * math.Cos(10*z+math.Pi/2*float64(o.Outstanding))), nil
	})
	p, err := f.look([]float64{math.Log(from)})
	if err != nil {
		t.Fatal(err)
	}
	out, end, err := f.estimate([]*point{p})
	if err != nil {
		t.Fatal(err)
	}
	e := out.Estimates[0]
	t.Logf("from %g the search comes to %g, and sees %g; the interval is %g to %g", from, end.values()[0], best, e.Low, e.High)
	if end.values()[0] < 1.5*from {
		t.Fatal("the search does not start again: nothing is shown")
	}
	if e.Known() && e.High < 0.95*best {
		t.Errorf("%s is said to be at most %s, and at %s the fit is better", e.Key, e.Text(e.High), e.Text(best))
	}
}

// TestMostServersAreNoEdge: a number of servers that the data do not bound upwards is not determined. The most that the search
// tries is no figure of the array.
func TestMostServersAreNoEdge(t *testing.T) {
	var obs []Observation
	for i := range 3 {
		obs = append(obs, Observation{Load: Load{IO: 4096 << i, Outstanding: 64}, Mean: 1.006e-3, Spread: 0.5, N: 100000})
	}
	f := only(t, []string{"mdisks.default.parallel"}, obs, func(o *Observation, adjust map[string]any) (float64, error) {
		return 1e-3 * max(1, float64(o.Outstanding)/float64(adjust["mdisks.default.parallel"].(int64))), nil
	})
	p, err := f.look([]float64{math.Log(64 / 1.006)})
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := f.estimate([]*point{p})
	if err != nil {
		t.Fatal(err)
	}
	if e := out.Estimates[0]; e.Known() {
		t.Errorf("%s is said to be between %s and %s", e.Key, e.Text(e.Low), e.Text(e.High))
	}
}

// TestWidenedTooFar: intervals of two fits that are as good, and so far apart that one of both says nothing, leave a parameter
// that is not determined, as one such interval does.
func TestWidenedTooFar(t *testing.T) {
	of := func(low, high float64) *Fit {
		return &Fit{Estimates: []Estimate{{Parameter: Parameter{Key: "cache.read"}, Low: low, High: high, Error: 0.1}}}
	}
	out := of(1, 2)
	out.widen(of(40, 80), 2.9)
	if e := out.Estimates[0]; e.Known() || len(out.Confused) != 1 {
		t.Errorf("it is said to be known between %g and %g, not told apart are %v", e.Low, e.High, out.Confused)
	}
	out = of(1, 2)
	out.widen(of(1.5, 3), 2.9)
	if e := out.Estimates[0]; e.Low != 1 || e.High != 3 {
		t.Errorf("it is between %g and %g, not 1 and 3", e.Low, e.High)
	}
}

// TestWhatIsFree: a fit of no setting, or of one twice, is an error that says so.
func TestWhatIsFree(t *testing.T) {
	obs := []Observation{{Load: Load{IO: 4096, Outstanding: 1}, Mean: 1e-3}, {Load: Load{IO: 4096, Outstanding: 2}, Mean: 1e-3}, {Load: Load{IO: 4096, Outstanding: 3}, Mean: 1e-3}}
	for _, free := range [][]string{{}, {"cache.read", "cache.read"}} {
		_, err := Run(context.Background(), obs, Options{Model: &Model{Profile: "all-flash", Seed: 1, instead: ofSome}, Free: free})
		if err == nil || !strings.Contains(err.Error(), "--free") {
			t.Errorf("%q: %v", free, err)
		}
	}
}

// ofSome is queueing where not all of the usual settings are fitted.
func ofSome(o *Observation, adjust map[string]any) (float64, error) {
	all := map[string]any{"cache.read": "100us", "cache.write": "100us", "link.bandwidth": uint64(1e9), "mdisks.default.base": "200us",
		"mdisks.default.bandwidth": uint64(5e8), "mdisks.default.parallel": int64(8)}
	maps.Copy(all, adjust)
	return queueing(o, all)
}

// anything is what a user may give: some settings, and few or many latencies of some loads, measured once or again, with any
// noise.
func anything(t *testing.T, rnd *rand.Rand) (free []string, obs []Observation) {
	t.Helper()
	truth := made(rnd.Uint64(), 1)
	adjust := map[string]any{}
	m := &Model{Profile: "all-flash"}
	params, err := m.Parameters(Usual)
	if err != nil {
		t.Fatal(err)
	}
	for i := range params {
		adjust[params[i].Key] = params[i].Setting(truth[i])
	}
	free = slices.Clone(Usual)
	rnd.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	free = free[:1+rnd.IntN(1+rnd.IntN(len(free)))]
	noise := []float64{0, 0.01, 0.1, 1}[rnd.IntN(4)]
	few := rnd.IntN(8) == 0 // in flight, for all servers to have work
	if few {
		free, noise = []string{"mdisks.default.parallel"}, 0.005
	}
	for n := len(free) + 1 + rnd.IntN(12); len(obs) < n; {
		l := Load{IO: 4096 << rnd.IntN(3+rnd.IntN(6)), Outstanding: 1 << rnd.IntN(1+rnd.IntN(8)), Write: float64(rnd.IntN(4) / 3)}
		if few {
			l.Outstanding, l.Write = 16, 0
		}
		for range 1 + rnd.IntN(4)/3*(1+rnd.IntN(3)) {
			o := Observation{Load: l, Name: l.String(), Writes: l.Write > 0, Spread: float64(rnd.IntN(2)) / 2, N: rnd.Int64N(5000)}
			if o.Mean, err = queueing(&o, adjust); err != nil {
				t.Fatal(err)
			}
			o.Mean *= math.Exp(noise * rnd.NormFloat64())
			if rnd.IntN(8) == 0 && len(obs) > 0 {
				o.Mean = obs[0].Mean // alike, to the last digit
			}
			obs = append(obs, o)
		}
	}
	return free, obs
}

// TestFitOfAnything: whatever is measured, a fit ends, and what it says of each setting can be said.
func TestFitOfAnything(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	t.Logf("-cases %d -seed %d -first %d", *cases, *seed, *first)
	fits, known := 0, 0
	for c := range 80 * *cases {
		n := uint64(*first + c)
		rnd := rand.New(rand.NewPCG(*seed, n))
		free, obs := anything(t, rnd)
		hold := float64(rnd.IntN(2)) / 5
		m := &Model{Profile: "all-flash", Seed: 1, instead: ofSome}
		f, err := Run(context.Background(), obs, Options{Model: m, Free: free, HoldOut: hold})
		if err != nil {
			if train, _ := split(obs, hold); len(train) > len(free) {
				t.Errorf("case %d: %v", n, err)
			}
			continue
		}
		fits++
		said := slices.Concat(f.Confused...)
		train, _ := split(obs, hold)
		q := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(train) - len(free))}.Quantile(1 - 0.05/2/float64(len(free)))
		for _, e := range f.Estimates {
			switch {
			case e.Known() && e.kind != count && math.Log(e.High/e.Low)/2/q > 1.001*vague:
				t.Errorf("case %d: %s is said to be between %g and %g, which says nothing", n, e.Key, e.Low, e.High)
			case e.kind == count && e.High >= mostServers:
				t.Errorf("case %d: %s is between %g and the most that the search tries", n, e.Key, e.Low)
			case !(e.Value >= 1) || math.IsInf(e.Value, 0):
				t.Errorf("case %d: %s is %g", n, e.Key, e.Value)
			case !e.Known():
				if !slices.Contains(said, e.Key) {
					t.Errorf("case %d: %s is not determined, and not among what is not told apart: %v", n, e.Key, f.Confused)
				}
			case !(e.Low > 0 && e.Low <= e.High && e.Error <= vague && e.High/e.Low < math.Exp(2*vagueWidth)):
				t.Errorf("case %d: %s is between %g and %g, with an error of %g", n, e.Key, e.Low, e.High, e.Error)
			default:
				known++
			}
		}
		for _, c := range f.Confused {
			if len(c) == 0 || slices.ContainsFunc(c, func(k string) bool { return !slices.Contains(free, k) }) {
				t.Errorf("case %d: not told apart are %q", n, c)
			}
		}
		if len(f.Residuals) != len(obs) || !(f.Scale >= 0) || math.IsInf(f.Scale, 0) {
			t.Errorf("case %d: %d residuals of %d, scale %g", n, len(f.Residuals), len(obs), f.Scale)
		}
		if t.Failed() {
			return
		}
	}
	if t.Logf("%d fits determine %d settings", fits, known); fits < 20 || known < 20 {
		t.Error("the test shows too little")
	}
}
