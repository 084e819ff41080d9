package experiment

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/fio"
)

// measured is what fio might say of a job, as far as compare looks at it.
func measured(name string, group int, rw string) fio.JobResult {
	d := fio.Direction{Count: 1000, IOPS: 1000, RuntimeMS: 1000, Latency: fio.Spread{N: 1000, Mean: 1e6}}
	return fio.JobResult{Name: name, Group: group, Options: map[string]string{"rw": rw, "bs": "4k", "direct": "1", "ioengine": "libaio", "time_based": "1", "runtime": "10"}, Read: d}
}

// TestCompareStages: of two jobs at the same time only that counts in which both ran, and what is behind a stonewall
// has the array for itself.
func TestCompareStages(t *testing.T) {
	run := func(jobs ...fio.JobResult) map[string]Comparison {
		t.Helper()
		all, _, err := BesideFio(t.Context(), &fio.Result{Version: "fio", Jobs: jobs}, fio.Array{Profile: "all-flash", IOs: 2000}, Work{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]Comparison{}
		for _, c := range all {
			out[c.Job] = c
		}
		return out
	}
	mean := func(c Comparison) float64 {
		for _, f := range c.Figures {
			if f.Figure == "mean us" {
				return f.Simulated
			}
		}
		t.Fatalf("%+v has no mean", c)
		return 0
	}
	fast, slow, later := measured("fast", 0, "randread"), measured("slow", 0, "randread"), measured("later", 1, "randread")
	fast.Options["iodepth"] = "64"
	slow.Options["bs"], slow.Options["iodepth"] = "256k", "32"
	both := run(slow, fast, later)
	alone := run(later)
	if n := both["slow"].Simulated; n == 0 || n > 500 {
		t.Errorf("%d I/Os of the slow job count, of 2000 while the fast one had its own", n)
	}
	if n := both["fast"].Simulated; n < 1900 {
		t.Errorf("%d I/Os of the fast job count", n)
	}
	if with, without := mean(both["later"]), mean(alone["later"]); with > 1.05*without || with < 0.95*without {
		t.Errorf("behind the stonewall %.1f us, alone %.1f us", with, without)
	}
}

// TestCompareTimeBased: a job that went round and round through its part of the device until its runtime does in the
// simulator, too, although fio's result lacks the option when it was written without a value.
func TestCompareTimeBased(t *testing.T) {
	j := measured("reads", 0, "randread")
	delete(j.Options, "time_based")
	j.Options["size"], j.Read.Bytes = "256k", 1000*4096
	out, _, err := BesideFio(t.Context(), &fio.Result{Version: "fio", Jobs: []fio.JobResult{j}}, fio.Array{Profile: "all-flash", IOs: 2000}, Work{})
	if err != nil || len(out) != 1 || out[0].Simulated != 2000 {
		t.Errorf("%+v, error %v; want 2000 I/Os simulated", out, err)
	}
}

// TestCompareLengths: a job that its own size ends cuts no other one off, and where nothing is compared the note says why.
func TestCompareLengths(t *testing.T) {
	short, long := measured("short", 0, "randread"), measured("long", 0, "randread")
	short.Options = map[string]string{"rw": "randread", "bs": "4k", "direct": "1", "size": "64k"}
	long.Options = map[string]string{"rw": "randread", "bs": "4k", "direct": "1", "size": "4m"}
	all, _, err := BesideFio(t.Context(), &fio.Result{Version: "fio", Jobs: []fio.JobResult{short, long}}, fio.Array{Profile: "all-flash"}, Work{})
	if err != nil || len(all) != 2 || all[0].Simulated != 16 || all[1].Simulated != 1024 {
		t.Errorf("%+v, error %v", all, err)
	}
	// 100 I/Os of a job of which one in a million is a write have none.
	mixed := measured("mixed", 0, "randrw")
	mixed.Options["rwmixread"], mixed.Write = "99.9999", mixed.Read
	_, notes, err := BesideFio(t.Context(), &fio.Result{Version: "fio", Jobs: []fio.JobResult{mixed}}, fio.Array{Profile: "all-flash", IOs: 100}, Work{})
	if err != nil || len(notes) != 1 || notes[0] != "job mixed has no write within its --ios; give more" {
		t.Errorf("alone: notes %q, error %v", notes, err)
	}
	fast := measured("fast", 0, "randread")
	fast.Options["iodepth"] = "64"
	_, notes, err = BesideFio(t.Context(), &fio.Result{Version: "fio", Jobs: []fio.JobResult{mixed, fast}}, fio.Array{Profile: "all-flash", IOs: 100}, Work{})
	if text := strings.Join(notes, "\n"); err != nil || text != "job mixed has no write before another job reaches --ios; give more" {
		t.Errorf("beside another: notes %q, error %v", notes, err)
	}
}

// TestCompareWindows: the figures of a job are of its own time, and where another job ran in another part of what fio measured
// than of what was simulated, that is said. fio has one mean of its whole run alone.
func TestCompareWindows(t *testing.T) {
	job := func(name, depth string, ms float64, more map[string]string) fio.JobResult {
		j := measured(name, 0, "randread")
		j.Read.RuntimeMS, j.Options["iodepth"] = ms, depth
		for k, v := range more {
			j.Options[k] = v
		}
		return j
	}
	for _, x := range []struct {
		name  string
		jobs  []fio.JobResult
		ios   int64
		fio   float64 // of the time of the last job, the part in which the first one ran
		ours  float64
		known bool
		both  bool // the windows differ for the last job
	}{
		{"one length", []fio.JobResult{job("fast", "64", 10_000, nil), job("slow", "1", 10_000, nil)}, 2000, 1, 1, true, false},
		{"the fast one ended earlier by fio", []fio.JobResult{job("fast", "64", 1000, nil), job("slow", "1", 10_000, nil)}, 2000, 0.1, 1, true, true},
		{"both to their ends", []fio.JobResult{job("fast", "1", 10, map[string]string{"runtime": "10ms"}), job("slow", "1", 100, map[string]string{"runtime": "100ms"})}, 0, 0.1, 0.1, true, false},
		{"one begins later, behind what is simulated", []fio.JobResult{job("late", "1", 5000, map[string]string{"startdelay": "5"}), job("early", "1", 10_000, nil)}, 2000, 0.5, 0, true, true},
		{"unknown", []fio.JobResult{job("fast", "64", 0, nil), job("slow", "1", 10_000, nil)}, 2000, 0, 1, false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			all, _, err := BesideFio(t.Context(), &fio.Result{Version: "fio", Jobs: x.jobs}, fio.Array{Profile: "all-flash", IOs: x.ios}, Work{})
			if err != nil {
				t.Fatal(err)
			}
			last := x.jobs[len(x.jobs)-1]
			at := slices.IndexFunc(all, func(c Comparison) bool { return c.Job == last.Name })
			if at < 0 {
				t.Fatalf("%s is not compared: %+v", last.Name, all)
			}
			w := all[at].Window
			if w.Fio == nil || *w.Fio != last.Read.RuntimeMS/1e3 || w.Simulated <= 0 || len(w.Beside) != 1 || w.Beside[0].Job != x.jobs[0].Name {
				t.Fatalf("%+v", w)
			}
			b := w.Beside[0]
			if (b.Fio != nil) != x.known || x.known && math.Abs(*b.Fio-x.fio) > 0.01 || math.Abs(b.Simulated-x.ours) > 0.03 {
				text, _ := json.Marshal(b)
				t.Errorf("%s, want %.2f of fio's time (known %v) and %.2f of the simulated", text, x.fio, x.known, x.ours)
			}
			if w.Differ != x.both {
				t.Errorf("the windows differ: %v, want %v", w.Differ, x.both)
			}
			for _, f := range all[at].Figures {
				if n := float64(all[at].Simulated) / w.Simulated; f.Figure == "iops" && math.Abs(f.Simulated/n-1) > 1e-6 {
					t.Errorf("%.1f I/Os a second, %.1f by the window", f.Simulated, n)
				}
			}
		})
	}
}
