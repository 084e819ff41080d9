package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	refused := func(dir, why string) {
		t.Helper()
		out := &Outputs{Record: time.Second, Dir: func(*sim.Scenario) string { return dir }}
		if err := out.Check([]*sim.Scenario{{}}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("a recording in a folder with files of others: %v", err)
		}
	}
	// A folder in which no run was keeps what has such a name.
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "counters.parquet"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	refused(other, "no run that ended has left")
	if got := leaves(t, other, 0, false, "one"); !slices.Contains(got, "counters.parquet") {
		t.Errorf("in a folder of others there are %q", got)
	}
	// Statistics of others are no run's to replace.
	foreign := t.TempDir()
	set := filepath.Join(foreign, "iostats", "Nv_stats_78G01A6-1_261130_120000")
	if err := errors.Join(os.Mkdir(filepath.Dir(set), 0o777), os.WriteFile(set, nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	refused(foreign, "has statistics files of others")
	if _, err := os.Stat(set); err != nil {
		t.Error(err)
	}
	// Nor beside the files of a run: there the run's own go, and those of others stay with their lists.
	if got := leaves(t, foreign, 0, false, "one"); !slices.Contains(got, "iostats/"+filepath.Base(set)) {
		t.Errorf("beside statistics of others a run leaves %q", got)
	}
	for _, name := range []string{"lsvdisk", "Nv_stats_000000_260101_000001"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(set), name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	refused(foreign, "has statistics files of others")
	got = slices.DeleteFunc(leaves(t, foreign, 0, false, "one"), func(f string) bool { return !strings.HasPrefix(f, "iostats") })
	if !slices.Equal(got, []string{"iostats/" + filepath.Base(set), "iostats/lsvdisk"}) {
		t.Errorf("of the statistics of a run and of others there are %q", got)
	}
	// What a link leads to is not the run's.
	linked := t.TempDir()
	mine := filepath.Join(t.TempDir(), "Nv_stats_000000_260101_000001")
	leaves(t, linked, 0, false, "one")
	if err := errors.Join(os.WriteFile(mine, nil, 0o666), os.Symlink(filepath.Dir(mine), filepath.Join(linked, "iostats"))); err != nil {
		t.Fatal(err)
	}
	leaves(t, linked, 0, false, "one")
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
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
}
