//go:build !race

package sim

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var replicates = flag.Int("replicates", 3, "seeds of TestReplicates; with more than 3 it runs every scenario, proofs left out")

// replicated are the scenarios that runs of 3 seeds take: a second of a core, each. More seeds take all, as the proof of replicates.
var replicated = []string{"node-loss", "pinned-data"}

// TestReplicates holds the 95 % interval of each figure's mean over several seeds to the expectations.
func TestReplicates(t *testing.T) {
	if testing.Short() {
		t.Skip("the same runs with other seeds")
	}
	names := replicated
	if *replicates > 3 {
		files, err := filepath.Glob("../../testdata/scenarios/*.yaml")
		if err != nil || len(files) < 14 {
			t.Fatalf("found %d scenarios: %v", len(files), err)
		}
		names = nil
		for _, f := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(f), ".yaml"))
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("../../testdata/scenarios/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range replicate(t, s, *replicates) {
				if t.Logf("%s: %s, expected %s, %s +-%s", o.Kind, o.name(), o.Want, figure(o.Ours), figure(o.Half)); !o.OK {
					t.Errorf("%s: %s: expected %s, over %d seeds %s +-%s %s", o.Kind, o.name(), o.Want, *replicates, figure(o.Ours), figure(o.Half), o.Problem)
				}
			}
		})
	}
}

// replicate runs the scenario's cases, proofs and, of few seeds, long ones left out, with so many seeds.
func replicate(t *testing.T, s *Scenario, seeds int) []Outcome {
	left := map[string]bool{}
	var all *Replicates
	for i := range seeds {
		seed := s.Seed + uint64(i)
		c, err := s.Set("seed", seed)
		if err != nil {
			t.Fatal(err)
		}
		grid, err := c.Runs()
		if err != nil {
			t.Fatal(err)
		}
		runs := map[string]*Run{}
		for _, g := range grid {
			if left[g.Name] = g.Proof || g.Long && seeds <= 3; left[g.Name] {
				continue
			}
			if runs[g.Name], err = carryOut(g); err != nil {
				t.Fatalf("%s with seed %d: %v", g.Name, seed, err)
			}
		}
		if all == nil {
			var kept []Expect
			for _, e := range s.Expect {
				if !left[e.Case] && !left[e.TimesCase] {
					kept = append(kept, e)
				}
			}
			all = NewReplicates(kept)
		}
		all.Add(seed, runs)
	}
	return all.Outcomes()
}

// TestExpectReplicates: an interval that passes a bound does not hold, whatever the mean and the first seed say.
func TestExpectReplicates(t *testing.T) {
	bound := 11.
	r := NewReplicates([]Expect{{What: "w", Kind: Pinned, Max: &bound}})
	r.figures[0] = append(r.figures[0], 9, 10, 11)
	if o := r.Outcomes()[0]; o.OK || o.Ours != 10 || o.Replicates != 3 {
		t.Errorf("at most 11 holds for 9, 10 and 11, whose mean may be 12.5: %+v", o)
	}
	bound = 13
	if o := r.Outcomes()[0]; !o.OK {
		t.Errorf("at most 13 does not hold: %+v", o)
	}
}
