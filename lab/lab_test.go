package lab

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/lab/plug"
)

// file is what small says, as somebody would write it.
const file = `
name: small
seed: 7
until: 3s
arrays:
  - name: a
    profile: svc
    cache: 16MiB
    copy: data
    adjust: {policy.admission: fair}
    pools: [{name: p, mdisks: [{kind: ssd, count: 2, size: 4GiB}]}]
    volumes: [{name: v, pool: p, size: 256MiB, filled: 64MiB}, {name: w, pool: p, size: 256MiB, thick: true}]
hosts:
  - name: h
    vaai: {HardwareAcceleratedMove: true, MaxHWTransferSize: 2MiB}
    cache: [{volume: v, policy: write_back, size: 16MiB, eviction: s3-fifo, threshold: 500, path: 20us}]
    flash: {kind: sata}
jobs:
  - {name: load, volume: v, io: 4KiB, write: 0.3, outstanding: 4, think: 1ms, hot: {reads: 0.8, span: 8MiB}, changes: [{at: 1s, rate: 0}]}
  - {name: copy, kind: clone, volume: v, to: w, size: 64MiB, at: 500ms}
`

func small() Scenario {
	yes := true
	return Scenario{
		Name: "small", Seed: 7, Until: 3 * time.Second,
		Arrays: []Array{{Name: "a", Profile: "svc", Cache: 16 * MiB, Copy: "data", Adjust: map[string]any{"policy.admission": "fair"},
			Pools:   []Pool{{Name: "p", Mdisks: []Mdisk{{Kind: "ssd", Count: 2, Size: 4 * GiB}}}},
			Volumes: []Volume{{Name: "v", Pool: "p", Size: 256 * MiB, Filled: 64 * MiB}, {Name: "w", Pool: "p", Size: 256 * MiB, Thick: true}}}},
		Hosts: []Host{{Name: "h", VAAI: VAAI{Move: &yes, MaxTransfer: 2 * MiB}, Flash: Flash{Kind: "sata"},
			Cache: []Cache{{Volume: "v", Policy: "write_back", Size: 16 * MiB, Eviction: "s3-fifo", Threshold: 500, Path: 20 * time.Microsecond}}}},
		Jobs: []Job{{Name: "load", Volume: "v", IO: 4 * KiB, Write: 0.3, Outstanding: 4, Think: time.Millisecond, Hot: &Hot{Reads: 0.8, Span: 8 * MiB}, Changes: []Change{{At: time.Second}}},
			{Name: "copy", Kind: "clone", Volume: "v", To: "w", Size: 64 * MiB, At: 500 * time.Millisecond}},
	}
}

