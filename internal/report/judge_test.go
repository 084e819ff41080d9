package report

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// judged is how findings compare with what was done.
type judged struct {
	runs, culprits, found, accused, wrong int
	towers, wrongTowers                   int // that are laid upon an offload
	bytes, known                          float64
	over, largest                         float64                    // bytes found too many; the largest factor
	byMargin                              [len(marginClasses)][2]int // accusations, and the wrong ones
}

// marginClasses are margins from which accusations are counted apart: how sure an accusation is by
// its margin is what the runs say that the bounds were not made with.
var marginClasses = [...]float64{1, 1.5, 3, 10}

func (j *judged) String() string {
	precision, recall, bytes, over := 1.0, 1.0, 1.0, 0.0
	if j.accused > 0 {
		precision = float64(j.accused-j.wrong) / float64(j.accused)
	}
	if j.culprits > 0 {
		recall = float64(j.found) / float64(j.culprits)
		bytes, over = j.bytes/j.known, j.over/j.known
	}
	s := fmt.Sprintf("%3d runs  %3d culprits  precision %.3f  recall %.3f  bytes found %.3f, too many %.3f, at most x %.2f  towers of offloads %d, wrong %d",
		j.runs, j.culprits, precision, recall, bytes, over, j.largest, j.towers, j.wrongTowers)
	for i, n := range j.byMargin {
		s += fmt.Sprintf("  from x %g: %d, wrong %d", marginClasses[i], n[0], n[1])
	}
	return s
}

func (j *judged) add(o *judged) {
	j.runs, j.culprits, j.found, j.accused, j.wrong = j.runs+o.runs, j.culprits+o.culprits, j.found+o.found, j.accused+o.accused, j.wrong+o.wrong
	j.bytes, j.known = j.bytes+o.bytes, j.known+o.known
	j.over, j.largest = j.over+o.over, max(j.largest, o.largest)
	j.towers, j.wrongTowers = j.towers+o.towers, j.wrongTowers+o.wrongTowers
	for i, n := range o.byMargin {
		j.byMargin[i][0], j.byMargin[i][1] = j.byMargin[i][0]+n[0], j.byMargin[i][1]+n[1]
	}
}

// mostOver is the share of all bytes written undercover that findings may name too many: noise of the counters is in
// what they call a lower bound.
const mostOver = 0.02

// overstated says what is wrong with the bytes, or nothing.
func (j *judged) overstated() string {
	if j.over > mostOver*j.known {
		return fmt.Sprintf("%s are too many, of %s; at most %.2f times of one volume", size(j.over), size(j.known), j.largest)
	}
	return ""
}

// weigh judges findings by the culprits and their bytes, too few and too many.
func weigh(t *testing.T, what string, f *Findings, culprits map[string]float64) *judged {
	j := &judged{runs: 1, culprits: len(culprits)}
	accused := map[string]float64{}
	for _, u := range f.Undercover {
		accused[u.Volume] += u.Bytes
		class := len(marginClasses) - 1
		for class > 0 && u.Margin < marginClasses[class] {
			class--
		}
		j.byMargin[class][0]++
		if _, ok := culprits[u.Volume]; !ok {
			j.byMargin[class][1]++
		}
	}
	for v, bytes := range culprits {
		j.known += bytes
		if accused[v] > 0 {
			j.found++
			j.bytes += min(accused[v], bytes)
			j.over += max(0, accused[v]-bytes)
			j.largest = max(j.largest, accused[v]/bytes)
		} else if testing.Verbose() {
			t.Logf("%s: %s with %s was not found", what, v, size(bytes))
		}
	}
	for v, bytes := range accused {
		j.accused++
		if _, ok := culprits[v]; !ok {
			j.wrong++
			j.over += bytes
			t.Logf("%s: %s is accused of %s", what, v, size(bytes))
		}
	}
	for _, w := range f.Towers {
		if w.Cause != "undercover" {
			continue
		}
		j.towers++
		if culprits[w.Culprit] == 0 {
			j.wrongTowers++
			t.Logf("%s: the tower at %s is laid upon %s", what, w.From, w.Culprit)
		}
	}
	return j
}

func judge(t *testing.T, seed uint64, kind string, offload bool) *judged {
	s := newModel(seed, kind, offload)
	f := detect(s.run())
	return weigh(t, fmt.Sprintf("%s, seed %d", kind, seed), f, s.culprits)
}

// seedOf is the first seed; ARRAYSIM_SEED says another.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("ARRAYSIM_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("ARRAYSIM_SEED=%s is not a number", text)
		}
		return n
	}
	return 1
}

// modelRuns is how many scenarios of each kind the fluid model makes: the race detector, under
// which they take minutes, gets a few of the 25.
func modelRuns() uint64 {
	if raceEnabled {
		return 3
	}
	return 25
}

