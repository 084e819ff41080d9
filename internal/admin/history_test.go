package admin

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/history"
	"github.com/arraysim/arraysim/internal/metrics"
)

// A meter's rates are what the counters grew by; the first reading, and a volume that was there before
// it, have none.
func TestMeter(t *testing.T) {
	var m meter
	var took metrics.Histogram
	read := func(seconds int64, vols ...VolumeCounters) map[string][]float32 {
		var s metrics.Snapshot
		s.Histogram(metrics.HostDuration, &took, "v", "read")
		s.Histogram(metrics.HostDuration, &metrics.Histogram{Count: 9, Sum: 1e12}, "v", "xcopy")
		rows := map[string][]float32{}
		for _, r := range m.step(Counters{Time: seconds * 1e9, Volumes: vols, Pools: []PoolCounters{{Pool: "p", CacheUsed: 5, BackendWrite: Size(seconds * 10)}}}, &s) {
			rows[r.Kind+" "+r.Name] = slices.Clone(r.Values)
		}
		return rows
	}
	if got := read(10, VolumeCounters{Volume: "v", ID: 1, Read: 1000, Undercover: 7}); len(got) != 0 {
		t.Errorf("the first reading has rates: %v", got)
	}
	took.Observe(1e6)
	took.Observe(3e6)
	got := read(12, VolumeCounters{Volume: "v", ID: 1, Read: 1600, Undercover: 7, Dirty: 3, Admitted: map[string]Size{"host": 2, "xcopy": 6}},
		VolumeCounters{Volume: "new", ID: 2, Written: 50})
	for name, want := range map[string]string{
		"volume v":   "[300 0 0 4 0 0 0 1 2e+06 P 3]",
		"volume new": "[0 25 0 0 0 0 0 0 NaN NaN 0]",
		"total ":     "[300 25 0 4 0 0 0 1 2e+06 P 3]",
		"pool p":     "[5 0 0 0 0 0 10]",
	} {
		v := slices.Clone(got[name])
		text := fmt.Sprint(v)
		if len(v) == len(trafficFields) && !math.IsNaN(float64(v[9])) {
			if v[9] < 2e6 || v[9] > 4.3e6 {
				t.Errorf("the p99 of %s is %v", name, v[9])
			}
			text = fmt.Sprint(v[:9])
			text = text[:len(text)-1] + " P " + fmt.Sprint(v[10:])[1:]
		}
		if text != want {
			t.Errorf("%s: %s, want %s", name, text, want)
		}
	}
	// Another volume of the name: what it counts is not the growth of the one before.
	if got := read(13, VolumeCounters{Volume: "v", ID: 3, Read: 500})["volume v"]; got[0] != 500 || got[8] == got[8] {
		t.Errorf("a volume made anew has %v", got)
	}
}

func TestValuesInJSON(t *testing.T) {
	nan := float32(math.NaN())
	in := Values{0, 1.5, nan, 1234567, float32(math.Inf(1)), 0.000123456}
	b, err := json.Marshal(in)
	if want := "[0,1.5,null,1234567,null,0.0001235]"; err != nil || string(b) != want {
		t.Errorf("%s (%v), want %s", b, err, want)
	}
	var out Values
	if err := json.Unmarshal(b, &out); err != nil || len(out) != len(in) || out[1] != 1.5 || out[2] == out[2] {
		t.Errorf("read back: %v (%v)", out, err)
	}
}

// The history is there after a restart; while no daemon ran it is a gap, and a damaged file ends no start.
func TestHistoryIsKept(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	c.Data = t.TempDir()
	h := openHistory(c.Data, func(line string) { t.Error(line) })
	ago := time.Now().Add(-10 * time.Minute)
	for i := range 100 {
		values := make([]float32, len(trafficFields))
		values[4] = 50e6
		h.Append(ago.Add(time.Duration(i)*time.Second), time.Second, []history.Row{{Kind: kindTotal, Values: values}})
	}
	h.Close()
	segment := filepath.Join(c.Data, historyName, "hour", "00000001.log")
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segment, b[:len(b)-3], 0o600); err != nil { // the last sample is torn
		t.Fatal(err)
	}
	r := start(t, c)
	deadline := time.Now().Add(20 * time.Second)
	for {
		got, err := r.History(t.Context(), HistoryQuery{Seconds: 3000, Points: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Times) > 0 && len(got.Objects) > 0 && time.UnixMilli(got.Times[len(got.Times)-1]).After(ago.Add(5*time.Minute)) {
			s := got.Objects[0].Series["undercover_bytes"]
			sum, gap, known, last := 0.0, 0, 0, float32(-1) // the last step may have no sample yet
			for i, v := range s {
				if v == v {
					known++
					last = v
					sum += float64(v)
				} else if got.Times[i] > ago.UnixMilli() {
					gap++
				}
			}
			if got.Objects[0].Kind != kindTotal || last != 0 || gap < 50 || known < 20 || sum < 50e6*20 {
				t.Errorf("%d steps of %d ms are known, %d are a gap; they add up to %v", known, got.Step, gap, sum)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no sample")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got, err := r.History(t.Context(), HistoryQuery{Seconds: 10, Points: 10, Volume: "none"}); err != nil || len(got.Objects) != 0 {
		t.Errorf("a volume that never was has the history %+v (%v)", got, err)
	}
	r.stop()
}

// The history has the numbers of its objects, which the lists and the counters have, too: by them a page knows one again.
func TestHistoryHasNumbers(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	r := start(t, c)
	if _, err := r.CreatePool(t.Context(), NewPool{Name: "second", Mdisks: []NewMdisk{{Name: "m", Size: 1 << 30}}}); err != nil {
		t.Fatal(err)
	}
	pools, err := r.Pools(t.Context())
	if err != nil || pools[len(pools)-1].Name != "second" {
		t.Fatalf("%+v (%v)", pools, err)
	}
	numbers := map[string]uint32{}
	for _, p := range pools {
		numbers[p.Name] = p.ID
	}
	counters, err := r.Counters(t.Context())
	if err != nil || len(counters.Pools) != len(pools) || numbers["second"] == numbers[pools[0].Name] {
		t.Fatalf("%v, %+v (%v)", numbers, counters.Pools, err)
	}
	for _, p := range counters.Pools {
		if p.ID != numbers[p.Pool] {
			t.Errorf("the counters have number %d for %s, the list %d", p.ID, p.Pool, numbers[p.Pool])
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for seen := false; !seen; time.Sleep(50 * time.Millisecond) {
		got, err := r.History(t.Context(), HistoryQuery{Seconds: 30, Slowest: 3})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the new pool is not in %+v (%v)", got.Objects, err)
		}
		for _, o := range got.Objects {
			if o.Kind == kindTotal && o.ID != nil || o.Kind == kindPool && o.ID == nil {
				t.Fatalf("%s %s has the number %v", o.Kind, o.Name, o.ID)
			}
			seen = seen || o.Name == "second"
			if o.Kind == kindPool && *o.ID != numbers[o.Name] {
				t.Errorf("the history has number %d for %s, the list %d", *o.ID, o.Name, numbers[o.Name])
			}
		}
	}
	r.stop()
}
