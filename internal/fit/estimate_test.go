package fit

import (
	"context"
	"math"
	"slices"
	"testing"
)

// TestHeldOutByLoad: latencies of one load, of repeated jobs or of the two directions of a mixed one, are held out
// together. Else a fit would be asked for what it has seen.
func TestHeldOutByLoad(t *testing.T) {
	var obs []Observation
	for _, depth := range []int{1, 2, 4, 8, 16} {
		mixed := Load{IO: 4096, Outstanding: depth, Write: 0.3}
		obs = append(obs, Observation{Load: mixed}, Observation{Load: mixed, Writes: true}, Observation{Load: Load{IO: 4096, Outstanding: depth}})
	}
	obs = append(obs, obs...) // measured twice
	train, held := split(obs, 0.35)
	if len(train)+len(held) != len(obs) || len(held) < 4 {
		t.Fatalf("%d and %d of %d", len(train), len(held), len(obs))
	}
	for _, h := range held {
		if slices.ContainsFunc(train, func(o Observation) bool { return o.Load == h.Load }) {
			t.Errorf("%s is held out, and fitted", h.Load)
		}
	}
	five := obs[:0:0]
	for depth := range 5 {
		five = append(five, Observation{Load: Load{IO: 4096, Outstanding: depth + 1}})
	}
	if _, held := split(five, 0.2); len(held) != 1 || held[0].Outstanding != 5 {
		t.Errorf("a fifth of five loads is %d", len(held))
	}
	if train, held := split(obs, 0); len(train) != len(obs) || len(held) != 0 {
		t.Errorf("%d and %d without any to hold out", len(train), len(held))
	}
}

// TestVagueIsNotDetermined: two latencies that contradict each other leave an interval over orders of magnitude, as wide as
// Student's t with one degree of freedom makes it. That determines nothing, and is said.
func TestVagueIsNotDetermined(t *testing.T) {
	m := &Model{Profile: "all-flash", Seed: 1}
	params, err := m.Parameters([]string{"mdisks.default.base"})
	if err != nil {
		t.Fatal(err)
	}
	var obs []Observation
	for i, ms := range []float64{1.0, 1.5} {
		obs = append(obs, Observation{Load: Load{IO: 4096, Outstanding: 1 + i}, Mean: ms * 1e-3, Spread: 0.5, N: 5000})
	}
	f := &fitter{ctx: context.Background(), opt: &Options{Model: m, Level: 0.95}, params: params, obs: obs}
	p, err := f.look([]float64{math.Log(1.1e6)})
	if err != nil {
		t.Fatal(err)
	}
	j, err := f.jacobian(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.conclude(p, j)
	if err != nil {
		t.Fatal(err)
	}
	e := got.Estimates[0]
	if e.Error > vague || math.IsInf(e.Error, 0) {
		t.Fatalf("the standard error is %.2f: this is not the case that the test is for", e.Error)
	}
	if e.Known() {
		t.Errorf("%s is said to be known between %s and %s", e.Key, e.Text(e.Low), e.Text(e.High))
	}
	if len(got.Confused) != 1 || !slices.Equal(got.Confused[0], []string{e.Key}) {
		t.Errorf("not told apart: %v", got.Confused)
	}
}
