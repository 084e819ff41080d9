package sim

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// carryOut runs a scenario to its end.
func carryOut(s *Scenario) (*Run, error) {
	r, err := New(s)
	if err != nil {
		return nil, err
	}
	for i := 0; !r.Advance(r.now() + 10*second); i++ {
		if i == 1e6 {
			return nil, fmt.Errorf("it does not end")
		}
	}
	r.Finish()
	return r, nil
}

// runOf runs the scenario that a format and its arguments give to its end.
func runOf(t *testing.T, format string, args ...any) *Run {
	t.Helper()
	s, err := Parse(fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	r, err := carryOut(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mixed has a bit of everything: two arrays, all kinds of job, faults.
const mixed = `
name: mixed
profile: svc
until: 40s
sample: 10s
series: 1s
seed: %d
arrays:
  - name: a
    cache: 64MiB
    pools:
      - {name: p, mdisks: [{kind: hdd, count: 3, size: 4GiB}]}
      - {name: q, mdisks: [{kind: ssd, count: 2, size: 4GiB}]}
    volumes:
      - {name: v, count: 5, group: g, pool: p, size: 1GiB, filled: 64MiB}
      - {name: w, pool: q, size: 1GiB}
  - name: b
    store: memory
    cache: 16MiB
    profile: all-flash
    pools: [{name: r, mdisks: [{size: 4GiB}]}]
    volumes: [{name: x, pool: r, size: 1GiB, filled: 16MiB}]
hosts:
  - {name: h1}
  - {name: h2, vaai: {HardwareAcceleratedMove: false}}
jobs:
  - {name: open, volume: g, rate: 300, total: true, lognormal: 1, sizes: [{size: 4KiB, weight: 3}, {size: 64KiB, weight: 1}], write: 0.6, span: 64MiB, hot: {reads: 0.5, span: 1MiB}}
  - {name: bursts, host: h2, volume: v0, bandwidth: 40MiB, outstanding: 16, io: 32KiB, write: 1, span: 64MiB, burst: {for: 2s, every: 5s}}
  - {name: thin, host: h2, volume: w, disk: thin, size: 256MiB, io: 16KiB, write: 0.9, outstanding: 4, think: 1ms}
  - {name: clone, kind: clone, at: 2s, volume: v1, to: w, size: 64MiB, outstanding: 4, timeout: 10s}
  - {name: move, kind: clone, host: h2, at: 2s, volume: x, to: v2, size: 16MiB, outstanding: 4}
  - {name: zero, kind: zero, host: h2, at: 3s, volume: x, size: 512MiB}
  - {name: unmap, kind: unmap, after: zero, volume: x, size: 256MiB, ranges: 4}
faults:
  - {at: 5s, kind: mdisk-slow, array: a, pool: p, mdisk: 1, factor: 5}
  - {at: 8s, kind: node-loss, array: a}
  - {at: 12s, kind: node-return, array: a}
  - {at: 15s, kind: mdisk-offline, array: a, pool: p, mdisk: 2}
  - {at: 18s, kind: mdisk-online, array: a, pool: p, mdisk: 2}
  - {at: 20s, kind: pool-add, array: a, new: {name: added, mdisks: [{kind: hdd, size: 1GiB}]}}
  - {at: 25s, kind: lun-reset, volume: v0}
`

// TestSameSeedSameBytes runs one scenario several times, side by side and on one
// processor: all outputs are the same bytes. Another seed gives others.
func TestSameSeedSameBytes(t *testing.T) {
	outputs := func(seed int) map[string][]byte {
		s, err := Parse(fmt.Appendf(nil, mixed, seed))
		if err != nil {
			t.Error(err)
			return nil
		}
		r, err := carryOut(s)
		if err != nil {
			t.Error(err)
			return nil
		}
		return r.Output()
	}
	beside := 3
	if testing.Short() {
		beside = 1
	}
	all := make([]map[string][]byte, beside)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = outputs(1) })
	}
	wg.Wait()
	procs := runtime.GOMAXPROCS(1)
	all = append(all, outputs(1))
	runtime.GOMAXPROCS(procs)
	for name, want := range all[0] {
		if len(want) == 0 {
			t.Errorf("%s is empty", name)
		}
		for i, o := range all[1:] {
			if !bytes.Equal(o[name], want) {
				t.Errorf("%s differs in run %d: %s", name, i+1, firstDifference(want, o[name]))
			}
		}
	}
	other := outputs(2)
	for _, name := range []string{"counters.txt", "volumes.csv", "pools.csv"} {
		if bytes.Equal(other[name], all[0][name]) {
			t.Errorf("%s is the same for another seed", name)
		}
	}
	for _, want := range []string{"job clone ends", "job move ends", "job zero ends", "job unmap ends", "reset is done"} {
		if !strings.Contains(string(all[0]["events.log"]), want) {
			t.Errorf("the event log does not say %q:\n%s", want, all[0]["events.log"])
		}
	}
	if !strings.Contains(string(all[0]["report.txt"]), "conserved to the byte") || strings.Contains(string(all[0]["report.txt"]), "PROBLEM") {
		t.Errorf("report:\n%s", all[0]["report.txt"])
	}
}

