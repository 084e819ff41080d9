//go:build !race

package sim

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
)

var digests = flag.String("digests", "", "write a digest of each scenario's output and of each seed's run to this file")

// TestDigestsOfSeeds and TestDigestsOfScenarios write what identifies each run: a change of the
// core's structure leaves every line as it was. They take -digests FILE; run one of them at a
// time. The seeds are -torture.first and -torture.seeds. A seed's line covers all events with
// their times, all counters, and what the store holds.
func TestDigestsOfSeeds(t *testing.T) {
	wantDigests(t)
	var work []func() string
	for i := range uint64(*tortureSeeds) {
		work = append(work, func() string { return digestOfSeed(*tortureFirst + i) })
	}
	writeDigests(t, work)
}

// A line of a scenario's case covers all files that `sim --out` writes.
func TestDigestsOfScenarios(t *testing.T) {
	wantDigests(t)
	writeDigests(t, digestsOfScenarios(t))
}

func wantDigests(t *testing.T) {
	t.Helper()
	if *digests == "" {
		t.Skip("-digests names no file")
	}
}

// writeDigests does the work on all cores and writes the lines in its order.
func writeDigests(t *testing.T, work []func() string) {
	t.Helper()
	lines := make([]string, len(work))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				lines[i] = work[i]()
			}
		})
	}
	for i := range work {
		next <- i
	}
	close(next)
	wg.Wait()
	var out []byte
	for _, l := range lines {
		out = append(out, l+"\n"...)
	}
	if err := os.WriteFile(*digests, out, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs: %x", len(lines), sha256.Sum256(out))
}

func digestOfSeed(seed uint64) string {
	m := newTorture(seed)
	msg := m.run()
	h := sha256.New()
	for _, l := range noted(m.log) {
		fmt.Fprintln(h, l)
	}
	if m.arr != nil {
		var counters metrics.Snapshot
		counters.Take(m.exec.Now(), free{}, m.arr)
		counters.Each(func(f *metrics.Family, labels []string, v float64, hist *metrics.Histogram) {
			fmt.Fprintln(h, f.Name, labels, v, hist)
		})
	}
	m.store.Dump(h)
	return fmt.Sprintf("seed %d %x %s", seed, h.Sum(nil)[:12], msg)
}

func digestsOfScenarios(t *testing.T) (work []func() string) {
	files, err := filepath.Glob("../../testdata/scenarios/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		grid, err := s.Runs()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range grid {
			if c.Proof && !*proofs {
				continue
			}
			work = append(work, func() string {
				what := fmt.Sprintf("%s %q", filepath.Base(file), c.Name)
				r, err := carryOut(c)
				if err != nil {
					return fmt.Sprintf("%s: %v", what, err)
				}
				h, files := sha256.New(), r.Output()
				for _, name := range sortedKeys(files) {
					fmt.Fprintf(h, "%s %d\n", name, len(files[name]))
					h.Write(files[name])
				}
				return fmt.Sprintf("%s %x", what, h.Sum(nil)[:12])
			})
		}
	}
	return work
}
