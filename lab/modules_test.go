package lab

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/lab/plug"
)

// The policies of examples/wasm/policies.c in Go, as the programs in examples have them.
type (
	twice  struct{ missed []uint64 }
	linear struct{}
	greedy struct{}
	polite struct{}
)

func (t *twice) Admit(block uint64, _ bool) bool {
	seen := &t.missed[block*0x9E3779B97F4A7C15>>32%uint64(len(t.missed))]
	again := *seen == block+1
	*seen = block + 1
	return again
}

func (linear) Delay(a plug.Area) int64 {
	if a.Dirty <= a.Threshold {
		return 0
	}
	return 10 * a.Destage * int64((a.Dirty-a.Threshold)>>10) / int64((a.Size-a.Threshold)>>10)
}

func (greedy) Rate(f plug.Fullness) int64 {
	if f.Waiting || f.Used > f.Limit*3/4 {
		return -1
	}
	return 0
}

func (greedy) Next(volumes []plug.DirtyVolume) (most int) {
	for i := range volumes {
		if volumes[i].Dirty > volumes[most].Dirty {
			most = i
		}
	}
	return most
}

func (polite) Place(c plug.Copy) plug.Way {
	if c.Used > c.Limit/2 {
		return plug.Reference
	}
	return plug.Data
}

// everyKind is a run in which each kind of policy matters.
func everyKind() Scenario {
	return Scenario{
		Until: 3 * time.Second,
		Arrays: []Array{{Name: "a", Profile: "svc", Cache: 64 * MiB, Copy: "data", Pools: []Pool{{Name: "p", Mdisks: []Mdisk{{Count: 2, Size: 8 * GiB}}}},
			Volumes: []Volume{{Name: "vm", Size: GiB, Filled: GiB}, {Name: "large", Size: GiB, Filled: GiB}, {Name: "gold", Size: GiB, Filled: GiB}, {Name: "clone", Size: GiB}}}},
		Hosts: []Host{{Name: "h", DestageSlots: 4, Cache: []Cache{{Volume: "vm", Policy: "write_back", Size: 64 * MiB, Block: 4 * KiB, Area: 4 * MiB, Eviction: "lru"}}}},
		Jobs: []Job{{Name: "both", Volume: "vm", IO: 4 * KiB, Write: 0.5, Outstanding: 16, Span: 128 * MiB},
			{Name: "writes", Volume: "large", IO: 8 * KiB, Write: 1, Rate: 1500},
			{Name: "copy", Kind: "clone", Volume: "gold", To: "clone"}},
	}
}

// use has the policies of these kinds by a name each.
func (s *Scenario) use(name string, kinds ...string) {
	c, a := &s.Hosts[0].Cache[0], &s.Arrays[0]
	for kind, key := range map[string]*string{"admission": &c.Admission, "throttle": &c.Throttle, "destage": &a.Destage, "placement": &a.Placement} {
		if slices.Contains(kinds, kind) {
			*key = name
		}
	}
}

// TestModulesOfEveryKind: a module in C does what the same policies do in Go, to the byte, and each kind of them changes
// the run.
func TestModulesOfEveryKind(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	without := bytesOf(t, everyKind())
	for _, kind := range []string{"admission", "throttle", "destage", "placement"} {
		ours, theirs := everyKind(), everyKind()
		ours.use("mine", kind)
		ours.Plugged = plug.Policies{
			Admission: map[string]func(plug.Cache) (plug.Admission, error){"mine": func(c plug.Cache) (plug.Admission, error) {
				return &twice{make([]uint64, 4*c.Blocks)}, nil
			}},
			Throttle:  map[string]func(plug.Cache) (plug.Throttle, error){"mine": func(plug.Cache) (plug.Throttle, error) { return linear{}, nil }},
			Destage:   map[string]func(plug.Partition) (plug.Destage, error){"mine": func(plug.Partition) (plug.Destage, error) { return greedy{}, nil }},
			Placement: map[string]func(plug.Array) (plug.Placement, error){"mine": func(plug.Array) (plug.Placement, error) { return polite{}, nil }},
		}
		theirs.use(Wasm("../examples/wasm/policies.wasm"), kind)
		a, b := bytesOf(t, ours), bytesOf(t, theirs)
		if a != b {
			t.Errorf("%s: the module does something else than Go", kind)
		}
		if a == without {
			t.Errorf("%s: the policy changes nothing", kind)
		}
	}
}

// bytesOf is all that a run leaves.
func bytesOf(t *testing.T, s Scenario) string {
	files := run(t, s).Files()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b.WriteString(name + "\n")
		b.Write(files[name])
	}
	return b.String()
}

// TestWrongModules: a module without the functions of a kind is refused before the run, and one that fails ends it with
// one line, for every kind.
func TestWrongModules(t *testing.T) {
	for _, row := range []struct{ module, says string }{
		{"../examples/wasm/clock.wasm", "the module exports no function"},
		{"../internal/wasm/testdata/trap.wasm", "the module failed: wasm error: unreachable"},
		{"there.wasm", "open there.wasm: no such file"},
	} {
		for _, kind := range []string{"admission", "throttle", "destage", "placement"} {
			s := small()
			s.use(Wasm(row.module), kind)
			if _, err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), kind+" policy") ||
				!strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %v", row.module, kind, err)
			}
		}
	}
}
