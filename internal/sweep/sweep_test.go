package sweep

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/tidy"
)

const (
	folder  = "../../testdata/sweeps/"
	version = "test"
)

func load(t *testing.T, plan string) *Plan {
	t.Helper()
	text, err := os.ReadFile(folder + "tiny.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plan.yaml"), []byte(plan), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tiny.yaml"), text, 0o666); err != nil {
		t.Fatal(err)
	}
	p, err := Load(filepath.Join(dir, "plan.yaml"), "", version)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const small = `
scenario: tiny.yaml
seeds: 2
grid:
  jobs.load.outstanding: [1, 8]
  arrays.a.copy: [data, reference]
random:
  points: 2
  seed: 7
  parameters:
    jobs.load.think: {from: 1us, to: 1ms, scale: log}
figures: [job.load.iops, job.load.latency_ms]
`

// TestPlanFile: the plan of the tests of scale has the runs that its comment says.
func TestPlanFile(t *testing.T) {
	p, err := Load(folder+"plan.yaml", "", version)
	if err != nil {
		t.Fatal(err)
	}
	if p.Total() != 500 {
		t.Errorf("%d runs", p.Total())
	}
	hashes := map[string]bool{}
	for i := range p.Total() {
		hashes[p.Run(i).Hash] = true
	}
	if len(hashes) != 500 {
		t.Errorf("%d hashes of 500 runs", len(hashes))
	}
}

// TestHash: whatever changes a run's figures changes its hash, and nothing else does.
func TestHash(t *testing.T) {
	p := load(t, small)
	base := p.Run(0).Hash
	if again := load(t, strings.Replace(small, "[1, 8]", "[1, 8, 9]", 1)).Run(0).Hash; again != base {
		t.Error("a longer grid changed the first run's hash")
	}
	if again := load(t, strings.Replace(small, ", job.load.latency_ms", "", 1)).Run(0).Hash; again != base {
		t.Error("the choice of figures changed a run's hash")
	}
	for _, change := range [][2]string{{"[1, 8]", "[2, 8]"}, {"seed: 7", "seed: 8"}, {"[data, reference]", "[reference, data]"}} {
		if load(t, strings.Replace(small, change[0], change[1], 1)).Run(0).Hash == base {
			t.Errorf("%s in place of %s: the same hash", change[1], change[0])
		}
	}
	other, err := New(p.file, p.base, "another version")
	if err != nil {
		t.Fatal(err)
	}
	if other.Run(0).Hash == base {
		t.Error("another version of the program has the same hash")
	}
}

// TestShards: whoever runs the plan, in whatever parts and order, with whatever crashes and repetitions, the
// merged table has the same bytes.
func TestShards(t *testing.T) {
	p := load(t, small)
	whole, parts := t.TempDir(), t.TempDir()
	execute := func(w Work) Done {
		d, err := p.Execute(context.Background(), w)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := execute(Work{Dir: whole}); d.Ran != 16 || d.Failed != 0 {
		t.Fatalf("%+v", d)
	}
	if d := execute(Work{Dir: whole}); d.Ran != 0 || d.Before != 16 || d.Files != 0 {
		t.Errorf("a finished sweep was run again: %+v", d)
	}
	// Shard 1 is run twice, in folders that do not know of each other.
	twice := t.TempDir()
	execute(Work{Dir: twice, Shard: 1, Shards: 3})
	for _, i := range []int{2, 0, 1} {
		execute(Work{Dir: parts, Shard: i, Shards: 3, Jobs: 1})
	}
	want, _, err := p.Merge([]string{whole})
	if err != nil {
		t.Fatal(err)
	}
	got, m, err := p.Merge([]string{parts, twice})
	if err != nil || m.Equal != 5 || m.Missing != 0 {
		t.Fatalf("%+v, error %v", m, err)
	}
	var a, b bytes.Buffer
	if err := tidy.WriteParquet(&a, want); err != nil {
		t.Fatal(err)
	}
	if err := tidy.WriteParquet(&b, got); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("the rows depend on who ran them (error %v)", err)
	}
}

