package report

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// judged is how findings compare with what was done.
type judged struct {
	runs, culprits, found, accused, wrong int
	bytes, known                          float64
}

func (j *judged) String() string {
	precision, recall, bytes := 1.0, 1.0, 1.0
	if j.accused > 0 {
		precision = float64(j.accused-j.wrong) / float64(j.accused)
	}
	if j.culprits > 0 {
		recall = float64(j.found) / float64(j.culprits)
		bytes = j.bytes / j.known
	}
	return fmt.Sprintf("%3d runs  %3d culprits  precision %.3f  recall %.3f  bytes found %.2f", j.runs, j.culprits, precision, recall, bytes)
}

func (j *judged) add(o *judged) {
	j.runs, j.culprits, j.found, j.accused, j.wrong = j.runs+o.runs, j.culprits+o.culprits, j.found+o.found, j.accused+o.accused, j.wrong+o.wrong
	j.bytes, j.known = j.bytes+o.bytes, j.known+o.known
}

func judge(t *testing.T, seed uint64, kind string, offload bool) *judged {
	s := newModel(seed, kind, offload)
	f := Analyze(s.run())
	j := &judged{runs: 1, culprits: len(s.culprits)}
	accused := map[string]float64{}
	for _, u := range f.Undercover {
		accused[u.Volume] += u.Bytes
	}
	for v, bytes := range s.culprits {
		j.known += bytes
		if accused[v] > 0 {
			j.found++
			j.bytes += min(accused[v], bytes)
		} else if testing.Verbose() {
			t.Logf("%s, seed %d: %s with %s was not found", kind, seed, v, size(bytes))
		}
	}
	for v, bytes := range accused {
		j.accused++
		if _, ok := s.culprits[v]; !ok {
			j.wrong++
			if testing.Verbose() {
				t.Logf("%s, seed %d: %s is accused of %s", kind, seed, v, size(bytes))
			}
		}
	}
	return j
}

// seedOf is the first seed; ARRAYSIM_SEED says another.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("ARRAYSIM_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("ARRAYSIM_SEED=%s is no number", text)
		}
		return n
	}
	return 1
}

// Precision and recall over 200 generated scenarios of all kinds.
func TestPrecisionAndRecall(t *testing.T) {
	first := seedOf(t)
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first)
	all := &judged{}
	var table strings.Builder
	for k, kind := range modelKinds {
		of := &judged{}
		for i := range uint64(25) {
			of.add(judge(t, first+uint64(k)*1000+i, kind, kind != "host-only" && (kind == "offload" || kind == "both" || i%2 == 0)))
		}
		fmt.Fprintf(&table, "%-18s %v\n", kind, of)
		all.add(of)
	}
	fmt.Fprintf(&table, "%-18s %v\n", "all", all)
	t.Log("\n" + table.String())
	if p := float64(all.accused-all.wrong) / float64(all.accused); p < 0.98 {
		t.Errorf("precision %.3f", p)
	}
	if r := float64(all.found) / float64(all.culprits); r < 0.95 {
		t.Errorf("recall %.3f", r)
	}
}

// Nobody is accused where there are only hosts.
func TestHostsAreNotAccused(t *testing.T) {
	first := seedOf(t) + 100000
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first-100000)
	for i := range uint64(200) {
		seed := first + i
		kind := modelKinds[i%uint64(len(modelKinds))]
		if j := judge(t, seed, kind, false); j.accused > 0 {
			t.Errorf("%s, seed %d: %d volumes are accused", kind, seed, j.accused)
		}
	}
}
