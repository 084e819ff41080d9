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
