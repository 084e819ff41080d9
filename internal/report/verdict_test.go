package report

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSentence(t *testing.T) {
	floor := &Floor{Seconds: 40, Bytes: 67.1e6}
	clone, copied := Undercover{Pool: "p", Volume: "clone", Bytes: 4.14e9}, Undercover{Pool: "p", Volume: "copy", Bytes: 1e9}
	offload := Tower{Pool: "p", Height: 6.784, Base: 0.00036, Cause: "undercover", Culprit: "clone"}
	disks := Tower{Pool: "q", Height: 9, Base: 0.001, Cause: "back end"}
	refused := []Refusal{{Finding: findTowers, Pool: "p", Missing: []string{"response times"}}}
	for _, row := range []struct {
		name string
		f    Findings
		want string
	}{
		{"an offload and its tower", Findings{Floor: floor, Undercover: []Undercover{clone, clone}, Towers: []Tower{disks, offload}},
			"Offloads wrote at least 8.28 GB to volume clone, below what hosts see; they filled the write cache of pool p, and a response took 6784 ms instead of 0.36 ms."},
		{"offloads without a tower", Findings{Floor: floor, Undercover: []Undercover{copied, clone}},
			"Offloads wrote at least 5.14 GB to 2 volumes, most of it to clone, below what hosts see; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{"an offload and a tower of the disks", Findings{Floor: floor, Undercover: []Undercover{clone}, Towers: []Tower{disks}},
			"Offloads wrote at least 4.14 GB to volume clone, below what hosts see; pool q answered in 9000 ms instead of 1 ms, although its write cache had room, so look at its back end."},
		{"a tower of slow disks", Findings{Floor: floor, Towers: []Tower{{Pool: "q", Height: 9, Base: 0.001, Cause: "back end", full: true}}},
			"These counters prove no undercover write, and would not show every one below 67.1 MB; pool q answered in 9000 ms instead of 1 ms, with a full write cache because its back end took less than at other times."},
		{"towers that nobody can be asked about", Findings{Floor: floor, Undercover: []Undercover{clone}, Refused: refused},
			"Offloads wrote at least 4.14 GB to volume clone, below what hosts see; for some pools they do not show how slow responses were."},
		{"the label alone", Findings{Floor: floor, Labelled: []Labelled{{Volume: "clone", Bytes: 5e6}}},
			"The array's origin label says that offloads wrote 5 MB to volume clone, which its other counters do not prove; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{"nothing", Findings{Floor: floor},
			"These counters prove no undercover write, and would not show every one below 67.1 MB; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{"nothing, says the label", Findings{Floor: floor, Labelled: []Labelled{}},
			"Nothing was written undercover, as the array's own label says; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{"unknown", Findings{Refused: refused},
			"These counters do not show what was written below what hosts see; for some pools they do not show how slow responses were."},
		{"a tower of nobody's", Findings{Floor: floor, Towers: []Tower{{Pool: "p", Height: 1, Base: 0.1, Cause: "unknown"}}},
			"These counters prove no undercover write, and would not show every one below 67.1 MB; pool p answered in 1000 ms instead of 100 ms, and these counters lack what would say why."},
	} {
		if got := row.f.Sentence(); got != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, got, row.want)
		}
		var b bytes.Buffer
		if err := row.f.WriteText(&b); err != nil || !strings.HasPrefix(b.String(), row.want+"\n") {
			t.Errorf("%s: the text does not begin with it: %.200s", row.name, b.String())
		}
	}
}

// TestColumnsAreExplained: each column that a table of the text has, but names and times, has its line.
func TestColumnsAreExplained(t *testing.T) {
	f := Findings{Pools: []PoolState{{}}, Holders: []Holder{{}}, Undercover: []Undercover{{}}, Labelled: []Labelled{{}}, Towers: []Tower{{}}}
	var b bytes.Buffer
	if err := f.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	tables, explained, ok := strings.Cut(b.String(), "\nColumns\n")
	if !ok {
		t.Fatal(b.String())
	}
	heads := 0
	for _, l := range strings.Split(tables, "\n") {
		if l != strings.ToUpper(l) || !strings.Contains(l, "POOL") {
			continue
		}
		heads++
		for _, name := range strings.Split(strings.Join(strings.Fields(strings.ReplaceAll(l, "  ", "\t")), " "), "\t") {
			for _, word := range strings.Fields(name) {
				switch word {
				case "VOLUME", "POOL", "FROM", "TO", "AT", "BYTES", "RATE", "ITS", "SINCE":
				default:
					if !strings.Contains(explained, word) && !strings.Contains(strings.ToUpper(explained), word) {
						t.Errorf("%s is not explained in\n%s", word, explained)
					}
				}
			}
		}
	}
	if heads != 5 {
		t.Errorf("%d heads of tables in\n%s", heads, tables)
	}
}

