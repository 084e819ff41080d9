//go:build !race

package sim

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var proofs = flag.Bool("proofs", false, "run the cases that are marked as proofs, too")

// longest are those of the documents' scenarios that compute for seconds or for minutes.
var longest = map[string]bool{
	"000-areas.yaml": true, "000-destaging.yaml": true, "001-nodes.yaml": true, "001-small.yaml": true, "002-transactions.yaml": true, "002-traces.yaml": true, "003-zeroing.yaml": true, "004-compile.yaml": true,
}

// left are cases that only -proofs runs, and the proof of replicates: two compute for minutes, and others for up to ten
// seconds, which all together are too many for every run of the tests. Others of the same scenarios have the same
// mechanisms, on a smaller scale.
var left = map[string]bool{
	"001-undercover incident": true, "003-zeroing eager-writes": true,
	"000-areas periodic": true, "002-transactions dss-controller": true, "002-transactions types-none": true,
	"002-transactions types-8GB": true, "003-zeroing thin-5.1": true, "004-compile full-plain": true, "004-compile full-cached": true,
}

// TestScenarios carries out every scenario file and holds it to its expectations, and the documents to its figures. It is not
// built for the race detector: runs share nothing, and there are billions of events in them.
// Cases that are proofs, and those left to them, run with -proofs alone; with -short only the
// documents' scenarios do, whose names begin with a number, without those that compute the longest.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/*.yaml")
	if err != nil || len(files) < 14 {
		t.Fatalf("found %d scenarios: %v", len(files), err)
	}
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			if name := filepath.Base(file); testing.Short() && (name[0] > '9' || longest[name]) {
				t.Skip("no document's, or of those that compute the longest: left out of short runs")
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if s.Source == "" || s.Shows == "" || len(s.Expect) == 0 {
				t.Fatal("a scenario says its source, what it shows, and what it expects")
			}
			grid, err := s.Runs()
			if err != nil {
				t.Fatal(err)
			}
			runs, out := map[string]*Run{}, map[string]bool{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for _, c := range grid {
				if testing.Short() && c.Long || (c.Proof || left[s.Name+" "+c.Name]) && !*proofs {
					t.Logf("%s is left out", c.Name)
					out[c.Name] = true
					continue
				}
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					r, err := carryOut(c)
					if err != nil {
						t.Errorf("%s: %v", c.Name, err)
						return
					}
					mu.Lock()
					runs[c.Name] = r
					mu.Unlock()
				})
			}
			wg.Wait()
			for _, e := range s.Expect {
				if out[e.Case] || out[e.TimesCase] {
					continue
				}
				if o := e.compare(runs); !o.OK {
					t.Errorf("%s: %s: document %s, expected %s, ours %v %s %s", o.Case, o.What, o.Document, o.Want, o.Ours, o.Difference, o.Problem)
				}
			}
			d, err := readDocs()
			if err != nil {
				t.Fatal(err)
			}
			wrong, n := wrongFigures(d, s, runs, out)
			t.Logf("%d figures of the documents compared", n)
			for _, text := range wrong {
				t.Error(text)
			}
			for _, name := range sortedKeys(runs) {
				for _, y := range runs[name].arrays {
					for _, p := range y.check.Problems {
						t.Errorf("%s: array %s: %s", name, y.name, p)
					}
				}
			}
		})
	}
}