func run(t *testing.T, s Scenario) *Result {
	t.Helper()
	r, err := s.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSameBytes: a program and a file that say the same leave the same bytes, and another seed leaves others.
func TestSameBytes(t *testing.T) {
	ours := run(t, small()).Files()
	r, err := RunYAML(context.Background(), []byte(file), plug.Policies{})
	if err != nil {
		t.Fatal(err)
	}
	theirs := r.Files()
	if len(ours) != len(theirs) || len(ours) < 6 {
		t.Fatalf("%d files, of YAML %d", len(ours), len(theirs))
	}
	for name, b := range ours {
		if !bytes.Equal(b, theirs[name]) {
			t.Errorf("%s differs", name)
		}
	}
	s := small()
	if s.Seed = 8; bytes.Equal(run(t, s).Files()["hostcache.csv"], ours["hostcache.csv"]) {
		t.Error("another seed leaves the same")
	}
}

// leftOut are the keys of scenario files that a Scenario has not: cases, faults, expectations, the jobs that
// need them, and nodes.
var leftOut = []string{"source", "shows", "faults", "long", "proof", "cases", "expect", "table", "policy of arrays", "off of jobs", "trace of jobs", "nodes of arrays", "node of hosts"}

// TestKeys: a Scenario has the keys of a scenario file, no more and no fewer but for those that are left out.
func TestKeys(t *testing.T) {
	for _, row := range []struct {
		what       string
		ours, file any
	}{{"", Scenario{}, sim.Scenario{}}, {"arrays", Array{}, sim.ArraySpec{}}, {"pools", Pool{}, sim.PoolSpec{}}, {"mdisks", Mdisk{}, sim.MdiskSpec{}},
		{"volumes", Volume{}, sim.VolumeSpec{}}, {"hosts", Host{}, sim.HostSpec{}}, {"vaai", VAAI{}, sim.VAAI{}}, {"mover", Mover{}, sim.Mover{}},
		{"cache", Cache{}, sim.CacheSpec{}}, {"flash", Flash{}, sim.FlashSpec{}}, {"peers", Peer{}, sim.PeerSpec{}}, {"jobs", Job{}, sim.JobSpec{}},
		{"burst", Burst{}, sim.Burst{}}, {"changes", Change{}, sim.Change{}}, {"sizes", IOSize{}, sim.IOSize{}}, {"hot", Hot{}, sim.HotSpec{}}} {
		ours, theirs := keys(reflect.TypeOf(row.ours)), keys(reflect.TypeOf(row.file))
		if row.what == "jobs" {
			theirs = slices.DeleteFunc(theirs, func(k string) bool { return slices.Contains(keys(reflect.TypeFor[sim.Transactions]()), k) })
		}
		for _, k := range theirs {
			name := k
			if row.what != "" {
				name += " of " + row.what
			}
			if !slices.Contains(ours, k) && !slices.Contains(leftOut, name) {
				t.Errorf("%s is not in package lab", name)
			}
		}
		for _, k := range ours {
			if !slices.Contains(theirs, k) {
				t.Errorf("%s of %s is in no scenario file", k, row.what)
			}
		}
	}
}

func keys(typ reflect.Type) (out []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, how, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case how == "inline":
			out = append(out, keys(f.Type)...)
		case key != "-" && f.IsExported():
			out = append(out, key)
		}
	}
	return out
}