// Precision and recall over 200 generated scenarios of all kinds, of a fluid
// model that knows nothing of the firmware.
func TestPrecisionAndRecallOfModel(t *testing.T) {
	first := seedOf(t)
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first)
	all := &judged{}
	var table strings.Builder
	for k, kind := range modelKinds {
		of := &judged{}
		for i := range modelRuns() {
			of.add(judge(t, first+uint64(k)*1000+i, kind, kind != "host-only" && (kind == "offload" || kind == "both" || i%2 == 0)))
		}
		fmt.Fprintf(&table, "%-18s %v\n", kind, of)
		all.add(of)
	}
	fmt.Fprintf(&table, "%-18s %v\n", "all", all)
	t.Log("\n" + table.String())
	if all.accused == 0 || all.culprits == 0 { // of nothing, neither is a number
		t.Fatalf("%d accusations and %d culprits", all.accused, all.culprits)
	}
	if p := float64(all.accused-all.wrong) / float64(all.accused); p < 0.98 {
		t.Errorf("precision %.3f", p)
	}
	if r := float64(all.found) / float64(all.culprits); r < 0.95 {
		t.Errorf("recall %.3f", r)
	}
	if says := all.overstated(); says != "" {
		t.Error(says)
	}
}

// Nobody is accused where there are only hosts.
func TestHostsOfModelAreNotAccused(t *testing.T) {
	first := seedOf(t) + 100000
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first-100000)
	for i := range 8 * modelRuns() {
		seed := first + i
		kind := modelKinds[i%uint64(len(modelKinds))]
		if j := judge(t, seed, kind, false); j.accused > 0 {
			t.Errorf("%s, seed %d: %d volumes are accused", kind, seed, j.accused)
		}
	}
}

// truthRuns is how many scenarios of each kind the firmware runs: 25 by `make judge`.
func truthRuns(t *testing.T) uint64 {
	if text := os.Getenv("ARRAYSIM_JUDGE"); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			t.Fatalf("ARRAYSIM_JUDGE=%s is not a number of scenarios of each kind", text)
		}
		return n
	}
	return 1
}

// judgeTruth runs n scenarios of each kind on all cores; offload says whether one copies.
func judgeTruth(t *testing.T, kinds []string, first, n uint64, offload func(kind string, i uint64) bool) []*judged {
	t.Helper()
	results := make([]*judged, uint64(len(kinds))*n)
	next := make(chan int)
	var ended atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for at := range next {
				kind, i := kinds[uint64(at)/n], uint64(at)%n
				seed := first + uint64(at)/n*1000 + i
				what := fmt.Sprintf("%s, seed %d", kind, seed)
				s, err := newTruthCase(seed, kind, offload(kind, i)).run(kind)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					results[at] = &judged{}
					continue
				}
				results[at] = weigh(t, what, detect(s.data), s.culprits)
				if e, all := int(ended.Add(1)), len(results); e*10/all > (e-1)*10/all {
					t.Logf("%d of %d scenarios", e, all)
				}
			}
		})
	}
	for at := range results {
		next <- at
	}
	close(next)
	workers.Wait()
	return results
}

// judgedKinds are the kinds of scenario that the firmware runs; the race detector makes it ten
// times slower, and gets the first two, hosts alone and an offload, as -short does.
func judgedKinds() []string {
	if raceEnabled || testing.Short() {
		return truthKinds[:2]
	}
	return truthKinds
}

// Precision and recall where the firmware itself ran the scenario, in virtual time, and
// the origin label says who did it: 25 of each kind with ARRAYSIM_JUDGE=25, which is what
// docs/undercover.md shows.
func TestPrecisionAndRecall(t *testing.T) {
	first, n, kinds := seedOf(t), truthRuns(t), judgedKinds()
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first)
	results := judgeTruth(t, kinds, first, n, func(kind string, i uint64) bool {
		return kind != "host-only" && (kind == "offload" || kind == "both" || i%2 == 0)
	})
	all := &judged{}
	var table strings.Builder
	for k, kind := range kinds {
		of := &judged{}
		for _, j := range results[uint64(k)*n : uint64(k+1)*n] {
			of.add(j)
		}
		fmt.Fprintf(&table, "%-18s %v\n", kind, of)
		all.add(of)
	}
	fmt.Fprintf(&table, "%-18s %v\n", "all", all)
	t.Log("\n" + table.String())
	if all.wrong > 0 && float64(all.wrong) > 0.02*float64(all.accused) {
		t.Errorf("%d of %d accusations are wrong", all.wrong, all.accused)
	}
	if all.culprits == 0 || float64(all.found) < 0.9*float64(all.culprits) {
		t.Errorf("%d of %d culprits were found", all.found, all.culprits)
	}
	if says := all.overstated(); says != "" {
		t.Error(says)
	}
}

// Nobody is accused where the firmware wrote only what hosts had sent.
func TestHostsAreNotAccused(t *testing.T) {
	first, n := seedOf(t)+100000, truthRuns(t)
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first-100000)
	for _, j := range judgeTruth(t, judgedKinds(), first, n, func(string, uint64) bool { return false }) {
		if j.accused > 0 || j.towers > 0 {
			t.Errorf("%d volumes and %d towers", j.accused, j.towers)
		}
	}
}
