package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
)

// serve starts an array of the demonstration's own in a folder that is there after the test has looked.
func serve(t *testing.T) *Array {
	t.Helper()
	var log bytes.Buffer
	a, err := Serve(t.Context(), filepath.Join(t.TempDir(), "array"), "127.0.0.1:0", &log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("the array ends with %v\n%s", err, log.String())
		}
		if _, err := os.Stat(a.Data); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its folder is left: %v", err)
		}
	})
	return a
}

// leastWait is what the median of the victim's writes is during the clone at least.
const leastWait = 100 * time.Millisecond

// TestRun: the clone is all undercover, it fills its pool's partition, and its victim waits for as long.
func TestRun(t *testing.T) {
	a := serve(t)
	var samples []Sample
	r, err := Run(t.Context(), Options{Array: a.Client, Every: 100 * time.Millisecond, Show: func(s Sample) { samples = append(samples, s) }})
	if err != nil {
		t.Fatal(err)
	}
	vols, err := a.Volumes(t.Context())
	if err != nil || len(vols) != 3 {
		t.Fatalf("it leaves %d volumes, %v", len(vols), err)
	}
	size := vols[0].Size
	if r.Golden != size || r.Cloned != size || r.Undercover != size || r.CloneWritten != 0 || r.CloneRead != 0 {
		t.Errorf("of %d bytes: %+v", size, r)
	}
	if r.Peak < 0.8 || r.Peak > 1 {
		t.Errorf("the clone held %.2f of its partition", r.Peak)
	}
	// Behind four copies of 2 MiB each a write waits half a second; a busy machine alone does not make it wait so long.
	if r.During.Median < leastWait || r.During.Median < 4*r.Before.Median || r.During.Median < 4*r.After.Median || r.Before.Writes == 0 || r.After.Writes == 0 {
		t.Errorf("the victim's writes: before %+v, during %+v, after %+v", r.Before, r.During, r.After)
	}
	var undercover, written admin.Size
	var phases []Phase
	for _, s := range samples {
		undercover += s.Volumes[1].Undercover
		written += s.Volumes[1].Written
		if len(phases) == 0 || phases[len(phases)-1] != s.Phase {
			phases = append(phases, s.Phase)
		}
		if s.Done > s.Total {
			t.Errorf("%d of %d bytes are done", s.Done, s.Total)
		}
	}
	if undercover != size || written != 0 {
		t.Errorf("the samples add up to %d bytes undercover and %d written", undercover, written)
	}
	if len(phases) != 4 {
		t.Errorf("the phases are %v", phases)
	}
	if err := Remove(t.Context(), a.Client); err != nil {
		t.Fatal(err)
	}
	if pools, err := a.Pools(t.Context()); err != nil || len(pools) != 0 {
		t.Errorf("Remove leaves %d pools, %v", len(pools), err)
	}
}

// TestInterrupted: a demonstration ends with its context, in whatever phase.
func TestInterrupted(t *testing.T) {
	a := serve(t)
	for _, phase := range []Phase{Filling, Cloning} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Run(ctx, Options{Array: a.Client, Every: 10 * time.Millisecond, Show: func(s Sample) {
			if s.Phase == phase {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted in phase %s it ends with %v", phase, err)
		}
	}
}

// TestFolderInUse: an array of the demonstration's own takes no folder that holds something.
func TestFolderInUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(t.Context(), dir, "127.0.0.1:0", &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "--running") {
		t.Errorf("Serve gives %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Error(err)
	}
}

// TestTakenPage: an array whose page has no address is not left half started.
func TestTakenPage(t *testing.T) {
	a := serve(t)
	s, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	taken := strings.TrimSuffix(strings.TrimPrefix(s.Page, "http://"), "/")
	dir := filepath.Join(t.TempDir(), "second")
	if _, err := Serve(t.Context(), dir, taken, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("Serve gives %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestFreeLUNs(t *testing.T) {
	exports := []admin.Export{{LUN: 0}, {LUN: 5}, {LUN: 7}}
	if got := freeLUNs(exports, 5); got != [3]int{6, 8, 9} {
		t.Errorf("free are %v", got)
	}
}
