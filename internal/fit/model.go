package fit

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/size"
)

// Model predicts latencies: an array of one pool and one volume, by the simulator.
type Model struct {
	// Profile is what the parameters change; Mdisks is how many mdisks the pool has.
	Profile string
	Mdisks  int
	Seed    uint64
	// Work multiplies the I/Os of a simulation; 0 is 1.
	Work float64

	// instead, if there is one, predicts latencies in place of the simulator: of tests.
	instead func(o *Observation, adjust map[string]any) (float64, error)

	memo      sync.Map // latencies by what they depend on
	profiles  sync.Map // profiles by their settings
	taken     sync.Once
	template  *profile.Template // of the profiles, and why there is none
	untaken   error
	scenarios sync.Map // scenarios by their load
}

// Parameter is a setting of a profile that is fitted.
type Parameter struct {
	Key   string
	Start float64
	kind  kind
}

// kind says how a value is written.
type kind uint8

const (
	duration kind = iota // in nanoseconds
	octets
	count // a whole number; between some the model interpolates
)

// Usual are the parameters that are fitted unless others are named: a front end's latency, the link, the mdisks.
var Usual = []string{"cache.read", "cache.write", "link.bandwidth", "mdisks.default.base", "mdisks.default.bandwidth", "mdisks.default.parallel"}

// Parameters returns the parameters of these names with the profile's values as their beginning.
func (m *Model) Parameters(keys []string) ([]Parameter, error) {
	p, err := profile.Load(m.Profile)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	var out []Parameter
	for i, k := range keys {
		if slices.Contains(keys[:i], k) {
			return nil, fmt.Errorf("%s is named twice; name each setting once (--free)", k)
		}
		v, ok := at(tree, k)
		if !ok {
			return nil, fmt.Errorf("profile %s has no setting %q; see: arraysim profile %s", m.Profile, k, m.Profile)
		}
		x := Parameter{Key: k}
		switch v := v.(type) {
		case uint64:
			x.Start, x.kind = float64(v), count
		case string:
			if d, err := time.ParseDuration(v); err == nil {
				x.Start, x.kind = float64(d), duration
			} else if n, err := size.Parse(v); err == nil {
				x.Start, x.kind = float64(n), octets
			} else {
				return nil, fmt.Errorf("%s is %q, which is not a number that can be fitted", k, v)
			}
		default:
			return nil, fmt.Errorf("%s is not a number that can be fitted", k)
		}
		if strings.HasSuffix(k, "bandwidth") || strings.HasSuffix(k, "size") {
			x.kind = octets
		}
		if x.Start <= 0 {
			return nil, fmt.Errorf("%s is 0 in profile %s: begin with a profile in which it is more, or leave it out of --free", k, m.Profile)
		}
		out = append(out, x)
	}
	return out, nil
}

// at returns what a document has under a path of maps.
func at(tree any, key string) (any, bool) {
	for p := range strings.SplitSeq(key, ".") {
		n, ok := tree.(map[string]any)
		if !ok {
			return nil, false
		}
		if tree, ok = n[p]; !ok {
			return nil, false
		}
	}
	return tree, true
}

// Text writes a value as a profile has it.
func (x *Parameter) Text(v float64) string {
	switch x.kind {
	case duration:
		d := time.Duration(math.Round(v))
		if d > 10*time.Microsecond {
			d = d.Round(10 * time.Nanosecond)
		}
		return d.String()
	case octets:
		return fmt.Sprintf("%.4gMB", v/1e6)
	}
	return fmt.Sprint(max(1, int64(math.Round(v))))
}

// Setting is a value as a profile's setting.
func (x *Parameter) Setting(v float64) any {
	switch x.kind {
	case duration:
		return time.Duration(max(1, math.Round(v))).String()
	case octets:
		return uint64(max(1, math.Round(v)))
	}
	return max(1, int64(v))
}

const (
	modelIOs    = 1500
	modelVolume = 32 << 20
	modelCache  = 64 << 20
	// Most of a short simulation would be to set NVRAM up: loads without writes have a small cache and a small log, and all
	// of them room for the counters of some mdisks.
	readCache = 4 << 20
	readLog   = 256 << 10
	modelRows = 4096
)

// ios is how many I/Os a simulation of a load has: enough of each direction, and writes that the cache
// takes in, but several times what is in flight, of which the beginning does not count.
func (m *Model) ios(l Load) int64 {
	n := int64(modelIOs * max(1, m.Work))
	n = max(n, 20*int64(l.Outstanding))
	if l.Write > 0 {
		n = max(min(n, int64(modelCache/2/float64(l.IO)/l.Write)), 4*int64(l.Outstanding))
	}
	return max(n, 100)
}

