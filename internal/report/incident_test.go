package report

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// An hour of document 001's scenario as its statistics files tell it, a sample every 5 minutes: both
// towers, what was copied to and its pool. 001-iostats.md has the commands that made the archive.
func TestIncidentFromItsStatistics(t *testing.T) {
	dir := testkit.Unpack(t, "../../testdata/report/001-iostats.tar.gz")
	check := func(pool string) {
		t.Helper()
		d := load1(t, dir, Options{})
		f := detect(d)
		if len(d.Times) != 12 || f.Step != 300 {
			t.Fatalf("%d samples of %v s", len(d.Times), f.Step)
		}
		if got := culprits(f); len(got) != 1 || got[0] != "vmvdi03_v02" {
			t.Errorf("%v are accused", got)
		}
		bytes := 0.0
		for _, u := range f.Undercover {
			bytes += u.Bytes
			if u.Pool != pool || u.Margin < 1.65 {
				t.Errorf("%+v; the pool is %s", u, pool)
			}
		}
		// Two clones of 112 GiB.
		if done := 2 * 112 * float64(1<<30); bytes < 0.95*done || bytes > 1.02*done {
			t.Errorf("%s were written undercover, of %s", size(bytes), size(done))
		}
		if len(f.Towers) != 2 {
			t.Fatalf("%d towers: %+v", len(f.Towers), f.Towers)
		}
		for i, begin := range []string{"2026-01-01 00:10:00", "2026-01-01 00:25:00"} {
			w := f.Towers[i]
			if w.Pool != pool || w.From != begin || w.Cause != "undercover" || w.Culprit != "vmvdi03_v02" || w.Height < 0.5 || w.Volumes < 250 {
				t.Errorf("tower %d: %+v", i+1, w)
			}
			at := 0
			for d.Pools[at].Name != pool {
				at++
			}
			if s, m := d.fit(&w, d.Pools[at], d.of(pool), w.culprit); s == nil || m == nil {
				t.Errorf("tower %d: the counters do not fit a model, so nobody says what the cap and the offload have of it", i+1)
			}
		}
	}
	check("mdg1")
	// The names of pools are in no XML: without the listings they have numbers.
	if err := errors.Join(os.Remove(filepath.Join(dir, "lsvdisk")), os.Remove(filepath.Join(dir, "lsmdiskgrp"))); err != nil {
		t.Fatal(err)
	}
	check("mdg0")
}
