package export

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/parquet-go/parquet-go"
)

// A file has so many snapshots, is complete when its name says so, and begins where the one before ends.
func TestRolling(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	r, err := NewRolling(dir, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := func() (out []string) {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			out = append(out, f.Name())
		}
		return out
	}
	source := metrics.Source(emitOne{})
	for i := range int64(3) {
		var s metrics.Snapshot
		s.Take(time.Date(2026, 1, 1, 12, 0, int(i), 5e6, time.UTC).UnixNano(), &sync.Mutex{}, source)
		if err := r.Write(&s); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"counters-20260101T120000.005Z.parquet", "counters-20260101T120002.005Z.parquet.part"}
	if got := names(); !slices.Equal(got, want) {
		t.Errorf("after three snapshots: %q", got)
	}
	for range 2 { // once more changes nothing
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want[1] = strings.TrimSuffix(want[1], ".part")
	if got := names(); !slices.Equal(got, want) {
		t.Errorf("after the end: %q", got)
	}
	for i, rows := range []int64{2, 1} {
		f, err := os.Open(filepath.Join(dir, want[i]))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		p, err := parquet.OpenFile(f, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		if p.NumRows() != rows {
			t.Errorf("%s: %d rows, want %d", want[i], p.NumRows(), rows)
		}
	}
	// A folder that is a file is refused.
	if _, err := NewRolling(filepath.Join(dir, want[0]), 2, 0); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// Of complete files the newest are kept, an earlier run's among them; nothing else is touched.
func TestRollingForgets(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"counters-20251231T235959.000Z.parquet", "counters-20251231T235958.000Z.parquet.part", "counters-mine.parquet", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewRolling(dir, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		var s metrics.Snapshot
		s.Take(time.Date(2026, 1, 1, 12, 0, i, 0, time.UTC).UnixNano(), &sync.Mutex{}, emitOne{})
		if err := r.Write(&s); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := os.Stat(filepath.Join(dir, "counters-20251231T235959.000Z.parquet")); err != nil {
				t.Errorf("two are kept, and there are two: %v", err)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Name())
	}
	want := []string{"counters-20251231T235958.000Z.parquet.part", "counters-20260101T120002.000Z.parquet", "counters-20260101T120003.000Z.parquet", "counters-mine.parquet", "notes"}
	if !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestRollingKeepsWhatIsNew: files of a clock that was ahead go first, and not what has just been recorded.
func TestRollingKeepsWhatIsNew(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"counters-20270101T000000.000Z.parquet", "counters-20270101T000001.000Z.parquet"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewRolling(dir, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		var s metrics.Snapshot
		s.Take(time.Date(2026, 1, 1, 12, 0, i, 0, time.UTC).UnixNano(), &sync.Mutex{}, emitOne{})
		if err := r.Write(&s); err != nil {
			t.Fatal(err)
		}
	}
	got, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(got) != 2 || filepath.Base(got[0]) != "counters-20260101T120000.000Z.parquet" || filepath.Base(got[1]) != "counters-20260101T120001.000Z.parquet" {
		t.Errorf("there are %q, %v", got, err)
	}
}

type emitOne struct{}

func (emitOne) Emit(e metrics.Emitter) { e.Value(metrics.CacheSize, 1) }
