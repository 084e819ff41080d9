package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/fio"
	"github.com/arraysim/arraysim/internal/sim"
)

const small = `
name: small
profile: all-flash
until: 2s
seed: 7
arrays: [{name: array, pools: [{name: p, mdisks: [{size: 1GiB}]}], volumes: [{name: v, pool: p, size: 64MiB}]}]
hosts: [{name: h}]
jobs: [{name: load, host: h, volume: v, io: 4KiB, outstanding: 1}]
cases: [{name: one}, {name: two, set: {jobs.load.outstanding: 4}}]
expect:
  - {kind: pinned, case: one, what: I/Os, value: job.load.iops, document: some, min: 1}
  - {kind: pinned, case: two, what: I/Os, value: job.load.iops, document: none, max: 1}
`

func load(t *testing.T, name, text string) *sim.Scenario {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, err := Load(path, "all-flash")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(grid []*sim.Scenario) (out []string) {
	for _, s := range grid {
		out = append(out, s.Name)
	}
	return out
}

func TestGrid(t *testing.T) {
	s := load(t, "small.yaml", small)
	for _, row := range []struct {
		what   string
		choice Choice
		want   []string
		expect int
	}{
		{"all cases", Choice{}, []string{"one", "two"}, 2},
		{"one of them", Choice{Cases: []string{"two"}}, []string{"two"}, 1},
		{"in another order, times a sweep", Choice{Cases: []string{"two", "one"}, Axes: []Axis{{"jobs.load.io", []string{"4KiB", "8KiB"}}}},
			[]string{"two io=4KiB", "two io=8KiB", "one io=4KiB", "one io=8KiB"}, 2},
	} {
		grid, err := row.choice.Grid(s)
		if err != nil {
			t.Fatalf("%s: %v", row.what, err)
		}
		if got := names(grid); !slices.Equal(got, row.want) || len(row.choice.Expected(s)) != row.expect {
			t.Errorf("%s: %q with %d expectations, want %q with %d", row.what, got, len(row.choice.Expected(s)), row.want, row.expect)
		}
	}
	for _, bad := range []Choice{{Cases: []string{"three"}}, {Axes: []Axis{{"jobs.none.io", []string{"4KiB"}}}}, {Cases: []string{"one", "one"}},
		{Axes: []Axis{{"jobs.load.outstanding", []string{"1", "1"}}}}} {
		if _, err := bad.Grid(s); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if _, err := Apply(s, []Setting{{"seed", "1"}, {"nothing", "2"}}); err == nil {
		t.Error("a setting that the scenario has not is taken")
	}
}

// TestFolders: each run of several has one of its own, in the folder of all.
func TestFolders(t *testing.T) {
	for _, row := range []struct {
		names []string
		want  string
	}{
		{[]string{"a", "b", "...", "a/b"}, ""},
		{[]string{".."}, ""}, // the only run leaves its files in the folder itself
		{[]string{"a b", "a_b"}, `the runs "a b" and "a_b" would both leave their files in out/a_b; rename one`},
		{[]string{"a", ".."}, `a run called ".." cannot have a folder in out; rename its case`},
		{[]string{".", "a"}, `a run called "." cannot`},
		{[]string{"", "a"}, `a run called "" cannot`},
	} {
		var grid []*sim.Scenario
		for _, name := range row.names {
			grid = append(grid, &sim.Scenario{Name: name})
		}
		if err := CheckFolders("out", grid); (err == nil) != (row.want == "") || err != nil && !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%q: %v, want %q", row.names, err, row.want)
		}
	}
}

// counted is a Meter that keeps what it is told.
type counted struct {
	last  int
	now   time.Duration
	ended bool
}

func (c *counted) Advance(done int, now time.Duration) { c.last, c.now = max(c.last, done), now }
func (c *counted) End(ended bool)                      { c.ended = ended }

func TestWorkRunsAndCompares(t *testing.T) {
	s := load(t, "small.yaml", small)
	choice := &Choice{}
	grid, err := choice.Grid(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	meters := map[string]*counted{"one": {}, "two": {}}
	rec := &Outputs{Record: time.Second, IOLogs: []string{"fio"}, Dir: func(s *sim.Scenario) string { return Folder(dir, len(grid), s) }}
	w := Work{Jobs: 2, Meter: func(s *sim.Scenario) Meter { return meters[s.Name] }, Attach: rec.Attach}
	runs, err := w.Run(t.Context(), grid)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range meters {
		if m.last != steps || m.now != 2*time.Second || !m.ended {
			t.Errorf("%s: the meter has %+v", name, m)
		}
	}
	for _, file := range []string{"one/esxtop.csv", "two/io.fio", "two/counters.txt"} {
		if i, err := os.Stat(filepath.Join(dir, file)); err != nil || i.Size() == 0 {
			t.Errorf("%s: %v, %v", file, i, err)
		}
	}
	out := Compare(choice.Expected(s), grid, runs)
	if len(out) != 2 || !out[0].OK || out[1].OK {
		t.Errorf("the outcomes are %+v", out)
	}
	over, err := Replicate(t.Context(), s, &Choice{Cases: []string{"one"}}, 2, Work{})
	if err != nil || len(over) != 1 || !over[0].OK {
		t.Errorf("over two seeds: %+v, %v", over, err)
	}
}

func TestWorkEnds(t *testing.T) {
	s := load(t, "small.yaml", small)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	runs, err := Work{}.Run(ctx, []*sim.Scenario{s})
	if err != nil || len(runs) != 1 || runs[0] != nil {
		t.Fatalf("interrupted before it began: %v, %v", runs, err)
	}
	// Interrupted while it was being prepared, it has not begun, either, and what an earlier one has left stays.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	var kept []bool
	prepare := func(*sim.Scenario, *sim.Run) (func(bool) error, error) {
		cancel()
		return func(keep bool) error { kept = append(kept, keep); return nil }, nil
	}
	runs, err = Work{Attach: prepare}.Run(ctx, []*sim.Scenario{s})
	if err != nil || len(runs) != 1 || runs[0] != nil || !slices.Equal(kept, []bool{false}) {
		t.Fatalf("interrupted while it was being prepared: %v, %v, kept %v", runs, err, kept)
	}
	broken := errors.New("no space")
	w := Work{Attach: func(s *sim.Scenario, _ *sim.Run) (func(bool) error, error) {
		if s.Name == "two" {
			return nil, broken
		}
		return func(bool) error { return nil }, nil
	}}
	grid, err := (&Choice{}).Grid(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Run(t.Context(), grid); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "two: ") {
		t.Errorf("a run that cannot begin: %v", err)
	}
	if err := (&Outputs{IOLogs: []string{"csv"}}).Check(nil); err == nil {
		t.Error("a form that there is not is taken")
	}
}

// earlier is what a file of an earlier run has, also a log of I/Os.
const earlier = "fio version 3 iolog\n"

// TestInterrupted: what an earlier grid left stays of the runs that had not begun, which are nil, and of one that fails. No file
// is left half-written.
func TestInterrupted(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails=", fails), func(t *testing.T) { testInterrupted(t, fails) })
	}
}

// testInterrupted has the second of three runs end early: it fails, or is interrupted.
func testInterrupted(t *testing.T, fails bool) {
	s := load(t, "small.yaml", strings.Replace(small, "{name: one}, {name: two,", "{name: zero, set: {until: 1s}}, {name: one}, {name: two,", 1))
	grid, err := (&Choice{}).Grid(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := []string{"counters.parquet", "esxtop.csv", "io.fio", "io_lat.1.log", "pools.csv", "report.txt", "result.json", "volumes.csv"}
	for _, c := range grid {
		at := Folder(dir, len(grid), c)
		if err := os.Mkdir(at, 0o777); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(at, f), []byte(earlier), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	rec := &Outputs{Record: time.Second, IOLogs: []string{"fio"}, Dir: func(s *sim.Scenario) string { return Folder(dir, len(grid), s) }}
	ctx, cancel := context.WithCancel(t.Context())
	interrupt := func(s *sim.Scenario, r *sim.Run) error {
		if s.Name == "one" && fails {
			return errors.New("no space")
		}
		if s.Name == "one" {
			r.Every(1e9, func(int64) { cancel() })
		}
		return nil
	}
	runs, err := Work{Jobs: 1, Attach: behind(rec.Attach, interrupt)}.Run(ctx, grid)
	if fails {
		if err == nil {
			t.Fatal("a run that fails is no error")
		}
		cancel()
		if len(runs) != 3 || runs[0] == nil || runs[1] != nil || runs[2] != nil {
			t.Fatalf("the runs that had ended are %v", runs)
		}
		kept(t, dir, grid, files, 1)
		return
	}
	if err != nil || len(runs) != 3 || !runs[0].Ended() || runs[1] == nil || runs[1].Ended() || runs[2] != nil {
		t.Fatalf("interrupted in the second of three runs: %v, %v", runs, err)
	}
	kept(t, dir, grid, files, 2)
	if begun, those := Begun(grid, runs); len(begun) != 2 || len(those) != 2 || begun[1].Name != "one" {
		t.Errorf("the runs that had begun are %q", names(begun))
	}
}

// kept checks that the files of the first runs of a grid are new, those of the others the earlier ones, and that there are no parts.
func kept(t *testing.T, dir string, grid []*sim.Scenario, files []string, first int) {
	t.Helper()
	for i, c := range grid {
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(dir, c.Name, f))
			if err != nil || (string(b) == earlier) != (i >= first) {
				t.Errorf("%s of %s: %.20q, %v", f, c.Name, b, err)
			}
		}
	}
	if parts, err := filepath.Glob(filepath.Join(dir, "*", "*.part")); err != nil || len(parts) > 0 {
		t.Errorf("left behind: %q, %v", parts, err)
	}
}

func TestLoadTakesJobsOfFio(t *testing.T) {
	s := load(t, "reads.fio", "[reads]\nrw=randread\nbs=4k\niodepth=4\nruntime=1\ntime_based\nsize=64m\n")
	if len(s.Jobs) == 0 {
		t.Errorf("the scenario has no job: %+v", s)
	}
	for _, path := range []string{"none.yaml", t.TempDir()} {
		if _, _, err := Load(path, ""); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
}

// A cache that is a file goes over the link whole, one of blocks as far as it is full, and one that is dropped begins cold.
func TestMigration(t *testing.T) {
	got := map[string]Migrated{}
	for _, caches := range []string{"file", "blocks", "drop"} {
		m := Migration{Caches: caches, Size: 64 << 20, Memory: 64 << 20, WorkingSet: 8 << 20, Link: 1 << 30, Profile: "vnx-raid5"}
		r, err := m.Run()
		if err != nil {
			t.Fatal(err)
		}
		got[caches] = r
	}
	file, blocks, drop := got["file"], got["blocks"], got["drop"]
	if !(file.Bytes > blocks.Bytes && blocks.Bytes > drop.Bytes && drop.Bytes >= 64<<20) {
		t.Errorf("moved: file %d, blocks %d, drop %d", file.Bytes, blocks.Bytes, drop.Bytes)
	}
	if file.Before < 99 || file.After < 99 || drop.After > 90 || drop.Later < 99 {
		t.Errorf("hits: file %+v, drop %+v", file, drop)
	}
	if _, err := (&Migration{Caches: "burn", Size: 1 << 20, Memory: 1, WorkingSet: 1 << 20, Link: 1, Profile: "vnx-raid5"}).Run(); err == nil {
		t.Error("caches: burn is taken")
	}
	// One that takes more than 15 minutes has the figures of single seconds, too.
	long := Migration{Caches: "file", Size: 1 << 40, Memory: 1 << 30, WorkingSet: 8 << 20, Link: 1 << 30, Profile: "vnx-raid5"}
	if s, err := long.scenario(); err != nil || s.Series != 1e9 {
		t.Errorf("the scenario of a long one is %v, %v", s, err)
	}
}

// A percentile is the smallest latency that so many percent do not exceed, as fio's is; one beyond what was simulated is
// left out, and so is a figure that fio has not.
func TestCompareDirection(t *testing.T) {
	ns := make([]float64, 100)
	for i := range ns {
		ns[i] = float64(100-i) * 1e3
	}
	d := &fio.Direction{Count: 9, IOPS: 50}
	d.Completion.Percentiles = map[string]float64{"50.000000": 100e3, "99.900000": 1e3}
	c := compareDirection("j", "read", d, ns, 1e9)
	if len(c.Figures) != 2 || c.Figures[0] != (Residual{"iops", 50, 100, 1}) || c.Figures[1] != (Residual{"p50 us", 100, 50, -0.5}) {
		t.Errorf("got %+v", c)
	}
}
