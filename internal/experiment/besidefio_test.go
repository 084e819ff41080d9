package experiment

import (
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
