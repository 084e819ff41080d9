package report

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/sim"
)

// Scenarios of small arrays that the firmware itself runs, in virtual time. What was done
// undercover is known from the origin label, which findings do not read.

// truthKinds are the kinds of scenarios that findings are judged by.
var truthKinds = []string{"host-only", "offload", "both", "noisy", "5-minute samples", "missing samples", "wraps", "resets"}

// truth is a scenario with what its counters were and what was done.
type truth struct {
	kind     string
	data     *Data
	culprits map[string]float64 // bytes that were admitted of offloads, by volume
	what     string             // the scenario, for who must look at it
}

// truthCase is what a seed gives.
type truthCase struct {
	yaml     strings.Builder
	rng      *rand.Rand
	interval int64 // seconds
	until    int64
	noise    float64
	missing  float64
	wrap     float64
	resetAt  int64
}

// newTruthCase writes the scenario of a seed; offload says whether data is copied below the hosts.
//
// Arrays are small, and hosts write in pieces of 64 to 512 KiB, so that a run costs a
// part of a second; what matters (load against drain, copies against the partition,
// commands outstanding against its cap) is spread as widely as in the field.
func newTruthCase(seed uint64, kind string, offload bool) *truthCase {
	c := &truthCase{rng: rand.New(rand.NewPCG(seed, 71)), interval: 10, until: 360}
	r := c.rng
	put := func(format string, args ...any) { fmt.Fprintf(&c.yaml, format+"\n", args...) }
	between := func(a, b float64) float64 { return a + (b-a)*r.Float64() }
	if kind == "5-minute samples" {
		c.interval, c.until = 300, 2400
	}
	disks, pools := 1+r.IntN(2), 1+r.IntN(4)
	drain := 75e6 * float64(disks) // of this profile's disks, at these sizes
	load := drain * between(0.05, 0.35)
	clone := between(1.5, 4)
	if kind == "5-minute samples" {
		load, clone = drain*between(0.03, 0.12), between(3, 9)
	}
	n := 4 + r.IntN(16)
	put("name: truth\nprofile: svc\nuntil: %ds\nseed: %d\narrays:\n  - name: a\n    cache: %dMiB", c.until+1, seed+1, int(between(512, 3072)))
	if !offload && r.IntN(3) == 0 {
		put("    copy: reference") // offloads that move nothing are no offence
	}
	put("    pools:\n      - {name: pool, mdisks: [{kind: hdd, count: %d, size: 800GiB}]}", disks)
	for i := range pools - 1 {
		put("      - {name: other%d, mdisks: [{kind: hdd, size: 50GiB}]}", i)
	}
	put("    volumes:\n      - {name: v, count: %d, group: g, pool: pool, size: 16GiB, filled: 16GiB}", n)
	put("hosts:\n  - {name: h1}\n  - {name: h2, vaai: {MaxHWTransferSize: %dMiB}}", []int{4, 16}[r.IntN(2)])
	put("jobs:")
	put("  - {name: active, volume: g, rate: %.1f, total: true, lognormal: 1, sizes: [{size: 64KiB, weight: 2}, {size: 256KiB, weight: 3}, {size: 512KiB, weight: 1}], write: %.2f, span: 4GiB, hot: {reads: 0.7, span: 4MiB}}",
		load/250e3, between(0.5, 0.95))
	vol := func(i int) string { return fmt.Sprintf("v%0*d", len(fmt.Sprint(n-1)), i) }
	if kind == "host-only" || kind == "both" || r.IntN(3) == 0 {
		// Hosts that write more than the back end takes, for a while.
		burst := between(5, 20)
		if kind == "5-minute samples" {
			burst = between(20, 60)
		}
		put("  - {name: burst, host: h1, volume: %s, bandwidth: %dMB, outstanding: %d, io: 256KiB, write: 1, pattern: %s, span: 8GiB, burst: {for: %.0fs, every: %.0fs}}",
			vol(r.IntN(n)), int(drain*between(0.8, 2.5)/1e6), 16<<r.IntN(4), []string{"random", "sequential"}[r.IntN(2)], burst, float64(c.until)*between(0.2, 0.6))
	}
	switch r.IntN(6) {
	case 0: // a host that copies by itself: seen by everybody
		put("  - {name: hostcopy, kind: clone, offload: false, host: h1, at: %.0fs, volume: %s, to: %s, size: 1GiB, outstanding: 16}", float64(c.until)*between(0.1, 0.4), vol(0), vol(n-1))
	case 1: // zeros move nothing
		put("  - {name: zero, kind: zero, host: h2, at: %.0fs, volume: %s, size: 16GiB}", float64(c.until)*between(0.1, 0.7), vol(n-1))
	case 2: // writes to one place, which the cache holds back
		put("  - {name: hot, host: h1, volume: %s, rate: 60, io: 256KiB, write: 1, span: 8MiB}", vol(r.IntN(n)))
	}
	at := int64(float64(c.until) * between(0.15, 0.5))
	switch {
	case offload:
		for i := range 1 + r.IntN(2) {
			from := r.IntN(n)
			to := (from + 1 + r.IntN(n-1)) % n
			put("  - {name: clone%d, kind: clone, host: h2, at: %ds, volume: %s, to: %s, size: %dMiB, outstanding: %d}",
				i, at+int64(i)*c.until/4, vol(from), vol(to), int(clone*1024), 4<<r.IntN(4))
		}
	case strings.Contains(c.yaml.String(), "copy: reference"):
		put("  - {name: clone, kind: clone, host: h2, at: %ds, volume: %s, to: %s, size: 8GiB, outstanding: 8}", at, vol(0), vol(n-1))
	}
	switch r.IntN(8) {
	case 0:
		put("faults:\n  - {at: %ds, kind: mdisk-slow, pool: pool, mdisk: 0, factor: 4}\n  - {at: %ds, kind: mdisk-slow, pool: pool, mdisk: 0, factor: 1}", c.until/2, c.until/2+c.until/10)
	case 1:
		put("faults:\n  - {at: %ds, kind: node-loss}\n  - {at: %ds, kind: node-return}", c.until*2/3, c.until*3/4)
	}
	switch kind {
	case "noisy":
		c.noise = between(0.02, 0.06)
	case "missing samples":
		c.missing = 0.25
	case "wraps":
		c.wrap = []float64{1 << 32, 1 << 64}[r.IntN(2)]
	case "resets":
		c.resetAt = int64(float64(c.until) * between(0.25, 0.75))
	}
	return c
}

