package experiment

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
)

// behind is an attachment with something behind it that may fail before the run has begun.
func behind(first Attachment, then func(*sim.Scenario, *sim.Run) error) Attachment {
	return func(s *sim.Scenario, r *sim.Run) (func(bool) error, error) {
		done, err := first(s, r)
		if err != nil {
			return nil, err
		}
		if err := then(s, r); err != nil {
			return nil, errors.Join(err, done(false))
		}
		return done, nil
	}
}

// leaves runs the cases of a scenario into a folder and returns the names of what is there. A run that breaks ends before its end.
func leaves(t *testing.T, dir string, interval time.Duration, breaks bool, cases ...string) []string {
	t.Helper()
	grid, err := (&Choice{Cases: cases}).Grid(load(t, "small.yaml", small))
	if err != nil {
		t.Fatal(err)
	}
	out := &Outputs{Record: interval, Dir: func(s *sim.Scenario) string { return Folder(dir, len(grid), s) }}
	if interval > 0 {
		out.IOLogs = []string{"fio"}
	}
	watch := out.Attach
	if breaks {
		watch = behind(watch, func(*sim.Scenario, *sim.Run) error { return errors.New("no space") })
	}
	_, err = Work{Jobs: 1, Attach: watch}.Run(t.Context(), grid)
	if (err != nil) != breaks {
		t.Fatal(err)
	}
	return found(t, dir)
}

