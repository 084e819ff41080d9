package experiment

import (
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
