package report

import (
	"path/filepath"
	"slices"
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