// TestUnknownIsNoZero: a figure that there is not is an error, in whatever way it is asked for.
func TestUnknownIsNoZero(t *testing.T) {
	r := run(t, small())
	for _, name := range []string{"job.load.iops", "job.copy.seconds", "cache.v.hit_percent", "volume.v.lower_mb_s", "pool.p.fullness_max", "metric.host_requests_total"} {
		if v, err := r.Value(name); err != nil && !strings.HasPrefix(name, "metric") {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	for _, name := range []string{"", "job", "job.lod.iops", "job.load.iop", "cache.v.hits", "volume.x.iops", "pool.p", "metric.nothing", "metric.offload_bytes_total,path=meta"} {
		if v, err := r.Value(name); err == nil {
			t.Errorf("%s is %v", name, v)
		}
		if v, err := r.Series(name); err == nil {
			t.Errorf("the series of %s is %v", name, v)
		}
		if v, err := r.Between(name, 0, time.Second); err == nil {
			t.Errorf("%s of a second is %v", name, v)
		}
	}
	if v, err := r.Percentile("lod", 50); err == nil {
		t.Errorf("a percentile of no job is %v", v)
	}
	if v, err := r.Percentile("load", 101); err == nil {
		t.Errorf("the 101st percentile is %v", v)
	}
	if _, err := r.Between("pool.p.fullness", 2*time.Second, 9*time.Second); err == nil {
		t.Error("an interval beyond the run")
	}
}

// TestSeries: the intervals are those of the whole run.
func TestSeries(t *testing.T) {
	r := run(t, small())
	iops, err := r.Series("job.load.iops")
	if err != nil || len(iops) != 3 {
		t.Fatalf("%v, %v", iops, err)
	}
	whole, err := r.Value("job.load.iops")
	if mean := (iops[0] + iops[1] + iops[2]) / 3; err != nil || math.Abs(mean-whole) > whole/50 {
		t.Errorf("the mean of %v is %g, that of the run %g (%v)", iops, mean, whole, err)
	}
	hits, err := r.Series("cache.v.hit_percent")
	if err != nil || len(hits) != 3 || hits[2] <= hits[0] {
		t.Errorf("hits of a cache that gets warm: %v, %v", hits, err)
	}
	p50, err := r.Percentile("load", 50)
	p99, bad := r.Percentile("load", 99)
	if err != nil || bad != nil || p50 <= 0 || p99 < p50 {
		t.Errorf("percentiles %s and %s, %v, %v", p50, p99, err, bad)
	}
}

// TestSeriesOfJobs: a series of a job ends with the run, and one that never began has no figures but counts. Names may
// have dots.
func TestSeriesOfJobs(t *testing.T) {
	s := small()
	load := s.Jobs[0]
	load.Changes, load.Name, load.At = nil, "late", time.Second
	never := load
	never.Name, never.At, never.After = "never", 0, "load"
	dotted := load
	dotted.Name, dotted.At = "load.b", 0
	s.Jobs = append(s.Jobs, load, never, dotted)
	s.Arrays[0].Volumes[1].Name, s.Jobs[1].To = "w.x", "w.x"
	r := run(t, s)
	iops, err := r.Series("job.late.iops")
	if err != nil || len(iops) != 2 || slices.Min(iops) <= 0 {
		t.Errorf("a job that begins after 1 s of 3: %v, %v", iops, err)
	}
	for _, name := range []string{"job.never.iops", "job.never.seconds", "job.never.mb_s", "job.never.latency_ms"} {
		v, err := r.Value(name)
		if all, bad := r.Series(name); err == nil || bad == nil {
			t.Errorf("%s of a job that never began: %g, %v", name, v, all)
		}
	}
	if v, err := r.Value("job.never.bytes"); v != 0 || err != nil {
		t.Errorf("%g bytes of a job that never began, %v", v, err)
	}
	if all, err := r.Series("job.late.first.iops"); err == nil {
		t.Errorf("a phase has the series %v", all)
	}
	all, err := r.Series("job.load.b.iops")
	if err != nil || len(all) != 3 {
		t.Errorf("a name with a dot: %v, %v", all, err)
	}
	if v, err := r.Value("volume.w.x.lower_xcopy_mb_s"); err != nil || v <= 0 {
		t.Errorf("a volume with a dot: %g, %v", v, err)
	}
}

// TestIntervals: what is not whole steps is an error; the last may be shorter.
func TestIntervals(t *testing.T) {
	s := small()
	s.Until = 3500 * time.Millisecond
	r := run(t, s)
	for _, row := range []struct {
		from, to time.Duration
		ok       bool
	}{{0, time.Second, true}, {time.Second, 3 * time.Second, true}, {2 * time.Second, s.Until, true},
		{500 * time.Millisecond, 2 * time.Second, false}, {0, 2500 * time.Millisecond, false}, {2300 * time.Millisecond, 2700 * time.Millisecond, false}} {
		if v, err := r.Between("volume.v.iops", row.from, row.to); (err == nil) != row.ok {
			t.Errorf("from %s to %s: %g, %v", row.from, row.to, v, err)
		}
	}
	s.Jobs = s.Jobs[:1]
	s.Jobs[0].Write, s.Arrays[0].Pools = 0, append(s.Arrays[0].Pools, Pool{Name: "idle", Mdisks: s.Arrays[0].Pools[0].Mdisks})
	if v, err := run(t, s).Value("pool.idle.write_peak_ms"); err == nil {
		t.Errorf("nothing was written to a pool, and its slowest second of writes took %g ms", v)
	}
}

// TestCancel: a run ends with its context.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := new(small()).Run(ctx); err == nil {
		t.Error("it ran")
	}
}