// found returns the paths of all files of a folder, in order.
func found(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && (!d.IsDir() || strings.HasSuffix(path, ".part")) {
			path, err = filepath.Rel(dir, path)
			all = append(all, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
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
		return &Outputs{Record: record, IOLogs: IOLogs, Dir: func(*sim.Scenario) string { return dir }}
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
		{"statistics of an array that is served beside a run's", time.Second, file(iostatsFolder, "Nv_stats_000000_261130_120000"), false, "statistics files that are not of a run"},
		{"lists of an array", 0, file(iostatsFolder, "lsvdisk"), false, "statistics files that are not of a run"},
		{"a log of I/Os of others", never, file("io_lat.1.log"), false, "not of a run that came to its end"},
		{"a job file of the log's name", time.Second, file("io.fio"), false, "is no log of I/Os"},
		{"an exported table", 0, file("counters.csv"), false, "would be read as this run's"},
		{"a recording of a daemon", 0, file("counters-20261130T120000.000Z.parquet"), false, "would be read as this run's"},
		{"one that has begun", 0, file("counters-20261130T120000.000Z.parquet.part"), false, "would be read as this run's"},
		{"something called as a whole run", 0, file(wholeFolder, "notes"), false, "is not of a run"},
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
	alone := &Outputs{Dir: func(*sim.Scenario) string { return dir }}
	done, err := alone.Attach(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Attach(nil, nil); err == nil || !strings.Contains(err.Error(), "another run writes into") {
		t.Errorf("two runs at a time: %v", err)
	}
	if _, err := LockFolder(dir); err == nil || !strings.Contains(err.Error(), "another run writes into") {
		t.Errorf("a grid where a run is: %v", err)
	}
	if err := done(false); err != nil {
		t.Error(err)
	}
	unlock, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Attach(nil, nil); err == nil || !strings.Contains(err.Error(), "another run writes into") {
		t.Errorf("a run where a grid is: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// TestNoRoomForARun: where a run's files cannot be written, those of the earlier run stay, and what was written of it goes.
func TestNoRoomForARun(t *testing.T) {
	dir := t.TempDir()
	before := leaves(t, dir, time.Second, false, "one")
	f, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err := errors.Join(err, f.begin(), f.write(reportFile, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err })); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space")
	if err := f.write(seriesFile, func(io.Writer) error { return full }); !errors.Is(err, full) {
		t.Fatal(err)
	}
	if err := errors.Join(f.drop(), f.close()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, reportFile)); err != nil || string(got) != string(text) {
		t.Errorf("the report is another one, %v", err)
	}
	if after := found(t, dir); !slices.Equal(after, before) {
		t.Errorf("there are %q, want %q", after, before)
	}
	// What a run that was killed has left goes, and what only has its name stays.
	for _, name := range []string{"run.00000001.part/" + tableFile, "run.mine.part/notes", "run.00000002.part"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	if f, err = openFolder(dir); err == nil {
		err = f.close()
	}
	with := append([]string{"run.00000002.part", "run.mine.part", "run.mine.part/notes"}, before...)
	if after := found(t, dir); err != nil || !slices.Equal(after, slices.Sorted(slices.Values(with))) {
		t.Errorf("there are %q, want %q, %v", after, with, err)
	}
	// A folder in which nothing can be made is no folder for a run, which says so before it begins.
	refuses := map[string]error{"/proc/self": nil} // to everybody, root included
	if os.Geteuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o700)
		refuses[dir] = fs.ErrPermission
	}
	for dir, why := range refuses {
		_, err := (&Outputs{Dir: func(*sim.Scenario) string { return dir }}).Attach(nil, nil)
		if err == nil || why != nil && !errors.Is(err, why) {
			t.Errorf("in %s, where nothing can be made: %v", dir, err)
		}
	}
}

// TestDeathsWhileARunIsPlaced: wherever a process dies whose run takes the place of an earlier one, the next one finds the later run
// whole, with what others have put beside it, and until then a report has one of the two or none.
func TestDeathsWhileARunIsPlaced(t *testing.T) {
	const interval, notes = time.Second, "notes"
	earlier, later := t.TempDir(), t.TempDir()
	leaves(t, earlier, interval, false, "one")
	for _, record := range []time.Duration{0, 2 * interval} {
		want := leaves(t, later, record, false, "two")
		for n := 0; ; n++ {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(earlier)); err != nil {
				t.Fatal(err)
			}
			for _, mine := range []string{notes, filepath.Join(iostatsFolder, notes)} {
				if err := os.WriteFile(filepath.Join(dir, mine), nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			f := &folder{dir: dir}
			if err := os.CopyFS(f.whole(), os.DirFS(later)); err != nil {
				t.Fatal(err)
			}
			steps := f.steps()
			for _, step := range steps[:n] {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			if runs, err := report.LoadRuns(t.Context(), dir, report.Options{}); err == nil && len(runs) != 1 || err != nil && !errors.Is(err, report.ErrNoCounters) {
				t.Errorf("behind %d of %d steps a report has %d runs, %v", n, len(steps), len(runs), err)
			}
			oneRun(t, dir, later)
			out := &Outputs{Record: time.Second, Dir: func(*sim.Scenario) string { return dir }}
			if err := out.Check([]*sim.Scenario{{}}); err != nil {
				t.Errorf("behind %d of %d steps: %v", n, len(steps), err)
			}
			done, err := (&Outputs{Dir: out.Dir}).Attach(nil, nil)
			if err == nil {
				err = done(false)
			}
			if err != nil {
				t.Fatalf("behind %d of %d steps: %v", n, len(steps), err)
			}
			all := append([]string{notes, filepath.Join(iostatsFolder, notes)}, want...)
			if record == 0 {
				all = append(all, fioFile, "io_lat.1.log") // of the earlier run
			}
			if got := found(t, dir); !slices.Equal(got, slices.Sorted(slices.Values(all))) {
				t.Errorf("behind %d of %d steps the next run finds %q, want %q", n, len(steps), got, all)
			}
			for _, name := range want {
				a, erra := os.ReadFile(filepath.Join(dir, name))
				b, errb := os.ReadFile(filepath.Join(later, name))
				if err := errors.Join(erra, errb); err != nil || !bytes.Equal(a, b) {
					t.Errorf("behind %d of %d steps %s is not the later run's, %v", n, len(steps), name, err)
				}
			}
			if n == len(steps) {
				break
			}
		}
	}
}

// oneRun checks that what a report reads in a folder is all of the run of another folder, or nothing is.
func oneRun(t *testing.T, dir, later string) {
	t.Helper()
	if !exists(filepath.Join(dir, seriesFile)) {
		return // and with a table alone, which has it all, there is no report.txt to read
	}
	theirs := map[bool][]string{}
	for _, name := range []string{seriesFile, reportFile, tableFile} {
		a, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b, _ := os.ReadFile(filepath.Join(later, name)) // none is another one
		if err != nil {
			t.Fatal(err)
		}
		theirs[bytes.Equal(a, b)] = append(theirs[bytes.Equal(a, b)], name)
	}
	if len(theirs) > 1 {
		t.Errorf("the later run has %q, the earlier one %q", theirs[true], theirs[false])
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
	look := func(s *sim.Scenario, _ *sim.Run) error {
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
		return nil
	}
	if _, err := (Work{Jobs: 1, Attach: behind(out.Attach, look)}).Run(t.Context(), grid); err != nil {
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
