//go:build !noparquet

package main

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/fit"
)

// TestFittedProfilePredicts: the profile that --out writes makes the predictions that were printed, with settings that the
// data do not determine and numbers of servers that lie between two whole ones.
func TestFittedProfilePredicts(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	m := &fit.Model{Profile: "all-flash", Seed: 1}
	params, err := m.Parameters([]string{"cache.read", "mdisks.default.base", "mdisks.default.parallel"})
	if err != nil {
		t.Fatal(err)
	}
	var obs []fit.Observation
	for _, depth := range []int{1, 2, 3, 4, 6, 8, 12, 16} {
		o := fit.Observation{Load: fit.Load{IO: 4096, Outstanding: depth}, Spread: 0.5, N: 5000}
		if o.Mean, _, err = m.Latency(&o, params, []float64{40e3, 700e3, 3.5}); err != nil {
			t.Fatal(err)
		}
		obs = append(obs, o)
	}
	got, err := fit.Run(context.Background(), obs, fit.Options{Model: m, Free: []string{"cache.read", "mdisks.default.base", "mdisks.default.parallel"}, HoldOut: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	f := &fitFlags{start: "all-flash", out: filepath.Join(t.TempDir(), "mine.yaml")}
	if err := writeFitted(f, got, []string{"made"}); err != nil {
		t.Fatal(err)
	}
	written := &fit.Model{Profile: f.out, Seed: 1}
	for _, r := range got.Residuals {
		mean, _, err := written.Latency(&r.Observation, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(mean/r.Predicted-1) > 1e-9 {
			t.Errorf("%s: the written profile has %.3f ms, the fit printed %.3f ms", r.Load, mean*1e3, r.Predicted*1e3)
		}
	}
	if median, worst, n := got.Errors(true); n != 2 || worst > 0.1 {
		t.Errorf("%d held out: median %.1f %%, worst %.1f %%", n, 100*median, 100*worst)
	}
}

// TestFitSaysWhatItKnows: a setting of which an interval is too wide may have data that depend on it, and contradict each other.
func TestFitSaysWhatItKnows(t *testing.T) {
	var b strings.Builder
	writeFit(&b, &fit.Fit{Level: 0.95, Confused: [][]string{{"cache.read"}, {"cache.read", "link.bandwidth"}}})
	for _, want := range []string{"does not determine cache.read:", "cannot separate cache.read, link.bandwidth:"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
}
