package cachedaemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// TestGains: what the datastore would have taken is known where it was seen at work, and else the gain is unknown and no zero.
func TestGains(t *testing.T) {
	report := func(name string, reads, writes, below uint64) *Report {
		r := &Report{LUN: name}
		flow := func(n uint64, each int64) tier.Flow { return tier.Flow{IOs: n, Nanos: int64(n) * each} }
		r.Views.Effective.Read, r.Views.Effective.Write = flow(reads, 1e6), flow(writes, 2e6)
		r.Views.Datastore.Read, r.Views.Datastore.Write = flow(below, 5e6), flow(below, 3e6)
		return r
	}
	list := []Gain{report("warm", 10, 0, 0).Gain("a"), report("idle", 0, 0, 7).Gain("b"), report("busy", 100, 10, 7).Gain("c"), report("small", 10, 0, 7).Gain("d")}
	Rank(list)
	var names []string
	for _, g := range list {
		names = append(names, g.LUN)
	}
	if got := strings.Join(names, " "); got != "busy small idle warm" {
		t.Errorf("the order is %s", got)
	}
	if g := list[0]; g.Saved == nil || *g.Saved != 410e6 || *g.Share < 0.91 || *g.Share > 0.92 || *g.Datastore != 4e6 {
		t.Errorf("%+v", g)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range map[string]int{`"saved_nanoseconds":null`: 1, `"saved_nanoseconds":0`: 1, `"share":null`: 1, `"effective_nanoseconds":null`: 1, `"datastore_nanoseconds":null`: 1} {
		if strings.Count(string(text), what) != n {
			t.Errorf("%s is not %d times in %s", what, n, text)
		}
	}
}

// TestLosses: a cache that makes its clients wait longer shows by how much. It ranks behind one that saves nothing, before one
// of which nothing is known, and takes nothing from the shares of the others.
func TestLosses(t *testing.T) {
	report := func(name string, each, below int64) *Report {
		r := &Report{LUN: name}
		r.Views.Effective.Read = tier.Flow{IOs: 10, Nanos: 10 * each}
		if below > 0 {
			r.Views.Datastore.Read = tier.Flow{IOs: 5, Nanos: 5 * below}
		}
		return r
	}
	list := []Gain{report("unknown", 1e6, 0).Gain("a"), report("slow", 3e6, 1e6).Gain("b"), report("level", 1e6, 1e6).Gain("c"), report("fast", 1e6, 2e6).Gain("d"), report("faster", 1e6, 4e6).Gain("e")}
	losses := []Gain{list[1], list[2]}
	Rank(list)
	Rank(losses)
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		LUN   string
		Saved *int64 `json:"saved_nanoseconds"`
		Share *float64
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		lun          string
		known        bool
		saved, share float64
	}{{"faster", true, 30e6, 0.75}, {"fast", true, 10e6, 0.25}, {"level", true, 0, 0}, {"slow", true, -20e6, 0}, {"unknown", false, 0, 0}} {
		g := got[i]
		if g.LUN != want.lun || (g.Saved != nil) != want.known || (g.Share != nil) != want.known {
			t.Fatalf("place %d is not %+v: %s", i, want, text)
		}
		if want.known && (float64(*g.Saved) != want.saved || *g.Share != want.share) {
			t.Errorf("%s saved %d, share %.2f, want %+v", g.LUN, *g.Saved, *g.Share, want)
		}
	}
	for _, g := range losses {
		if g.Share != nil {
			t.Errorf("%s has a share of %v of no savings", g.LUN, *g.Share)
		}
	}
}