// TestResume: what an interrupted run has finished is not run again, and what it has not is missing.
func TestResume(t *testing.T) {
	p := load(t, small)
	dir := t.TempDir()
	ctx, stop := context.WithCancel(context.Background())
	d, err := p.Execute(ctx, Work{Dir: dir, Jobs: 1, Progress: func(done, _ int) {
		if done == 3 {
			stop()
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "continues from there") || d.Ran < 3 || d.Ran > 4 {
		t.Fatalf("%+v, error %v", d, err)
	}
	if _, m, err := p.Merge([]string{dir}); !Missing(err) || m.Missing != 16-d.Ran {
		t.Fatalf("%+v, error %v", m, err)
	}
	// A process that is killed while it writes leaves a file of another name.
	if err := os.WriteFile(filepath.Join(dir, ".rows-1.parquet.123"), []byte("PAR1half"), 0o666); err != nil {
		t.Fatal(err)
	}
	again, err := p.Execute(context.Background(), Work{Dir: dir})
	if err != nil || again.Before != d.Ran || again.Ran != 16-d.Ran {
		t.Fatalf("%+v, error %v", again, err)
	}
	if _, _, err := p.Merge([]string{dir}); err != nil {
		t.Fatal(err)
	}
}

// TestDifferentResults: two results of one run are an error, and never one of them.
func TestDifferentResults(t *testing.T) {
	p := load(t, small)
	dir := t.TempDir()
	if _, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	got, _, err := p.Merge([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	forged := &tidy.Table{Columns: got.Columns, Rows: []tidy.Row{slices.Clone(got.Rows[5])}}
	at := got.Index("job.load.iops")
	forged.Rows[0][at] = math.Nextafter(forged.Rows[0][at].(float64), 0)
	if err := tidy.WriteFile(filepath.Join(dir, "forged.parquet"), forged); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Merge([]string{dir}); err == nil || !strings.Contains(err.Error(), "has two results: job.load.iops is") {
		t.Errorf("error %v", err)
	}
}

// TestValues: what was drawn is within its bounds, does not depend on the other parameters, and stands in
// a column of numbers.
func TestValues(t *testing.T) {
	p := load(t, strings.Replace(small, "points: 2", "points: 200", 1))
	alone := load(t, strings.Replace(strings.Replace(small, "points: 2", "points: 200", 1), "  parameters:", "  parameters:\n    jobs.load.write: {from: 0, to: 1}", 1))
	below := 0
	for i := range 400 {
		r := p.Run(i)
		if v := alone.Run(i).Values["jobs.load.think"]; v != r.Values["jobs.load.think"] {
			t.Fatalf("point %d: %v and %v", i, v, r.Values["jobs.load.think"])
		}
		x, ok := seconds.measure(r.Values["jobs.load.think"])
		if !ok || x < 1e-6 || x > 1e-3 {
			t.Fatalf("%v is out of range", r.Values["jobs.load.think"])
		}
		if x < 31.6e-6 {
			below++
		}
	}
	if below < 140 || below > 260 {
		t.Errorf("%d of 400 are in the lower half of the logarithms", below)
	}
	for _, row := range []struct {
		values []any
		want   unit
		cell   any
	}{{[]any{uint64(1), 2.5}, plain, 1.0}, {[]any{"10us", "2s"}, seconds, 10e-6}, {[]any{"4KiB", uint64(0)}, octets, 4096.0}, {[]any{true}, truth, true}, {[]any{"data"}, words, "data"}} {
		x := newParameter("k", row.values)
		if x.unit != row.want || x.cell(row.values[0]) != row.cell {
			t.Errorf("%v: unit %d, cell %v", row.values, x.unit, x.cell(row.values[0]))
		}
	}
}

// TestWholeNumbers: all whole numbers between bounds are drawn, and no others.
func TestWholeNumbers(t *testing.T) {
	for _, row := range []struct {
		x    Range
		want []int64
	}{
		{Range{From: 0.5, To: 3.5, Integer: true}, []int64{1, 2, 3}}, {Range{From: -2.5, To: -0.5, Integer: true}, []int64{-2, -1}},
		{Range{From: uint64(1), To: uint64(3), Integer: true}, []int64{1, 2, 3}}, {Range{From: 0.5, To: 3.5, Scale: "log", Integer: true}, []int64{1, 2, 3}},
		{Range{From: 6.5, To: 7.5, Integer: true}, []int64{7}},
	} {
		if err := row.x.check(); err != nil {
			t.Fatal(err)
		}
		seen := map[int64]bool{}
		for i := range 1000 {
			seen[row.x.draw(1, "k", i).(int64)] = true
		}
		r := Random{Parameters: map[string]Range{"k": row.x}}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, row.want) || r.combinations() != float64(len(row.want)) {
			t.Errorf("from %v to %v: %v are drawn, and %v are counted; want %v", row.x.From, row.x.To, got, r.combinations(), row.want)
		}
	}
}

// TestFewValues: all points differ where values repeat, and no list of points is kept where they hardly can.
func TestFewValues(t *testing.T) {
	const drawn = "{from: 1us, to: 1ms, scale: log}"
	p := load(t, strings.NewReplacer("points: 2", "points: 40", drawn, "{from: 512B, to: 25KiB}", "jobs.load.think", "jobs.load.io").Replace(small))
	seen := map[string]bool{}
	for i := range p.Total() {
		seen[p.Run(i).Hash] = true
	}
	if len(seen) != p.Total() || len(p.points) != 40 {
		t.Errorf("%d of %d runs differ; %d points are kept", len(seen), p.Total(), len(p.points))
	}
	p = load(t, strings.NewReplacer(drawn, "{from: 512B, to: 1MiB}", "jobs.load.think", "jobs.load.io").Replace(small))
	if p.points != nil {
		t.Errorf("%d points of 2048 are kept", len(p.points))
	}
}

// TestRowsThatCannotBeWritten: a run whose row is not in the folder has not ended.
func TestRowsThatCannotBeWritten(t *testing.T) {
	p := load(t, small)
	dir := filepath.Join(t.TempDir(), "rows")
	d, err := p.Execute(context.Background(), Work{Dir: dir, Progress: func(int, int) {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}})
	if err == nil || d.Ran != 0 || d.Failed != 0 || d.Files != 0 {
		t.Errorf("%+v, error %v", d, err)
	}
	// A file is written when all have ended, and every few seconds.
	if d, err = p.Execute(context.Background(), Work{Dir: dir}); err != nil || d.Ran != d.Shard || d.Files < 1 {
		t.Errorf("then %+v, error %v", d, err)
	}
}

func TestMistakes(t *testing.T) {
	for _, row := range [][3]string{
		{"jobs.load.outstanding: [1, 8]", "jobs.lod.outstanding: [1, 8]", `there is no "lod"`},
		{"jobs.load.outstanding: [1, 8]", "jobs.load.outstanding: []", "has no values"},
		{"jobs.load.outstanding: [1, 8]", "seed: [1, 8]", "use seed and seeds"},
		{"scale: log", "scale: cube", "it is linear or log"},
		{"from: 1us", "from: 1KiB", "give two numbers"},
		{"from: 1us", "from: 1s", "is descending"},
		{"points: 2", "points: 0", "1 or more"},
		{"{from: 1us, to: 1ms, scale: log}", "{choose: [1us, 1us]}", "2 points have 1 values to choose from"},
		{"{from: 1us, to: 1ms, scale: log}", "{choose: [1, 1.0]}", "2 points have 1 values to choose from"},
		{"{from: 1us, to: 1ms, scale: log}", "{choose: [1us" + strings.Repeat(", 1us", 20_000) + ", 2us]}",
			"2 points of 2 are too many to draw at random; put the values into the grid"},
		{"{from: 1us, to: 1ms, scale: log}", "{from: 600B, to: 1000B}", "no multiple of 512 bytes between them"},
		{"jobs.load.outstanding: [1, 8]", "jobs.load.rate: [.inf, 100]", "grid: jobs.load.rate: +Inf is not a number that a run can have"},
		{"jobs.load.outstanding: [1, 8]", "jobs.load.rate: [[1, .nan], 100]", "grid: jobs.load.rate: NaN is not a number that a run can have"},
		{"{from: 1us, to: 1ms, scale: log}", "{from: 0, to: .inf}", "random: jobs.load.think: +Inf is not a number"},
		{"{from: 1us, to: 1ms, scale: log}", "{choose: [1us, -.inf]}", "random: jobs.load.think: -Inf is not a number"},
		{"{from: 1us, to: 1ms, scale: log}", "{from: 0.2, to: 0.8, integer: true}", "from 0.2 to 0.8: there is no whole number between them"},
		{"{from: 1us, to: 1ms, scale: log}", "{from: 1, to: 10000000000000000000, integer: true}", "whole numbers are drawn up to 9007199254740992"},
		{"scale: log", "integer: true", "leave it out with times"},
		{"{from: 1us, to: 1ms, scale: log}", "{choose: [1us, 2us], integer: true}", "choose goes without"},
		{"points: 2", "points: 90000000", "more than 100000000 runs"},
		{"job.load.iops", "load.iops", "is not the name of a figure"},
		{"seeds: 2", "sedes: 2", "sedes"},
		{"scenario: tiny.yaml", "", "names no scenario"},
	} {
		dir := t.TempDir()
		text, err := os.ReadFile(folder + "tiny.yaml")
		if err != nil {
			t.Fatal(err)
		}
		plan := filepath.Join(dir, "plan.yaml")
		if err := os.WriteFile(plan, []byte(strings.Replace(small, row[0], row[1], 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tiny.yaml"), text, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(plan, "", version); err == nil || !strings.Contains(err.Error(), row[2]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q in one line", row[1], err, row[2])
		}
	}
}

// TestFailedRuns: a point that cannot be built is a row that says why, and the others are run.
func TestFailedRuns(t *testing.T) {
	p := load(t, strings.Replace(small, "[1, 8]", "[1, -1]", 1))
	dir := t.TempDir()
	p.file.Grid["jobs.load.outstanding"][1] = "many"
	d, err := p.Execute(context.Background(), Work{Dir: dir})
	if err != nil || d.Ran != 16 || d.Failed != 8 {
		t.Fatalf("%+v, error %v", d, err)
	}
	got, m, err := p.Merge([]string{dir})
	if err != nil || m.Failed != 8 {
		t.Fatalf("%+v, error %v", m, err)
	}
	for _, r := range got.Rows {
		if failed, known := r[got.Index("error")] != nil, r[got.Index("job.load.iops")] != nil; failed == known {
			t.Fatalf("row %s", fmt.Sprint(r))
		}
	}
}