func firstDifference(a, b []byte) string {
	la, lb := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return fmt.Sprintf("line %d: %q and %q", i+1, la[i], lb[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(la), len(lb))
}

// TestAdvanceInSteps shows that how often a run is looked at does not change it.
func TestAdvanceInSteps(t *testing.T) {
	outputs := func(step int64) map[string][]byte {
		s, err := Parse(fmt.Appendf(nil, mixed, 3))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		for !r.Advance(r.now() + step) {
		}
		r.Finish()
		return r.Output()
	}
	a, b := outputs(17_000_003), outputs(1e15)
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s: %s", name, firstDifference(a[name], b[name]))
		}
	}
}

func TestSettings(t *testing.T) {
	s, err := Parse(fmt.Appendf(nil, mixed, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		key   string
		value any
		bad   string
	}{
		{"arrays.a.cache", "128MiB", ""},
		{"hosts.h1.vaai.MaxHWTransferSize", "16MiB", ""},
		{"jobs.0.write", 0.25, ""},
		{"jobs.none.write", 0.25, `there is no "none"`},
		{"jobs.open.write", 2, "fractions go from 0 to 1"},
		{"jobs.open.colour", "red", "colour"},
		{"name.of", 1, "is a plain value"},
	} {
		c, err := s.Set(row.key, row.value)
		if row.bad == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), row.bad) {
			t.Errorf("%s: error %v, want %q", row.key, err, row.bad)
		}
		if row.key == "jobs.0.write" && (c.Jobs[0].Write != 0.25 || s.Jobs[0].Write != 0.6) {
			t.Errorf("write is %v, and was %v before", c.Jobs[0].Write, s.Jobs[0].Write)
		}
	}
	for _, bad := range []string{"", "arrays: [{nme: x}]", "name: x\nhosts: [{name: h}]", "arrays: [{name: a, store: disk}]\nhosts: [{name: h}]"} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a scenario", bad)
		}
	}
}

// TestSlicesDoNotShow advances runs that end with their jobs in slices of several lengths, as
// a progress bar does by the wall clock: the outputs are the same bytes.
func TestSlicesDoNotShow(t *testing.T) {
	s, err := Parse([]byte(`
name: slices
profile: all-flash
arrays:
  - name: a
    cache: 64MiB
    pools: [{name: p, mdisks: [{size: 64GiB}]}]
    volumes: [{name: v, pool: p, size: 1GiB, filled: 64MiB}, {name: w, pool: p, size: 1GiB}]
hosts: [{name: h}]
jobs:
  - {name: clone, kind: clone, volume: v, to: w, size: 64MiB, outstanding: 4}
  - {name: load, after: clone, volume: v, io: 8KiB, write: 0.5, outstanding: 4, bytes: 4MiB}
`))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][]byte
	for _, slice := range []int64{10 * second, 333, 17e3, 1e6, 40e6} {
		r, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		for !r.Advance(r.now() + slice) {
		}
		r.Finish()
		got := r.Output()
		if want == nil {
			want = got
		}
		for name := range want {
			if !bytes.Equal(got[name], want[name]) {
				t.Errorf("in slices of %d ns %s differs: %s", slice, name, firstDifference(want[name], got[name]))
			}
		}
	}
}

func figureOf(t *testing.T, r *Run, name string, at, over Duration) float64 {
	t.Helper()
	v, err := r.Value(name, at, over)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAfterAll: a job that waits for several begins when the last of them has ended.
func TestAfterAll(t *testing.T) {
	const text = `name: x
until: 60s
profile: all-flash
arrays: [{name: a, cache: 16MiB, pools: [{name: p, mdisks: [{size: 1GiB}]}], volumes: [{name: v, pool: p, size: 256MiB, filled: 64MiB}]}]
hosts: [{name: h}]
jobs:
  - {name: long, volume: v, io: 4KiB, outstanding: 1, for: 3s, bytes: 1TiB}
  - {name: short, volume: v, io: 4KiB, outstanding: 1, bytes: 1MiB}
  - {name: last, volume: v, io: 4KiB, outstanding: 1, bytes: 1MiB, at: 1s, after: long, after_all: [short, long]}
`
	r := runOf(t, "%s", text)
	began := map[string]int64{}
	for _, j := range r.jobs {
		began[j.spec.Name] = j.began
	}
	if began["last"] != 4e9 || began["long"] != 0 || !r.jobs[2].over {
		t.Errorf("began %v, want the last one at 4 s", began)
	}
	s, err := Parse([]byte(strings.Replace(text, "[short, long]", "[short, nobody]", 1)))
	if err == nil {
		_, err = New(s)
	}
	if err == nil || !strings.Contains(err.Error(), `there is no job "nobody" before this one`) {
		t.Errorf("error %v", err)
	}
}

// TestSettingsAreCopied: a setting inside of another one leaves the value alone that was given for that: cases share what they
// have from one place of their file.
func TestSettingsAreCopied(t *testing.T) {
	s, err := Parse([]byte(threeNodes))
	if err != nil {
		t.Fatal(err)
	}
	arrays := s.Tree().(map[string]any)["arrays"]
	if _, err := s.SetAll(map[string]any{"arrays": arrays, "arrays.a.cache": "8MiB"}); err != nil {
		t.Fatal(err)
	}
	if c, ok := arrays.([]any)[0].(map[string]any)["cache"]; ok {
		t.Errorf("the value of arrays has a cache of %v now", c)
	}
}
