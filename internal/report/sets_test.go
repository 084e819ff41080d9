package report

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// Statistics files of a second each are read as what they are: a set is not taken for a part of
// the one a second before, and a file that is there twice is an error.
func TestSetsOfASecond(t *testing.T) {
	dir := t.TempDir()
	w, err := export.NewIOStats(dir, export.IOStatsOptions{Keep: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var rec Recorder
	s := newModel(5, "offload", true)
	var snap metrics.Snapshot
	for range 30 {
		s.array.step()
		s.array.snapshot(&snap)
		for _, x := range []export.SnapshotWriter{w, &rec} {
			if err := x.Write(&snap); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, got := rec.Data("live"), load1(t, dir, Options{})
	if len(got.Times) != len(want.Times) || got.Step() != 1 {
		t.Fatalf("%d samples of %v s, want %d of 1 s", len(got.Times), got.Step(), len(want.Times))
	}
	for k, v := range got.Volumes {
		for i, x := range v.Host[write] {
			if y := want.Volumes[k].Host[write][i]; math.Abs(x-y) > 512 {
				t.Fatalf("%s, sample %d: hosts wrote %v B/s, want %v", v.Name, i, x, y)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "Nv_stats*"))
	if err != nil || len(files) != 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	text, err := os.ReadFile(files[3])
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(dir, "again")
	if err := os.Mkdir(again, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(again, filepath.Base(files[3])), text, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), dir, Options{}); err == nil || !strings.Contains(err.Error(), "there is another file of Nv_stats_") {
		t.Errorf("a file that appears twice: %v", err)
	}
}
