package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// TestRecordedFolder: a folder of serve --record is read from all its tables, not from the few sets of statistics files beside them.
func TestRecordedFolder(t *testing.T) {
	dir := t.TempDir()
	table, err := export.NewRolling(dir, 30, 0)
	if err != nil {
		t.Fatal(err)
	}
	statistics, err := export.NewIOStats(filepath.Join(dir, "iostats"), export.IOStatsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rec Recorder
	s := newModel(5, "offload", true)
	var snap metrics.Snapshot
	for range 70 {
		s.array.step()
		s.array.snapshot(&snap)
		for _, w := range []export.SnapshotWriter{table, statistics, &rec} {
			if err := w.Write(&snap); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "counters-*.parquet")); len(files) != 3 {
		t.Fatalf("recorded: %q", files)
	}
	got, want := load1(t, dir, Options{}), rec.Data("live")
	if !slices.Equal(got.Times, want.Times) || len(got.Volumes) != len(want.Volumes) {
		t.Errorf("read %d samples of %d volumes, want %d of %d", len(got.Times), len(got.Volumes), len(want.Times), len(want.Volumes))
	}
	// The mapping of another source is not for this one.
	if _, err := Load(t.Context(), filepath.Join(dir, "iostats"), Options{Mapping: "none"}); err != nil {
		t.Error(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, export.RollingFiles))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), files[0], Options{Mapping: "none"}); err != nil {
		t.Error(err)
	}
}

// recordFiles records n snapshots of a model, perFile to a file, whose times are moved as the clock of the machine may be.
func recordFiles(t *testing.T, dir string, n, perFile int, moved func(i int, at int64) int64) *export.Rolling {
	t.Helper()
	table, err := export.NewRolling(dir, perFile, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := newModel(5, "offload", true)
	var snap metrics.Snapshot
	for i := range n {
		s.array.step()
		s.array.snapshot(&snap)
		snap.Time = moved(i, snap.Time)
		if err := table.Write(&snap); err != nil {
			t.Fatal(err)
		}
	}
	return table
}

// TestRecordedClockStepsBack: a clock that was set back takes nothing but the samples about it from a recording.
func TestRecordedClockStepsBack(t *testing.T) {
	dir := t.TempDir()
	table := recordFiles(t, dir, 30, 10, func(i int, at int64) int64 {
		if i >= 15 {
			at -= 3_500_000_000
		}
		return at
	})
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	d := load1(t, dir, Options{})
	if len(d.Times) != 29 || !slices.IsSorted(d.Times) {
		t.Errorf("read %d samples at %d, want 29 in their order", len(d.Times), d.Times)
	}
	if !slices.ContainsFunc(d.Notes, func(n string) bool { return strings.HasPrefix(n, "the clock of the readings went back to ") }) {
		t.Errorf("notes are %q", d.Notes)
	}
}

// TestEmptyRecordedFile: a file of a recording that is empty is an error, not the end of all that follow.
func TestEmptyRecordedFile(t *testing.T) {
	dir := t.TempDir()
	if err := recordFiles(t, dir, 4, 2, func(_ int, at int64) int64 { return at }).Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, export.RollingFiles))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	if err := os.Truncate(files[1], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), dir, Options{}); err == nil || !strings.Contains(err.Error(), filepath.Base(files[1])+": the file is empty") {
		t.Errorf("got %v", err)
	}
}

// TestFileBeingRecorded: what is recorded in a file that is not complete yet is told to be left out, unless it is older.
func TestFileBeingRecorded(t *testing.T) {
	dir := t.TempDir()
	table := recordFiles(t, dir, 5, 2, func(_ int, at int64) int64 { return at })
	parts, err := filepath.Glob(filepath.Join(dir, export.RollingFiles+".part"))
	if err != nil || len(parts) != 1 {
		t.Fatal(parts, err)
	}
	leftOut := func() (out []string) {
		for _, n := range load1(t, dir, Options{}).Notes {
			if strings.Contains(n, "not complete") {
				out = append(out, n)
			}
		}
		return out
	}
	want := "readings since 1970-01-01T00:00:05Z are left out: " + filepath.Base(parts[0]) + " is not complete yet"
	if got := leftOut(); !slices.Equal(got, []string{want}) {
		t.Errorf("notes are %q, want %q", got, want)
	}
	if err := os.Mkdir(filepath.Join(dir, "iostats"), 0o777); err != nil {
		t.Fatal(err)
	}
	if got := leftOut(); !slices.Equal(got, []string{want + "; iostats/ in the same folder has the last ones"}) {
		t.Errorf("with iostats, notes are %q", got)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "counters-19691231T235959.000Z.parquet.part"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := leftOut(); len(got) > 0 {
		t.Errorf("of a file that is older: %q", got)
	}
}
