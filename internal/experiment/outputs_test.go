package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
)

// leaves runs the cases of a scenario into a folder and returns the names of what is there. A run that breaks ends before its end.
func leaves(t *testing.T, dir string, interval time.Duration, breaks bool, cases ...string) []string {
	t.Helper()
	grid, err := (&Choice{Cases: cases}).Grid(load(t, "small.yaml", small))
	if err != nil {
		t.Fatal(err)
	}
	at := func(s *sim.Scenario) string { return Folder(dir, len(grid), s) }
	var all []Attachment
	if interval > 0 {
		log, err := NewIOLog([]string{"fio"}, at)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, log.Attach)
	}
	all = append(all, (&Outputs{Dir: at, Record: interval}).Attach)
	if breaks {
		all = append(all, func(*sim.Scenario, *sim.Run) (func(bool) error, error) { return nil, errors.New("no space") })
	}
	_, err = Work{Jobs: 1, Attach: Together(all)}.Run(t.Context(), grid)
	if (err != nil) != breaks {
		t.Fatal(err)
	}
	var found []string
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path, err = filepath.Rel(dir, path)
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestOutputsAreOfOneRun: a run removes what an earlier one has left in its folder and it does not have, and nothing else. One that
// fails removes nothing.
func TestOutputsAreOfOneRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out[1]")
	own := []string{"counters.txt", "events.log", "pools.csv", "report.txt", "result.json", "volumes.csv"}
	recorded := slices.Sorted(slices.Values(append([]string{"counters.parquet", "esxtop.csv", "io.fio", "io_lat.1.log"}, own...)))
	sets := func(found []string) (rest []string, n int) {
		rest = slices.DeleteFunc(slices.Clone(found), func(f string) bool { return strings.HasPrefix(f, "iostats") })
		for _, f := range found {
			if strings.HasPrefix(f, "iostats/Nv_stats_") {
				n++
			}
		}
		return rest, n
	}
	first := leaves(t, dir, time.Second, false, "one")
	rest, n := sets(first)
	if !slices.Equal(rest, recorded) || n < 2 {
		t.Fatalf("a recorded run leaves %q", first)
	}
	if got := leaves(t, dir, time.Second, true, "one"); !slices.Equal(got, first) {
		t.Errorf("after one that fails there are %q, want %q", got, first)
	}
	if _, shorter := sets(leaves(t, dir, 2*time.Second, false, "one")); shorter >= n {
		t.Errorf("%d sets of a run with half of the readings of one that had %d", shorter, n)
	}
	for _, mine := range []string{"notes", "iostats/notes"} {
		if err := os.WriteFile(filepath.Join(dir, mine), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	with := func(more ...string) []string { return slices.Sorted(slices.Values(append(more, own...))) }
	if got := leaves(t, dir, 0, false, "two"); !slices.Equal(slices.Sorted(slices.Values(got)), with("notes", "iostats/notes", "io.fio", "io_lat.1.log")) {
		t.Errorf("after one that is not recorded there are %q", got)
	}
	got := leaves(t, dir, 100*time.Millisecond, false, "one")
	if rest, n := sets(got); n != 0 || !slices.Equal(rest, slices.Sorted(slices.Values(append([]string{"notes"}, recorded...)))) {
		t.Errorf("with ten readings a second there are %q", got)
	}
	// Cases have folders of their own, and not beside the files of a single run.
	grid := []*sim.Scenario{{Name: "one"}, {Name: "two"}}
	if err := CheckFolders(dir, grid); err == nil || !strings.Contains(err.Error(), "has the files of a single run") {
		t.Errorf("two cases where a single run was: %v", err)
	}
	if err := CheckFolders(filepath.Dir(dir), grid); err != nil {
		t.Errorf("two cases elsewhere: %v", err)
	}
}

// TestFoldersOfOthers: where files are that no run has left, and that a run would replace or a report take for the run's, none begins.
func TestFoldersOfOthers(t *testing.T) {
	out := func(dir string, record time.Duration) *Outputs {
		return &Outputs{Record: record, Dir: func(*sim.Scenario) string { return dir }}
	}
	file := func(path ...string) func(dir string) error {
		return func(dir string) error {
			at := filepath.Join(append([]string{dir}, path...)...)
			return errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, nil, 0o666))
		}
	}
	link := func(name string) func(dir string) error {
		return func(dir string) error {
			at := filepath.Join(dir, name)
			return errors.Join(os.RemoveAll(at), os.Symlink(filepath.Join(dir, "elsewhere"), at))
		}
	}
	const never = time.Duration(-1)
	for _, row := range []struct {
		name     string
		ran      time.Duration // a run was here, recorded at this interval; never: none
		make     func(dir string) error
		recorded bool // it only keeps a recorded run away
		want     string
	}{
		{"a table", never, file(tableFile), false, "not of a run that came to its end"},
		{"a capture of esxtop", never, file(esxtopFile), true, "not of a run that came to its end"},
		{"a report", never, file("report.txt"), false, "not of a run that came to its end"},
		{"statistics of an array", never, file(iostatsFolder, "Nv_stats_78G01A6-1_261130_120000"), false, "statistics files that are not of a run"},
		{"statistics of a run that was cut off", never, file(iostatsFolder, "Nv_stats_000000_260101_000001"), false, "statistics files that are not of a run"},
		{"a table beside a run", 0, file(tableFile), false, "not of the run that was here"},
		{"a capture beside a run", 0, file(esxtopFile), true, "not of the run that was here"},
		{"a table whose capture was removed", time.Second, func(dir string) error { return os.Remove(filepath.Join(dir, esxtopFile)) }, false, "not of the run that was here"},
		{"a report that was removed", time.Second, func(dir string) error { return os.Remove(filepath.Join(dir, "report.txt")) }, false, "not of a run that came to its end"},
		{"statistics of an array that is served beside a run", 0, file(iostatsFolder, "Nv_stats_000000_261130_120000"), false, "statistics files that are not of a run"},
		{"statistics of an array beside a run's", time.Second, file(iostatsFolder, "Nv_stats_78G01A6-1_261130_120000"), false, "statistics files that are not of a run"},
		{"an exported table", 0, file("counters.csv"), false, "would be read as this run's"},
		{"a recording of a daemon", 0, file("counters-20261130T120000.000Z.parquet"), false, "would be read as this run's"},
		{"one that has begun", 0, file("counters-20261130T120000.000Z.parquet.part"), false, "would be read as this run's"},
		{"a link to a table", time.Second, link(tableFile), false, "is not a plain file"},
		{"a link to statistics", 0, link(iostatsFolder), false, "is not a folder"},
	} {
		dir := filepath.Join(t.TempDir(), "out[1]")
		if row.ran != never {
			leaves(t, dir, row.ran, false, "one")
		} else if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := out(dir, time.Second).Check([]*sim.Scenario{{}}); err != nil {
			t.Fatalf("%s: before it is there: %v", row.name, err)
		}
		if err := row.make(dir); err != nil {
			t.Fatal(err)
		}
		for _, record := range []time.Duration{0, time.Millisecond, time.Second} {
			err := out(dir, record).Check([]*sim.Scenario{{}})
			if row.recorded && record == 0 {
				if err != nil {
					t.Errorf("%s keeps a run away: %v", row.name, err)
				}
				if row.ran != never && !slices.Contains(leaves(t, dir, 0, false, "one"), esxtopFile) {
					t.Errorf("%s: a run has removed it", row.name)
				}
			} else if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "give another --out") {
				t.Errorf("%s, recorded every %v: %v", row.name, record, err)
			}
		}
	}
	dir := t.TempDir()
	done, err := out(dir, 0).Attach(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out(dir, 0).Attach(nil, nil); err == nil || !strings.Contains(err.Error(), "another run writes into") {
		t.Errorf("two runs at a time: %v", err)
	}
	if err := done(false); err != nil {
		t.Error(err)
	}
}

