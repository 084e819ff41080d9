package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// little is a run of a second, with expectations behind it.
const little = `name: little
until: 1s
profile: all-flash
arrays: [{name: a, cache: 16MiB, pools: [{name: p, mdisks: [{size: 1GiB}]}], volumes: [{name: v, pool: p, size: 256MiB}]}]
hosts: [{name: h}]
jobs: [{name: load, volume: v, io: 4KiB, write: 1, outstanding: 2, think: 1ms}]
expect:
`

// TestExpectSaysWhatItIs refuses expectations without a kind, and those whose kind is not borne out.
func TestExpectSaysWhatItIs(t *testing.T) {
	for _, row := range []struct{ expect, says string }{
		{`{kind: pinned, what: w, value: x, max: 1}`, ""},
		{`{kind: predicted, what: w, value: x, document: higher, max: 1}`, ""},
		{`{kind: fitted, what: w, value: x, document: "3", fitted: [cache.write, jobs.load.outstanding], max: 1}`, ""},
		{`{what: w, value: x, max: 1}`, "expectation 1 in line 8 (w) has no kind; add kind: predicted, fitted, input or pinned"},
		{`{kind: guessed, what: w, value: x, max: 1}`, `expect[0].kind is "guessed"; it is one of predicted,`},
		{`{kind: fitted, what: w, value: x, document: "3", max: 1}`, "does not say to which parameters; add fitted:"},
		{`{kind: fitted, what: w, value: x, document: "3", fitted: [cache.wrote], max: 1}`, `names the parameter "cache.wrote"; there is no such key`},
		{`{kind: pinned, what: w, value: x, fitted: [cache.write], max: 1}`, "make its kind fitted"},
		{`{kind: pinned, what: w, value: x, from: [cache.write], max: 1}`, "only a predicted one can"},
		{`{kind: predicted, what: w, value: x, document: higher, from: [cache.write], max: 1}`, "follows from all-flash:cache.write, to which nothing is fitted"},
		{`{kind: predicted, what: w, value: x, document: "-", max: 1}`, "make it pinned"},
		{`{kind: predicted, what: w, value: x, document: higher}`, "has no want, min or max"},
	} {
		_, err := Parse([]byte(little + "  - " + row.expect + "\n"))
		if got := fmt.Sprint(err); row.says == "" && err != nil || row.says != "" && (!strings.Contains(got, row.says) || strings.Contains(got, "\n")) {
			t.Errorf("%s: got %v, want %q in a line", row.expect, err, row.says)
		}
	}
}

