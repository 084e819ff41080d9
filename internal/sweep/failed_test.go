package sweep

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/tidy"
	"github.com/arraysim/arraysim/lab/plug"
)

// bad is a destage policy that names a volume which is not in the list: it ends its run with an error.
type bad struct{}

func (bad) Rate(plug.Fullness) int64    { return -1 }
func (bad) Next([]plug.DirtyVolume) int { return 99 }

const withPolicies = `
scenario: tiny.yaml
grid:
  arrays.a.destage: ["", panics, wrong]
figures: [job.load.iops]
`

// TestRunsThatBreak: a panic and an error in a run are each a row that says what happened and, for the panic, with which
// settings; the other runs go on.
func TestRunsThatBreak(t *testing.T) {
	p := load(t, withPolicies)
	p.base.Plugged.Destage = map[string]func(plug.Partition) (plug.Destage, error){
		"panics": func(plug.Partition) (plug.Destage, error) { panic("no such thing") },
		"wrong":  func(plug.Partition) (plug.Destage, error) { return bad{}, nil },
	}
	dir := t.TempDir()
	d, err := p.Execute(context.Background(), Work{Dir: dir})
	if err != nil || d.Ran != 3 || d.Failed != 2 {
		t.Fatalf("%+v, error %v", d, err)
	}
	got, _, err := p.Merge([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	message := func(i int) string { s, _ := got.Rows[i][got.Index("error")].(string); return s }
	if s := message(1); !strings.Contains(s, "panic: no such thing") || !strings.Contains(s, "--seed 1 --set arrays.a.destage=panics") {
		t.Errorf("error %q", s)
	}
	if s := message(2); !strings.Contains(s, "destage") {
		t.Errorf("error %q", s)
	}
	if message(0) != "" || got.Rows[0][got.Index("job.load.iops")] == nil || got.Rows[2][got.Index("job.load.iops")] != nil {
		t.Errorf("rows %v", got.Rows)
	}
}

// TestRetryFailed: runs that failed are run again when asked for, and what ended well then counts, in whatever order the
// files are read.
func TestRetryFailed(t *testing.T) {
	p := load(t, withPolicies)
	dir := t.TempDir()
	if d, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil || d.Failed != 2 {
		t.Fatalf("%+v, error %v", d, err)
	}
	p.base.Plugged.Destage = map[string]func(plug.Partition) (plug.Destage, error){
		"wrong": func(plug.Partition) (plug.Destage, error) { return bad{}, nil },
	}
	if d, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil || d.Ran != 0 || d.Failed != 2 {
		t.Fatalf("without the wish: %+v, error %v", d, err)
	}
	p.base.Plugged.Destage["panics"] = func(plug.Partition) (plug.Destage, error) { return good{}, nil }
	d, err := p.Execute(context.Background(), Work{Dir: dir, RetryFailed: true})
	if err != nil || d.Before != 1 || d.Ran != 2 || d.Failed != 1 {
		t.Fatalf("%+v, error %v", d, err)
	}
	got, m, err := p.Merge([]string{dir})
	if err != nil || m.Failed != 1 || m.Again != 2 || m.Missing != 0 {
		t.Fatalf("%+v, error %v", m, err)
	}
	if row := got.Rows[1]; row[got.Index("error")] != nil || row[got.Index("job.load.iops")] == nil {
		t.Errorf("row %v", row)
	}
	if d, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil || d.Before != 3 || d.Failed != 1 {
		t.Errorf("after it: %+v, error %v", d, err)
	}
}

// good destages as fast as it can, the first volume first.
type good struct{}

func (good) Rate(plug.Fullness) int64    { return -1 }
func (good) Next([]plug.DirtyVolume) int { return 0 }

// TestProfilesAreReadOnce: the runs have the profile that their hash stands for, whatever becomes of the file.
func TestProfilesAreReadOnce(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	write := func(read string) {
		x, err := profile.LoadWith("all-flash", map[string]any{"cache.read": read})
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(mine, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	iops := func(p *Plan) any {
		dir := t.TempDir()
		if _, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		got, _, err := p.Merge([]string{dir})
		if err != nil || got.Rows[0][got.Index("error")] != nil {
			t.Fatalf("error %v, %v", err, got)
		}
		return got.Rows[0][got.Index("job.load.iops")]
	}
	plan := "scenario: tiny.yaml\ngrid: {arrays.a.profile: [" + mine + "], jobs.load.write: [0]}\nfigures: [job.load.iops]\n"
	write("100us")
	p := load(t, plan)
	want := iops(p)
	write("2ms")
	if got := iops(p); got != want {
		t.Errorf("the same plan has %v I/Os a second and %v after its profile's file was changed", want, got)
	}
	if got := iops(load(t, plan)); got == want {
		t.Errorf("a new plan has %v, too: the file does not count", got)
	}
}

// TestRepeatedRuns: the same values a second time are one run, in whichever shard.
func TestRepeatedRuns(t *testing.T) {
	p := load(t, "scenario: tiny.yaml\ngrid: {jobs.load.outstanding: [1, 2, 1, 1.0]}\nfigures: [job.load.iops]\n")
	dir, ran := t.TempDir(), 0
	for shard := range 3 {
		d, err := p.Execute(context.Background(), Work{Dir: t.TempDir(), Shard: shard, Shards: 3})
		if err != nil {
			t.Fatal(err)
		}
		ran += d.Ran
	}
	if ran != 2 || p.Total() != 2 {
		t.Errorf("%d runs of %d in three shards", ran, p.Total())
	}
	if _, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if got, m, err := p.Merge([]string{dir}); err != nil || m.Equal != 0 || len(got.Rows) != 2 {
		t.Fatalf("%+v, error %v", m, err)
	}
	const random = "scenario: tiny.yaml\nrandom: {points: 24, seed: %d, parameters: {jobs.load.outstanding: {from: 1, to: 8, integer: true}, jobs.load.write: {choose: [0, 0.5, 1]}}}\n"
	for seed := range 20 {
		p := load(t, fmt.Sprintf(random, seed))
		hashes := map[string]bool{}
		for i := range p.Total() {
			hashes[p.Run(i).Hash] = true
		}
		if len(hashes) != 24 {
			t.Errorf("seed %d: %d different points of 24", seed, len(hashes))
		}
	}
}

// TestRetryKeepsFailures: what the runs gave that failed stays in the folder beside what they gave when run again.
func TestRetryKeepsFailures(t *testing.T) {
	p := load(t, strings.Replace(withPolicies, ", wrong]", "]", 1))
	dir := t.TempDir()
	destage := func(d plug.Destage) func(plug.Partition) (plug.Destage, error) {
		return func(plug.Partition) (plug.Destage, error) { return d, nil }
	}
	p.base.Plugged.Destage = map[string]func(plug.Partition) (plug.Destage, error){"panics": destage(bad{})}
	if d, err := p.Execute(context.Background(), Work{Dir: dir, Shard: 1, Shards: 2}); err != nil || d.Failed != 1 {
		t.Fatalf("%+v, error %v", d, err)
	}
	p.base.Plugged.Destage = map[string]func(plug.Partition) (plug.Destage, error){"panics": destage(good{})}
	if d, err := p.Execute(context.Background(), Work{Dir: dir, Shard: 1, Shards: 2, RetryFailed: true}); err != nil || d.Ran != 1 || d.Failed != 0 {
		t.Fatalf("%+v, error %v", d, err)
	}
	if _, m, err := p.Merge([]string{dir}); !Missing(err) || m.Files != 2 || m.Again != 1 || m.Failed != 0 {
		t.Errorf("%+v, error %v", m, err)
	}
}

// TestProfileThatIsNone: the runs that take a file which is no profile say so even if it becomes one meanwhile: their hash is
// that of what it was.
func TestProfileThatIsNone(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(mine, []byte("no: profile\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	p := load(t, "scenario: tiny.yaml\ngrid: {arrays.a.profile: [all-flash, "+mine+"]}\nfigures: [job.load.iops]\n")
	x, err := profile.LoadWith("all-flash", map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, text, 0o666); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if d, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil || d.Ran != 2 || d.Failed != 1 {
		t.Fatalf("%+v, error %v", d, err)
	}
	got, _, err := p.Merge([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := got.Rows[1][got.Index("error")].(string); !strings.Contains(s, "profile "+mine) {
		t.Errorf("error %q", s)
	}
}

// TestSizesWithinBounds: sizes that are drawn are whole sectors and within their bounds.
func TestSizesWithinBounds(t *testing.T) {
	x := Range{From: "700B", To: "1500B"}
	if err := x.check(); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if v := x.draw(1, "k", i); v != uint64(1024) {
			t.Fatalf("point %d is %v", i, v)
		}
	}
	third := Range{From: 0.3333333333333, To: 0.33333333333331} // closer together than the digits that are kept
	if err := third.check(); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if v := third.draw(1, "k", i).(float64); v < third.from || v > third.to {
			t.Fatalf("point %d is %v", i, v)
		}
	}
}

// TestResumeKeepsNoRows: what is there is known by its hash, whatever else a file's rows have.
func TestResumeKeepsNoRows(t *testing.T) {
	p := load(t, small)
	dir := t.TempDir()
	if _, err := p.Execute(context.Background(), Work{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	other := &tidy.Table{Columns: fixed, Rows: []tidy.Row{{p.Run(0).Hash, "x", nil, int64(1), "v", nil}}}
	if err := tidy.WriteFile(filepath.Join(dir, "other.parquet"), other); err != nil {
		t.Fatal(err)
	}
	have, err := p.ended(dir)
	if err != nil || len(have) != 16 {
		t.Fatalf("%d hashes, error %v", len(have), err)
	}
	for i := range p.Total() {
		if failed, ok := have[p.Run(i).Hash]; failed || !ok {
			t.Errorf("run %d: failed %v, known %v", i, failed, ok)
		}
	}
}