// TestNoRoomForARun: where a run's files cannot be written, those of the earlier run stay.
func TestNoRoomForARun(t *testing.T) {
	dir := t.TempDir()
	before := leaves(t, dir, time.Second, false, "one")
	text, err := os.ReadFile(filepath.Join(dir, "report.txt"))
	if err != nil {
		t.Fatal(err)
	}
	series := filepath.Join(dir, seriesFile)
	if err := errors.Join(os.Remove(series), os.Mkdir(series, 0o777)); err != nil { // no file can be made there
		t.Fatal(err)
	}
	if err := replaceRun(dir, map[string][]byte{"report.txt": []byte("new"), "result.json": []byte("{}"), seriesFile: nil}); err == nil {
		t.Fatal("a folder was replaced by a file")
	}
	if got, err := os.ReadFile(filepath.Join(dir, "report.txt")); err != nil || string(got) != string(text) {
		t.Errorf("the report is another one, %v", err)
	}
	for _, name := range before {
		if !exists(filepath.Join(dir, name)) {
			t.Errorf("%s has gone", name)
		}
	}
}

// TestOutputsOfEachRun: a run's files are there when it ends, whole, though the runs after it go on.
func TestOutputsOfEachRun(t *testing.T) {
	dir := t.TempDir()
	grid, err := (&Choice{}).Grid(load(t, "small.yaml", small))
	if err != nil {
		t.Fatal(err)
	}
	out := &Outputs{Record: time.Second, Dir: func(s *sim.Scenario) string { return Folder(dir, len(grid), s) }}
	seen := 0
	look := func(s *sim.Scenario, _ *sim.Run) (func(bool) error, error) {
		for _, c := range grid {
			if c == s {
				break
			}
			seen++
			for _, name := range append([]string{tableFile, esxtopFile, iostatsFolder}, evidence...) {
				if !exists(filepath.Join(out.Dir(c), name)) {
					t.Errorf("%s begins, and %s has left no %s", s.Name, c.Name, name)
				}
			}
		}
		return func(bool) error { return nil }, nil
	}
	if _, err := (Work{Jobs: 1, Attach: Together([]Attachment{out.Attach, look})}).Run(t.Context(), grid); err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("the scenario has one case")
	}
	// What others leave in a run's folder is not the run's.
	alone := t.TempDir()
	leaves(t, alone, 0, false, "one")
	for _, name := range []string{"Nv_stats_78G01A6-1_261130_120000", "array/Nn_stats_78G01A6-1_261130_120000"} {
		path := filepath.Join(alone, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte("<"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{alone, alone + "/"} {
		if _, err := report.LoadRun(t.Context(), dir, report.Options{}); err != nil {
			t.Errorf("a report of %s: %v", dir, err)
		}
	}
	// The folder stands for its runs, and has no counters itself.
	runs, err := report.LoadRuns(t.Context(), dir, report.Options{})
	if err != nil || len(runs) != len(grid) {
		t.Errorf("a report of the folder has %d runs, %v", len(runs), err)
	}
}