// TestExpectTable has the kind in each row, totals, and beside what a parameter was fitted to what
// it predicts.
func TestExpectTable(t *testing.T) {
	s, err := Parse([]byte(little + `
  - {kind: fitted, what: latency (ms), value: job.load.latency_ms, document: "0.1", fitted: [cache.write], want: 0.1, within: 50}
  - {kind: predicted, what: writes a second, value: job.load.iops, document: many, from: [cache.write], min: 100}
  - {kind: pinned, what: problems, value: array.a.problems, max: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := carryOut(s)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	WriteOutcomes(&b, Compare(s.Expect, map[string]*Run{"": r}))
	for _, want := range []string{`latency \(ms\) +fitted +0\.1 `, `writes a second +predicted +many `, `problems +pinned `,
		`3 expectations: 1 predicted, 1 fitted \(by 1 parameter\), 0 input, 1 pinned; 3 hold`, `all-flash:cache\.write +latency \(ms\) +writes a second`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("there is no %s in\n%s", want, b.String())
		}
	}
}

// TestValueOfUnknownCounter is an error that names what there is: a sum over nothing would be 0,
// and so would be a mean.
func TestValueOfUnknownCounter(t *testing.T) {
	r := runOf(t, "%s", strings.TrimSuffix(little, "expect:\n"))
	for _, row := range []struct{ name, says string }{
		{"metric.backend_bytes_total,direction=write,origin=host", ""},
		{"metric.backend_bytes_total,reason=rmw", ""},
		{"metric.backend_byte_total", `no counter "backend_byte_total"; there are host_commands_total, `},
		{"metric.backend_bytes_total,cause=rmw", `no label "cause"; it has pool, mdisk, direction, origin, reason`},
		{"metric.backend_bytes_total,reason=rwm", "never counted by reason=rwm; there are copy_read, destage,"},
		{"metric.backend_bytes_total,pool=q", "never counted by pool=q; there are p"},
		{"volume.v.write_ms", ""},
		{"volume.v.read_ms", "there was nothing to take the mean of"},
	} {
		v, err := r.Value(row.name, 0, 0)
		if got := fmt.Sprint(err); row.says == "" && err != nil || row.says != "" && !strings.Contains(got, row.says) {
			t.Errorf("%s is %v (%v), want %q", row.name, v, err, row.says)
		}
	}
}

// TestValueOutsideOfRun: an interval that is not within the run, one of a figure that has none, and a phase that a job never
// had are errors. Each was 0, or the figure of another interval, so that a typo passed max: 0.
func TestValueOutsideOfRun(t *testing.T) {
	r := runOf(t, "%s", strings.TrimSuffix(little, "expect:\n"))
	for _, row := range []struct {
		name     string
		at, over Duration
		says     string
	}{
		{"volume.v.iops", 0, 0, ""},
		{"volume.v.iops", 1e9, 1e9, ""},
		{"volume.v.iops", 1e9, 0, ""},
		{"volume.v.iops", 0, 1e9, ""},
		{"volume.v.iops", 1e9, 2e9, "volume.v.iops: 2s before 1s began before the run"},
		{"volume.v.iops", 0, 100e9, "began before the run"},
		{"volume.v.iops", 100e9, 1e9, "before 1m40s"},
		{"pool.p.used_mb", 100e9, 0, "before 1m40s"},
		{"job.load.iops", 1e9, 1e9, "job.load.iops is a figure of the whole run: leave out at and over"},
		{"metric.backend_bytes_total", 1e9, 1e9, "is a figure of the whole run"},
		{"host.h.ZERO", 0, 1e9, "is a figure of the whole run"},
		{"array.a.problems", 1e9, 0, "is a figure of the whole run"},
		{"job.load.first.seconds", 0, 0, "there is no figure"},
		{"job.load.first.iops", 0, 0, "there is no figure"},
	} {
		v, err := r.Value(row.name, row.at, row.over)
		if got := fmt.Sprint(err); row.says == "" && err != nil || row.says != "" && !strings.Contains(got, row.says) {
			t.Errorf("%s at %s over %s is %v (%v), want %q", row.name, row.at, row.over, v, err, row.says)
		}
	}
}

// TestValueOfUnevenInterval: of one that is not whole steps of the series there are no figures. They were those of other steps,
// or 0 where no step ended within it, so that a bound from above held.
func TestValueOfUnevenInterval(t *testing.T) {
	r := runOf(t, "%s", strings.Replace(inSmall("{name: j, volume: v, io: 4KiB, rate: 100, arrival: constant}", ", series: 2s"), "until: 3s", "until: 7500ms", 1))
	for _, row := range []struct {
		name     string
		at, over Duration
		says     string
	}{
		{"volume.v.iops", 4e9, 2e9, ""},
		{"volume.v.iops", 6e9, 0, ""},
		{"volume.v.iops", 7.5e9, 1.5e9, ""}, // up to the end of the run
		{"volume.v.iops", 0, 3.5e9, ""},
		{"volume.v.iops", 0, 0, ""},
		{"volume.v.iops", 4e9, 1e9, "volume.v.iops: from 3s to 4s is not whole steps of 2s; give whole steps, or the scenario a shorter series"},
		{"volume.v.iops", 3e9, 2e9, "from 1s to 3s is not whole steps of 2s"},
		{"volume.v.iops", 0, 1e9, "from 6.5s to 7.5s is not whole steps of 2s"},
		{"volume.v.iops", 5e9, 0, "from 0s to 5s is not whole steps of 2s"},
		{"group.g.iops.max", 4e9, 1e9, "not whole steps of 2s"},
		{"cache.c.effective_iops", 4e9, 1e9, "not whole steps of 2s"},
		{"pool.p.iops", 4e9, 1e9, ""},
		{"pool.p.iops", 2e9, 5e8, "pool.p.iops: from 1.5s to 2s is not whole steps of 1s; give whole steps"},
	} {
		v, err := r.Value(row.name, row.at, row.over)
		if got := fmt.Sprint(err); row.says == "" && (err != nil || v < 99 || v > 101) || row.says != "" && !strings.Contains(got, row.says) {
			t.Errorf("%s at %s over %s is %v (%v), want %q", row.name, row.at, row.over, v, err, row.says)
		}
	}
}

// TestValueLabels compares the values that labels can have with the documentation.
func TestValueLabels(t *testing.T) {
	text, err := os.ReadFile("../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range sortedKeys(labelValues) {
		row := regexp.MustCompile("(?m)^\\| `" + label + "` \\| (.*) \\|$").FindSubmatch(text)
		if row == nil && label != "direction" && label != "origin" {
			t.Errorf("docs/counters.md has no row of %s", label)
			continue
		}
		for _, v := range labelValues[label] {
			if !strings.Contains(string(row[1]), "`"+v+"`") {
				t.Errorf("docs/counters.md does not say that %s can be %s", label, v)
			}
		}
	}
	for o := range originByName {
		if !slices.Contains(labelValues["origin"], o) {
			t.Errorf("the origin %s is missing", o)
		}
	}
}

// TestExpectationsOfScenarios counts the expectations of all scenario files by kind and compares
// the counts with the table of docs/virtual-time.md.
func TestExpectationsOfScenarios(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/*.yaml")
	if err != nil || len(files) < 14 {
		t.Fatalf("found %d scenarios: %v", len(files), err)
	}
	doc, err := os.ReadFile("../../docs/virtual-time.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[Kind]int{}
	told := func(name string, n map[Kind]int) {
		row := fmt.Sprintf("| %s | %d | %d | %d | %d | %d |", name, n[Predicted]+n[Fitted]+n[Input]+n[Pinned], n[Predicted], n[Fitted], n[Input], n[Pinned])
		if !strings.Contains(string(doc), row+"\n") {
			t.Errorf("docs/virtual-time.md does not have the row\n%s", row)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
			continue
		}
		n := map[Kind]int{}
		for i := range s.Expect {
			e := &s.Expect[i]
			n[e.Kind]++
			all[e.Kind]++
			c := s
			if k := slices.IndexFunc(s.Cases, func(c Case) bool { return c.Name == e.Case }); k >= 0 {
				if c, err = s.Case(s.Cases[k]); err != nil {
					t.Fatal(err)
				}
			}
			if at := cmp.Or(e.At, c.Until); at > 0 {
				if err := c.checkSteps(e.Value, at, e.Over, c.Until); err != nil {
					t.Errorf("%s: %v", filepath.Base(file), err)
				}
			}
		}
		told(strings.TrimSuffix(filepath.Base(file), ".yaml"), n)
	}
	told("all", all)
}
