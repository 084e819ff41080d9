package counters

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/testkit"
)

type depth int

func (d depth) Depth() int { return int(d) }

// lines returns what a set emits.
func lines(s *Set) string {
	var out []string
	var snapshot metrics.Snapshot
	snapshot.Take(0, &sync.Mutex{}, s)
	snapshot.Each(func(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
		if h != nil {
			v = float64(h.Count)
		}
		out = append(out, fmt.Sprint(f.Name, labels, v))
	})
	return strings.Join(out, "\n")
}

// TestSavedCountersAddUp: what random commands count is saved and loaded whole, and loading it
// twice counts it twice.
func TestSavedCountersAddUp(t *testing.T) {
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	var s, twice Set
	for range 300 {
		name := fmt.Sprint("vol", rng.IntN(4))
		op, o := Op(rng.IntN(int(numOps))), Outcome(rng.IntN(int(numOutcomes)))
		host, ns, a, b := fmt.Sprint("host", rng.IntN(3)), rng.Int64N(1e9), rng.Uint64N(1e6), rng.Uint64N(1e6)
		for _, set := range []*Set{&s, &twice, &twice} {
			v := set.Volume(name)
			v.Attach("pool", nil)
			v.Host(host).Count(op, o)
			v.Took(op, ns)
			v.Transfer(a, b)
			v.Describe(op, a)
		}
	}
	same := func(name string) string { return name }
	var loaded Set
	for i := range 2 {
		if err := loaded.Load(s.Save(), same); err != nil {
			t.Fatal(err)
		}
		if i == 0 && !bytes.Equal(loaded.Save(), s.Save()) {
			t.Errorf("saved\n%s\nand loaded\n%s", s.Save(), loaded.Save())
		}
	}
	if got, want := lines(&loaded), lines(&twice); got != want {
		t.Errorf("loaded twice:\n%s\nwant\n%s", got, want)
	}
	if err := loaded.Load([]byte(`[{"volume":"vol0","wire":[1,1]},{"volume":7}]`), same); err == nil || lines(&loaded) != lines(&twice) {
		t.Errorf("what is no saved state changed something, error %v", err)
	}
}

// TestForget: a volume's counters go when its unit has gone, and not before.
func TestForget(t *testing.T) {
	var s Set
	v := s.Volume("vol")
	v.Attach("pool", depth(3))
	v.Transfer(7, 0)
	if s.Forget("vol"); s.Volume("vol") != v || !strings.Contains(lines(&s), "3") {
		t.Error("a volume with a unit is forgotten")
	}
	v.Detach()
	if s.Forget("vol"); s.Volume("vol") == v || strings.Contains(lines(&s), "7") {
		t.Error("a volume without a unit is not forgotten")
	}
}

// TestOutcomes names the outcome of every status.
func TestOutcomes(t *testing.T) {
	for status, want := range map[byte]string{sam.StatusGood: "good", sam.StatusConditionMet: "good", sam.StatusCheckCondition: "check",
		sam.StatusBusy: "busy", sam.StatusTaskSetFull: "task_set_full", sam.StatusReservationConflict: "conflict", sam.StatusTaskAborted: "check"} {
		if got := outcomeNames[OutcomeOf(status)]; got != want {
			t.Errorf("status %02x is %s, want %s", status, got, want)
		}
	}
}