// simFolder writes what a simulated run leaves.
func simFolder(t *testing.T, dir, volumes, pools string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		simVolumes: "seconds,array,pool,volume,reads,writes,read_bytes,write_bytes,read_ns,write_ns,held_bytes,lower_host_bytes,lower_write_same_bytes,lower_xcopy_bytes,lower_odx_bytes,lower_caw_bytes,lower_unmap_bytes,lower_rebuild_bytes,lower_migrate_bytes\n" + volumes,
		simPools:   "seconds,array,pool,used_bytes,used_mean_bytes,used_max_bytes,limit_bytes,writes,write_ns\n" + pools,
		simReport:  filepath.Base(dir) + ": <text> of the run\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryFolderOfASimulation: one in which nothing happened, one that has a folder for each case.
func TestEveryFolderOfASimulation(t *testing.T) {
	dir := t.TempDir()
	simFolder(t, filepath.Join(dir, "a [case]"), "", "1,array,p,0,0,0,1000,0,0\n2,array,p,0,0,0,1000,0,0\n")
	simFolder(t, filepath.Join(dir, "busy"), "1,array,p,v,1,1,512,512,1000,1000,0,512,0,0,0,0,0,0,0\n2,array,p,v,1,1,512,512,1000,1000,0,512,0,0,0,0,0,0,0\n",
		"1,array,p,0,0,0,1000,1,1000\n2,array,p,0,0,0,1000,1,1000\n")
	runs, err := LoadRuns(t.Context(), dir, Options{})
	if err != nil || len(runs) != 2 || !runs[0].Idle || runs[1].Data == nil {
		t.Fatalf("%+v, %v", runs, err)
	}
	for _, source := range []string{"a [case]", "busy", "."} {
		runs, err := LoadRuns(t.Context(), filepath.Join(dir, source), Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := New("title", runs...)
		var b bytes.Buffer
		if err := r.WriteHTML(&b); err != nil {
			t.Fatal(err)
		}
		body := b.String()[strings.Index(b.String(), "<body>"):]
		verdict, text := strings.Index(body, template.HTMLEscapeString(r.Verdict())), strings.Index(body, "&lt;text&gt; of the run")
		if verdict < 0 || text < verdict || strings.Index(body, "<section") < verdict {
			t.Errorf("%s: the verdict %q is at %d, the run's own report at %d", source, r.Verdict(), verdict, text)
		}
		for _, p := range r.Pictures {
			if p.empty() {
				t.Errorf("%s: picture %s is empty", source, p.ID)
			}
		}
	}
	if r := New("title", runs[0]); !strings.HasPrefix(r.Verdict(), "No volume was read, written or held") || len(r.Pictures) != 0 {
		t.Errorf("of nothing: %q, %d pictures", r.Verdict(), len(r.Pictures))
	}
	if _, err := LoadRuns(t.Context(), t.TempDir(), Options{}); err == nil {
		t.Error("a folder without anything is a source")
	}
}

// TestMadeUpFolders: what is not known is not said to be nothing, and what is no number is no figure.
func TestMadeUpFolders(t *testing.T) {
	const idle, busy = "1,array,p,v,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n", ",array,p,v,1,1,512,512,1000,%s,0,512,0,0,0,0,0,0,0\n"
	const pool = "1,array,p,0,0,0,1000,1,1000\n2,array,p,0,0,0,1000,1,1000\n"
	row := func(at int, ns string) string { return fmt.Sprint(at) + fmt.Sprintf(busy, ns) }
	for _, c := range []struct{ name, volumes, says string }{
		{"nothing was done", idle, "Nothing was written undercover, as the array's own label says; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{"one sample", row(1, "1000"), "Nothing was written undercover, as the array's own label says; for some pools they do not show how slow responses were."},
		{"two samples", row(1, "1000") + row(2, "1000"), "Nothing was written undercover, as the array's own label says; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{"unknown times", row(1, "NaN") + row(2, "NaN"), "Nothing was written undercover, as the array's own label says; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{"endless times", row(1, "+Inf") + row(2, "1000"), "volumes.csv, line 2: write_ns is not a number"},
		{"no times", row(1, "1000") + row(2, ""), "volumes.csv, line 3: write_ns is not a number"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		simFolder(t, dir, c.volumes, pool)
		runs, err := LoadRuns(t.Context(), dir, Options{})
		got := fmt.Sprint(err)
		if err == nil {
			got = New("title", runs...).Verdict()
		}
		if !strings.HasSuffix(got, c.says) {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.says)
		}
	}
}

// TestVerdictOfSeveral: how many say what, and of how many nobody can tell.
func TestVerdictOfSeveral(t *testing.T) {
	refused := []Refusal{{Finding: findTowers, Pool: "p", Missing: []string{"response times"}}}
	floor := &Floor{Seconds: 40, Bytes: 67.1e6}
	clone := Run{Name: "clone", Findings: &Findings{Floor: floor, Undercover: []Undercover{{Volume: "v", Bytes: 1e9}}, Towers: []Tower{{Pool: "p", Height: 2, Base: 0.1}}}}
	quiet := Run{Name: "quiet", Findings: &Findings{Floor: floor}}
	label := Run{Name: "label", Findings: &Findings{Floor: floor, Labelled: []Labelled{{Volume: "v", Bytes: 1}}}}
	blind := Run{Name: "blind", Findings: &Findings{Refused: refused}}
	cache := func(name string, ios, effective float64) Run {
		flow := func(nanos float64) [2]FlowSeries {
			return [2]FlowSeries{{IOs: []float64{ios}, Bytes: []float64{0}, Nanos: []float64{nanos}}, {IOs: []float64{0}, Bytes: []float64{0}, Nanos: []float64{0}}}
		}
		return Run{Name: name, Caches: []*HostCache{{Name: "d", Times: []float64{1}, Effective: flow(effective), Local: flow(0), Network: flow(0), Datastore: flow(1e9)}}}
	}
	idle := Run{Name: "idle", Idle: true}
	still := func(name string, datastore float64) Run { // its datastore has so many reads
		r := cache(name, 100, 5e8)
		r.Caches[0].Datastore[0].IOs[0] = datastore
		return r
	}
	slow := Run{Name: "slow", Findings: &Findings{Floor: floor, Towers: []Tower{{Pool: "p", Height: 2, Base: 0.1}}}}
	both := still("both", 0)
	both.Caches = append(both.Caches, &HostCache{Name: "e", Times: []float64{1}, Effective: still("e", 0).Caches[0].Effective, Local: both.Caches[0].Local, Network: both.Caches[0].Network, Datastore: both.Caches[0].Datastore})
	mixed := Run{Name: "mixed", Caches: []*HostCache{cache("", 100, 2e9).Caches[0], {Name: "w", Times: []float64{1},
		Effective: [2]FlowSeries{both.Caches[0].Datastore[1], both.Caches[0].Effective[0]}, Local: both.Caches[0].Local, Network: both.Caches[0].Network, Datastore: both.Caches[0].Datastore}}}
	for _, c := range []struct {
		runs []Run
		want string
	}{
		{[]Run{clone, quiet}, "Of 2 runs, 1 has writes that hosts do not see; the highest response is that of clone, 2000 ms."},
		{[]Run{clone, clone, label}, "Of 3 runs, 2 have writes that hosts do not see; of 1 the array's origin label alone says so; the highest response is that of clone, 2000 ms."},
		{[]Run{quiet, quiet}, "In none of 2 runs is a write below what hosts see proved; no sample has a mean response of 4 times the usual and 10 ms above it."},
		{[]Run{quiet, blind, idle}, "In none of 3 runs is a write below what hosts see proved; of 1 the counters do not show it; in 1 nothing happened; of 1 the counters do not show, for some pools, how slow responses were."},
		{[]Run{idle, idle}, "No volume was read, written or held anything in the write cache during these 2 runs, so there is nothing to find or to draw."},
		{[]Run{quiet, still("caches", 0), idle}, "In none of 2 runs is a write below what hosts see proved; in 1 nothing happened; 1 more has no counters of an array; no sample that counters show has a mean response of 4 times the usual and 10 ms above it."},
		{[]Run{clone, quiet, still("a", 0), still("b", 1)}, "Of 2 runs, 1 has writes that hosts do not see; 2 more have no counters of an array; the highest response that counters show is that of clone, 2000 ms."},
		{[]Run{slow, blind}, "In none of 2 runs is a write below what hosts see proved; of 1 the counters do not show it; the highest response that they show is that of slow, 2000 ms, and of 1 they do not show, for some pools, how slow responses were."},
		{[]Run{still("warm", 0)}, "The gain of the caches is unknown: the datastore was not seen to read, or to write, while hosts did."},
		{[]Run{still("warm", 0), idle}, "The gain of the caches is unknown: the datastore was not seen to read, or to write, while hosts did."},
		{[]Run{both}, "The gain of the caches is unknown: the datastore was not seen to read, or to write, while hosts did."},
		{[]Run{mixed}, "No cache whose gain is known spared its host any waiting: d, the best of 1, answered in 20 ms; for 1 other cache the datastore's latency is not known."},
		{[]Run{cache("slow", 100, 2e9), cache("slower", 100, 3e9)}, "In none of 2 runs did a cache spare its host any waiting: the best, d of slow, answered in 20 ms."},
		{[]Run{cache("slow", 100, 2e9), still("warm", 0)},
			"In none of 2 runs did a cache whose gain is known spare its host any waiting: the best, d of slow, answered in 20 ms; the gain of some caches is not known."},
		{[]Run{mixed, cache("slower", 100, 3e9)},
			"In none of 2 runs did a cache whose gain is known spare its host any waiting: the best, d of mixed, answered in 20 ms; the gain of some caches is not known."},
		{[]Run{quiet, still("warm", 0)},
			"The counters of the one run that has some prove no write below what hosts see; 1 more has no counters of an array; no sample that counters show has a mean response of 4 times the usual and 10 ms above it."},
		{[]Run{clone, still("warm", 0)}, "The one run with counters has writes that hosts do not see; 1 more has no counters of an array; the highest response that counters show is that of clone, 2000 ms."},
		{[]Run{label, still("warm", 0)},
			"The counters of the one run that has some prove no write below what hosts see; the array's origin label alone says so; 1 more has no counters of an array; no sample that counters show has a mean response of 4 times the usual and 10 ms above it."},
		{[]Run{blind, still("warm", 0)},
			"The counters of the one run that has some do not show what was written below what hosts see; 1 more has no counters of an array; of 1 the counters do not show, for some pools, how slow responses were."},
		{[]Run{slow, blind, still("warm", 0)},
			"In none of 2 runs is a write below what hosts see proved; of 1 the counters do not show it; 1 more has no counters of an array; the highest response that counters show is that of slow, 2000 ms, and of 1 they do not show, for some pools, how slow responses were."},
		{[]Run{cache("slow", 100, 2e9)}, "No cache spared its host any waiting: d, the best of 1, answered in 20 ms."},
		{[]Run{still("warm", 0), cache("arc", 100, 2e8)},
			"Of 2 runs, arc has the cache that is known to spare its host the most; of some caches it is not known. The cache of d, the best of 1, spared its host 0.8 s of waiting a second: it answered in 2 ms, and the datastore would have taken 10 ms."},
		{[]Run{idle, cache("off", 0, 0)}, "There is nothing to report about these 2 runs."},
		{[]Run{cache("off", 0, 0)}, "No host read or wrote through a cache during this run."},
		{[]Run{cache("lru", 100, 5e8), cache("arc", 100, 2e8)},
			"Of 2 runs, arc has the cache that spares its host the most. The cache of d, the best of 1, spared its host 0.8 s of waiting a second: it answered in 2 ms, and the datastore would have taken 10 ms."},
	} {
		if got := (&Report{Runs: c.runs}).Verdict(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestBusyAtTheEnd: seconds in which no volume did anything have no rows, and are seconds all the same.
func TestBusyAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	var volumes, pools strings.Builder
	for at := 1; at <= 603; at++ {
		used := 0
		if at > 600 {
			used = 1000
			fmt.Fprintf(&volumes, "%d,array,p,v,1,1,512,512,1000,1000,0,512,0,0,0,0,0,0,0\n", at)
		}
		fmt.Fprintf(&pools, "%[1]d,array,p,%[2]d,%[2]d,%[2]d,1000,1,1000\n", at, used)
	}
	simFolder(t, dir, volumes.String(), pools.String())
	d := load1(t, dir, Options{})
	p := detect(d).Pools[0]
	if len(d.Times) != 603 || p.Full != 3 || len(p.Spans) != 1 || p.Spans[0].From != "2026-01-01 00:10:00" {
		t.Errorf("%d samples, full for %v s: %+v", len(d.Times), p.Full, p.Spans)
	}
	// Rows of 5 s are not of one: the last is of the run's end.
	simFolder(t, dir, strings.NewReplacer("601,", "595,", "602,", "600,").Replace(volumes.String()), pools.String())
	if d := load1(t, dir, Options{}); d.Step() != 5 || len(d.Times) != 121 {
		t.Errorf("%d samples of %v s", len(d.Times), d.Step())
	}
}

func TestEmptyPictures(t *testing.T) {
	nan := value(math.NaN())
	for _, row := range []struct {
		p     Picture
		empty bool
	}{
		{Picture{}, true},
		{Picture{Lines: []line{{Name: "a", Values: []value{0, nan, 0}}}}, true},
		{Picture{Lines: []line{{Name: "a", Values: []value{0, nan}}, {Name: capLine, Values: []value{5, 5}}}}, true},
		{Picture{Lines: []line{{Name: "a", Values: []value{0, 0.1}}}}, false},
		{Picture{Kind: "bars", Names: []string{"v"}, Bars: []bar{{Values: []value{0}}}}, true},
		{Picture{Kind: "bars", Names: []string{"v"}, Bars: []bar{{Values: []value{2}}}}, false},
		{Picture{Kind: "heat", Cells: [][3]float64{{0, 0, 0}}}, false},
	} {
		if row.p.empty() != row.empty {
			t.Errorf("%+v is empty: %v", row.p, !row.empty)
		}
	}
}