// run carries the scenario out. Its counters are what a SAN Volume Controller publishes:
// blocks of 512 bytes and milliseconds; with all that goes wrong with such in the field.
func (c *truthCase) run(kind string) (*truth, error) {
	s, err := sim.Parse([]byte(c.yaml.String()))
	if err != nil {
		return nil, err
	}
	r, err := sim.New(s)
	if err != nil {
		return nil, err
	}
	t := &truth{kind: kind, culprits: map[string]float64{}, what: c.yaml.String()}
	var all, exact []*reading
	var snap metrics.Snapshot
	size := 0.0
	blur := newBlur(c)
	r.Every(c.interval*1e9, func(now int64) {
		snap.Take(now, &sync.Mutex{}, r)
		x, cache := readingOf(&snap)
		size = cache
		exact = append(exact, x)
		snap.Each(func(f *metrics.Family, l []string, v float64, _ *metrics.Histogram) {
			if f == metrics.Undercover && v > 0 { // pool, volume, origin
				t.culprits[l[1]] = v
			}
		})
	})
	r.Advance((c.until + 1) * 1e9)
	r.Finish()
	complete(exact)
	for _, x := range exact {
		blur.apply(x)
		if c.rng.Float64() >= c.missing {
			all = append(all, x)
		}
	}
	t.data = series(kind, all, units{bytes: 512, time: 1e-3})
	t.data.CacheSize = size
	return t, nil
}

// Whatever the seed: the scenario that it gives is one that parses, and its pool has
// room for all of its volumes, full of their own data.
func TestGeneratedScenariosFit(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	first := seedOf(t)
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first)
	n := uint64(800)
	if raceEnabled {
		n = 100
	}
	for i := range n {
		kind := truthKinds[i%uint64(len(truthKinds))]
		c := newTruthCase(first+i*37, kind, i%3 != 0)
		s, err := sim.Parse([]byte(c.yaml.String()))
		if err != nil {
			t.Fatalf("%s, seed %d: %v\n%s", kind, first+i*37, err, c.yaml.String())
		}
		room := map[string]int64{}
		for _, p := range s.Arrays[0].Pools {
			for _, m := range p.Mdisks {
				room[p.Name] += int64(m.Size) * int64(max(m.Count, 1)) * 9 / 10 // some is not for data
			}
		}
		for _, v := range s.Arrays[0].Volumes {
			if room[v.Pool] -= int64(v.Size) * int64(max(v.Count, 1)); room[v.Pool] < 0 {
				t.Errorf("%s, seed %d: the volumes of pool %s are %d bytes too large", kind, first+i*37, v.Pool, -room[v.Pool])
			}
		}
	}
}

// blur makes readings what arrays publish: whole blocks and milliseconds, noise, counters
// that wrap, and those that begin anew.
type blur struct {
	c     *truthCase
	was   map[string]float64 // as the array counts
	shown map[string]float64 // as it publishes
}

func newBlur(c *truthCase) *blur {
	return &blur{c: c, was: map[string]float64{}, shown: map[string]float64{}}
}

func (b *blur) apply(r *reading) {
	for _, name := range slices.Sorted(maps.Keys(r.volumes)) {
		v := r.volumes[name]
		count := func(key string, x *float64, unit float64, noisy bool) {
			key = name + key
			grown := (*x - b.was[key]) / unit
			b.was[key] = *x
			if noisy {
				grown *= max(1+b.c.noise*b.c.rng.NormFloat64(), 0)
			}
			b.shown[key] += grown
			out := math.Floor(b.shown[key])
			switch {
			case b.c.resetAt > 0 && r.time >= b.c.resetAt*1e9:
				if _, ok := b.was[key+" reset"]; !ok {
					b.was[key+" reset"] = out
				}
				out -= b.was[key+" reset"]
			case b.c.wrap > 0:
				// Not far from the end, where counters of 64 bits are known to 2 KiB only.
				out = math.Mod(out+b.c.wrap-400e3, b.c.wrap)
			}
			*x = out
		}
		for d := range 2 {
			count("o"+directions[d], &v.ops[d], 1, false)
			count("b"+directions[d], &v.bytes[d], 512, true)
			count("t"+directions[d], &v.time[d], 1e-3, false)
		}
		count("l", &v.lower, 512, true)
		v.held = max(v.held*(1+b.c.noise*b.c.rng.NormFloat64()), 0)
		v.described, v.states, v.labelled = nil, nil, nil
	}
	for _, p := range r.pools {
		// There is a mean and a highest fullness in percent, no integral; back-end bytes are of mdisks.
		p.back, p.byOrigin = [2]float64{p.back[0] / 512, p.back[1] / 512}, nil
	}
}