// Latency returns the mean latency of an observation's I/Os in seconds, and the relative error that the
// simulation's length leaves.
func (m *Model) Latency(o *Observation, params []Parameter, values []float64) (mean, noise float64, err error) {
	at := slices.Clone(values) // a corner of whole numbers
	var open []int             // the numbers that are between two, the one that is farthest up first
	part := func(k int) float64 { return values[k] - math.Floor(values[k]) }
	for i := range values {
		if params[i].kind == count {
			if at[i] = max(1, math.Floor(values[i])); values[i] > at[i] && part(i) > 1e-9 {
				open = append(open, i)
			}
		}
	}
	slices.SortStableFunc(open, func(a, b int) int { return cmp.Compare(part(b), part(a)) })
	// From the lowest corner one number after the other goes up: these corners are a simplex around the values, on which
	// the logarithm is linear. So it is continuous, and right at every corner.
	sum, left := 0.0, 1.0
	for n := 0; ; n++ {
		weight := left
		if n < len(open) {
			weight -= part(open[n])
		}
		v, err := m.run(o, params, at)
		if err != nil {
			return 0, 0, err
		}
		sum += weight * math.Log(v)
		if n == len(open) {
			return math.Exp(sum), 0.5 / math.Sqrt(float64(m.ios(o.Load))), nil
		}
		left = part(open[n])
		at[open[n]]++
	}
}

// run carries a load out. Its length in bytes ends it.
func (m *Model) run(o *Observation, params []Parameter, values []float64) (float64, error) {
	adjust := map[string]any{}
	for i, x := range params {
		// What the load does not touch keeps its beginning, so that one simulation serves many values.
		if x.Key == "cache.write" && o.Write == 0 || x.Key == "cache.read" && o.Write == 1 {
			continue
		}
		adjust[x.Key] = x.Setting(values[i])
	}
	key := fmt.Sprintf("%#v %t %v", o.Load, o.Writes, adjust) // all digits of the load, which String rounds
	if v, ok := m.memo.Load(key); ok {
		return v.(float64), nil
	}
	predict := m.simulate
	if m.instead != nil {
		predict = m.instead
	}
	mean, err := predict(o, adjust)
	if err == nil {
		m.memo.Store(key, mean)
	}
	return mean, err
}

// fitted is the name of the profile in the model's scenarios.
const fitted = "fitted"

// profile returns the profile with some settings. Most simulations of a look share one.
func (m *Model) profile(adjust map[string]any) (*profile.Profile, error) {
	key := fmt.Sprint(adjust)
	if p, ok := m.profiles.Load(key); ok {
		return p.(*profile.Profile), nil
	}
	m.taken.Do(func() {
		p, err := profile.Load(m.Profile)
		if err == nil {
			m.template, err = p.Template()
		}
		m.untaken = err
	})
	if m.untaken != nil {
		return nil, m.untaken
	}
	p, err := m.template.With(adjust)
	if err == nil {
		m.profiles.Store(key, p)
	}
	return p, err
}

// scenario returns the scenario of a load, whose profile is still to be said.
func (m *Model) scenario(l Load) (*sim.Scenario, error) {
	if s, ok := m.scenarios.Load(l); ok {
		return s.(*sim.Scenario), nil
	}
	n := m.ios(l)
	job := map[string]any{"name": "load", "volume": "v", "write": l.Write, "io": l.IO, "bytes": uint64(n) * l.IO}
	if l.Rate > 0 {
		job["rate"] = l.Rate
	} else {
		job["outstanding"] = l.Outstanding
	}
	if l.Sequential {
		job["pattern"] = "sequential"
	}
	cache := modelCache
	if l.Write == 0 {
		cache = readCache
	}
	text, err := yaml.Marshal(map[string]any{
		"name": "fit", "seed": m.Seed,
		"arrays": []any{map[string]any{"name": "a", "profile": fitted, "cache": cache,
			"pools":   []any{map[string]any{"name": "p", "mdisks": []any{map[string]any{"count": max(m.Mdisks, 1), "size": "1GiB"}}}},
			"volumes": []any{map[string]any{"name": "v", "pool": "p", "size": modelVolume, "filled": modelVolume}}}},
		"hosts": []any{map[string]any{"name": "h"}},
		"jobs":  []any{job},
	})
	if err != nil {
		return nil, err
	}
	s, err := sim.Parse(text)
	if err != nil {
		return nil, err
	}
	if s.CounterRows = modelRows; l.Write == 0 {
		s.LogBytes = readLog
	}
	m.scenarios.Store(l, s)
	return s, nil
}

