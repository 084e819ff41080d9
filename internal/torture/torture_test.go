package torture

import (
	"flag"
	"go/parser"
	gotoken "go/token"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

var (
	seedsFlag = flag.Int("seeds", 0, "number of programs; 0 is the default: 60, each on 3 of the setups. Otherwise each runs on all")
	firstFlag = flag.Uint64("first", 0, "the first seed; 0 is 1, from which -count goes on")
)

const programGroups = 40

// firstSeed returns the first of n seeds, and logs which they are.
func firstSeed(t *testing.T, n int) uint64 {
	t.Helper()
	s := testkit.NextSeeds(t, *firstFlag, uint64(n))
	t.Logf("seeds %d to %d; -first takes one back", s, s+uint64(n)-1)
	return s
}

// some returns the reference and two other setups, so that many seeds see all.
func some(seed uint64) []Setup {
	all := setups()
	n := uint64(len(all))
	return []Setup{all[0], all[1+seed%(n-1)], all[1+(seed*7+5)%(n-1)]}
}

// TestPrograms runs the same random programs on arrays that differ in store, profile and copy mode. A program that fails
// is made as short as it gets and printed as a test.
func TestPrograms(t *testing.T) {
	n, all := *seedsFlag, true
	if n == 0 {
		n, all = 40, false
		if testing.Short() {
			n = 5
		}
		if underRace { // the core has one thread; all of it runs without the detector in a part of its own
			n = 8
		}
	}
	first := firstSeed(t, n)
	var next, failed, passed atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() < 3; i = next.Add(1) - 1 {
				seed := first + uint64(i)
				on := some(seed)
				if all {
					on = setups()
				}
				groups := generate(seed, programGroups)
				msg := compare(groups, on)
				if msg == "" {
					if p := passed.Add(1); p%10 == 0 {
						t.Logf("%d of %d programs", p, n)
					}
					continue
				}
				failed.Add(1)
				groups, on = shortest(groups, on)
				t.Errorf("seed %d: %s\nshorter: %s\n\n%s\nrepeat with -run TestPrograms -first=%d -seeds=1", seed, msg, compare(groups, on), asTest(groups, on), seed)
			}
		})
	}
	wg.Wait()
}

// shortest makes a failing program, and the list of its setups, as short as it gets.
func shortest(groups []Group, on []Setup) ([]Group, []Setup) {
	for i := 0; i < len(on) && len(on) > 1; {
		less := append(append([]Setup{}, on[:i]...), on[i+1:]...)
		if compare(groups, less) != "" {
			on = less
		} else {
			i++
		}
	}
	return minimise(groups, func(g []Group) bool { return compare(g, on) != "" }), on
}

// TestFindsAPlantedBug judges the judge: an array that loses UNMAP of one LUN is found out, the program that shows it
// becomes short, and what is printed is Go.
func TestFindsAPlantedBug(t *testing.T) {
	if underRace {
		t.Skip("it runs without the race detector, in a part of its own")
	}
	on := []Setup{{Store: "memory", Profile: "none", Sabotage: "lost unmap"}}
	for seed := uint64(1); seed < 50; seed++ {
		groups := generate(seed, programGroups)
		if compare(groups, on) == "" {
			continue
		}
		groups, on := shortest(groups, on)
		commands := 0
		for _, g := range groups {
			commands += len(g.Commands)
		}
		text := asTest(groups, on)
		if commands > 2 || !strings.Contains(text, `Op: "unmap`) {
			t.Errorf("seed %d: %d commands are left:\n%s", seed, commands, text)
		}
		if _, err := parser.ParseFile(gotoken.NewFileSet(), "x.go", "package torture\n"+text, 0); err != nil {
			t.Errorf("what is printed is not Go: %v\n%s", err, text)
		}
		return
	}
	t.Fatal("50 programs do not find an UNMAP that does nothing")
}

// TestEverythingBeside: beside the programs that run here all goes on that the setups promise.
func TestEverythingBeside(t *testing.T) {
	if underRace {
		t.Skip("it runs without the race detector, in a part of its own")
	}
	var sum besides
	for seed := uint64(1); seed <= 12; seed++ {
		r, err := play(generate(seed, programGroups), Setup{Store: "memory", Profile: "none", Beside: int(seed)})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		d := r.beside.did
		sum = besides{sum.waited + d.waited, sum.made + d.made, sum.resized + d.resized, sum.deleted + d.deleted, sum.copied + d.copied, sum.bounded + d.bounded}
	}
	if sum.waited == 0 || sum.made == 0 || sum.resized == 0 || sum.deleted == 0 || sum.copied == 0 || sum.bounded == 0 {
		t.Errorf("12 programs had beside them: %+v", sum)
	}
	t.Logf("12 programs had beside them: %+v", sum)
}

// TestEveryOperation: what runs here has all operations in it, and each of them is carried out somewhere.
func TestEveryOperation(t *testing.T) {
	if underRace {
		t.Skip("it runs without the race detector, in a part of its own")
	}
	good, ends, conflicts := map[string]int{}, map[string]int{}, 0
	for seed := uint64(1); seed <= 40; seed++ {
		groups := generate(seed, programGroups)
		r, err := play(groups, Setup{Store: "memory", Profile: "none"})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for op, n := range r.good {
			good[op] += n
		}
		conflicts += r.conflicts
		for _, g := range groups {
			ends[g.End]++
		}
	}
	for _, op := range append([]string{"read", "write", "write-verify", "verify", "or", "caw", "atomic", "same", "unmap", "copy", "copy4", "copy-offset", "copy-many", "unmap-many", "use", "inform"}, alone...) {
		if good[op] == 0 {
			t.Errorf("no %s ended well in 40 programs", op)
		}
	}
	for _, end := range append([]string{"", "abort", "reset", "clear", "target", "kill", "power", "stop"}, slices.Concat(fences, erasures)...) {
		if ends[end] == 0 {
			t.Errorf("no group ends with %q", end)
		}
	}
	if conflicts == 0 {
		t.Error("nobody met a reservation")
	}
}
