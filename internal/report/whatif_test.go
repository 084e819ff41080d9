//go:build !race

package report

import (
	"bytes"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/sim"
)

// simulated carries a scenario out with some settings changed, and samples it.
func simulated(t *testing.T, name string, sample int64, set map[string]any) *Data {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.Parse(text)
	for key, value := range set {
		if err == nil {
			s, err = s.Set(key, value)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.New(s)
	if err != nil {
		t.Fatal(err)
	}
	var rec Recorder
	var snap metrics.Snapshot
	r.Every(sample*1e9, func(now int64) {
		snap.Take(now, &sync.Mutex{}, r)
		if err := rec.Write(&snap); err != nil {
			t.Error(err)
		}
	})
	r.Advance(int64(s.Until))
	r.Finish()
	return rec.Data(name)
}

// waited is the time that writes took, in seconds, in all.
func waited(d *Data) float64 {
	sum := 0.0
	for _, v := range d.Volumes {
		for i := range d.Times {
			if x := v.Time[write][i] * d.seconds(i); !math.IsNaN(x) {
				sum += x
			}
		}
	}
	return sum
}

// What the fitted model says of the offload and the cap is what the same scenario does
// when it is run without the one or the other: the truth lies in the range, and a figure is
// told only where the range is narrow.
func TestSharesAgainstTheRealThing(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const scenario = "../../testdata/report/clone.yaml"
	type setting = map[string]any
	four := []any{}
	for _, name := range []string{"mdg1", "mdg2", "mdg3", "mdg4"} {
		count := 1
		if name == "mdg1" {
			count = 4
		}
		four = append(four, map[string]any{"name": name, "mdisks": []any{map[string]any{"kind": "hdd", "count": count, "size": "100GiB"}}})
	}
	for i, c := range []struct {
		name       string
		set        setting
		determined bool
	}{
		{"two pools, a clone larger than the cache", setting{}, false},
		{"four pools, a clone that fits into the whole cache", setting{"arrays.svc.pools": four, "jobs.clone.size": "700MiB"}, true},
		{"four pools, a clone that the whole cache would nearly take", setting{"arrays.svc.pools": four, "jobs.clone.size": "1536MiB"}, false},
		{"four pools, a clone larger than the cache", setting{"arrays.svc.pools": four, "jobs.clone.size": "3GiB"}, false},
		{"four pools, a clone of three times the cache", setting{"arrays.svc.pools": four, "jobs.clone.size": "6GiB"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if (i == 0 || i > 2) && os.Getenv("ARRAYSIM_JUDGE") == "" {
				t.Skip("the firmware runs half a dozen times in each case: the proof `judge` has all")
			}
			with := func(more setting) *Data {
				all := setting{}
				for _, m := range []setting{c.set, more} {
					for k, v := range m {
						all[k] = v
					}
				}
				return simulated(t, scenario, 30, all)
			}
			d := with(nil)
			f := Analyze(d)
			if len(f.Towers) != 1 || f.Towers[0].Shares == nil {
				t.Fatalf("towers: %+v", f.Towers)
			}
			s := f.Towers[0].Shares
			quiet := waited(with(setting{"jobs.clone.off": true}))
			area := waited(d) - quiet
			open := 1 - (waited(with(setting{"arrays.svc.adjust": setting{"policy.caps": []any{100, 100, 100, 100}}}))-quiet)/area
			t.Logf("cap gone: %.2f to %.2f by the model (%v), %.2f in truth; doubled: %v; offload gone: %.2f; fit %.2f", s.Cap.Low, s.Cap.High, s.Cap, open, s.Double, s.Offload, s.Fit)
			const fault = 0.1
			if open < s.Cap.Low-fault || open > s.Cap.High+fault {
				t.Errorf("without the cap: the tower shrinks by %.2f, the model says %.2f to %.2f", open, s.Cap.Low, s.Cap.High)
			}
			if told := s.Cap.Open == ""; told != c.determined {
				t.Errorf("the cap's share is told as %q", s.Cap)
			}
			if s.Offload < 0.9 || s.Offload > 1.1 {
				t.Errorf("without the offload there is no tower, the model says %.2f", s.Offload)
			}
			if s.Fit < 0.5 || s.Fit > 2 {
				t.Errorf("the model waits %.2f times what was seen", s.Fit)
			}
			var text bytes.Buffer
			if err := f.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text.String(), "tower 1, cap gone: between") == c.determined {
				t.Errorf("the text:\n%s", text.String())
			}
		})
	}
}