func (m *Model) simulate(o *Observation, adjust map[string]any) (float64, error) {
	p, err := m.profile(adjust)
	if err != nil {
		return 0, err
	}
	base, err := m.scenario(o.Load)
	if err != nil {
		return 0, err
	}
	own := *base
	s := &own
	s.Profiles = map[string]*profile.Profile{fitted: p}
	r, err := sim.New(s)
	if err != nil {
		return 0, err
	}
	ops, wait := 0, int64(0)
	r.Watch(func(io sim.IO) {
		// A measurement is long. What is issued all at once at its beginning finds no queue, and would count too much in a
		// simulation, which is short.
		if io.Write == o.Writes && (io.Issued > 0 || o.Rate > 0) {
			ops++
			wait += io.Done - io.Issued
		}
	})
	for now := int64(0); !r.Advance(now); now += int64(time.Second) {
		if now > 1000*int64(time.Hour) {
			return 0, fmt.Errorf("%s: the load does not end", o.Load)
		}
	}
	r.Finish()
	if err := r.Problem(); err != nil {
		return 0, fmt.Errorf("%s: %w", o.Load, err)
	}
	if ops == 0 {
		return 0, fmt.Errorf("%s: the simulation has no latency of it", o.Load)
	}
	return float64(wait) / float64(ops) / 1e9, nil
}

// latencies predicts all observations, on all processors.
func (m *Model) latencies(obs []Observation, params []Parameter, values []float64) (mean, noise []float64, err error) {
	mean, noise = make([]float64, len(obs)), make([]float64, len(obs))
	errs := make([]error, len(obs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(obs)); i = next.Add(1) - 1 {
				mean[i], noise[i], errs[i] = m.Latency(&obs[i], params, values)
			}
		})
	}
	wg.Wait()
	for _, e := range errs {
		if e != nil {
			return nil, nil, e
		}
	}
	return mean, noise, nil
}

// guess improves the beginning of the usual parameters by what the smallest loads say. split is the share of a
// small read's time that the front end takes; narrow begins with a link that the fastest load fills.
func guess(params []Parameter, obs []Observation, split float64, narrow bool) []float64 {
	v := make([]float64, len(params))
	for i := range params {
		v[i] = params[i].Start
	}
	set := func(key string, x float64) {
		for i := range params {
			if params[i].Key == key && x > 0 && !math.IsInf(x, 0) {
				v[i] = x
			}
		}
	}
	sorted := append([]Observation(nil), obs...)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].Mean < sorted[j].Mean })
	var first, write *Observation
	fastest, slope := 0.0, 0.0
	for i := range sorted {
		o := &sorted[i]
		switch {
		case o.Writes && write == nil:
			write = o
		case !o.Writes && first == nil:
			first = o
		}
		per := float64(o.Outstanding) / o.Mean
		if o.Rate > 0 {
			per = o.Rate
		}
		fastest = max(fastest, per*float64(o.IO))
	}
	if write != nil {
		set("cache.write", 0.7*write.Mean*1e9)
	}
	if first == nil {
		return v
	}
	set("cache.read", split*first.Mean*1e9)
	set("mdisks.default.base", (1-split)*first.Mean*1e9)
	servers := 1.0
	for i := range sorted {
		o := &sorted[i]
		if o.Writes {
			continue
		}
		if o.Outstanding == first.Outstanding && o.IO > first.IO && slope == 0 {
			slope = (o.Mean - first.Mean) / float64(o.IO-first.IO)
		}
		if o.Outstanding > 1 && o.IO == first.IO {
			servers = max(servers, float64(o.Outstanding)/o.Mean*first.Mean)
		}
	}
	set("mdisks.default.parallel", max(1, servers*(1-split)))
	if slope > 0 {
		set("mdisks.default.bandwidth", 1.5/slope)
	}
	if narrow {
		set("link.bandwidth", 1.02*fastest)
		set("mdisks.default.bandwidth", 4/math.Max(slope, 1e-12)*boolean(slope > 0))
		return v
	}
	set("link.bandwidth", max(1.2*fastest, 3/math.Max(slope, 1e-12)*boolean(slope > 0)))
	return v
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
