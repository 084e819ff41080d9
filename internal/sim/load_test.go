package sim

import (
	"fmt"
	"strings"
	"testing"
)

// inSmall is a scenario of a small array, with these jobs and what else there is.
func inSmall(jobs, rest string) string {
	return fmt.Sprintf(`{name: s, until: 3s, profile: all-flash, arrays: [{name: a, cache: 16MiB, pools: [{name: p, mdisks: [{size: 1GiB}]}],
		volumes: [{name: v, pool: p, size: 64MiB}]}], hosts: [{name: h}], jobs: [%s]%s}`, jobs, rest)
}

// TestLoadsThatCannotBe are refused in one line: they would divide by zero, never end, or run at another rate than they say.
func TestLoadsThatCannotBe(t *testing.T) {
	for load, want := range map[string]string{
		"bandwidth: 1MiB, sizes: [{size: 4KiB}]":                                                      "no size has a weight",
		"outstanding: 1, bytes: 1MiB, sizes: [{size: 4KiB}, {size: 8KiB, weight: 0}]":                 "no size has a weight",
		"outstanding: 1, sizes: [{size: 0, weight: 1}]":                                               "an I/O of 0",
		"outstanding: 1, sizes: [{size: 4KiB, weight: -1}]":                                           "has the weight -1",
		"outstanding: 1, sizes: [{size: 4KiB, weight: 9000000000}]":                                   "weights go from 0 to 10^9",
		"outstanding: 1, io: 100":                                                                     "sizes are multiples of 512",
		"outstanding: -1, io: 4KiB":                                                                   "outstanding is -1; give 1 or more",
		"kind: zero, outstanding: -1":                                                                 "outstanding is -1",
		"rate: -5, io: 4KiB":                                                                          "a rate of -5 I/Os a second; give 0.001 to 10^9",
		"rate: .inf, io: 4KiB":                                                                        "a rate of +Inf",
		"rate: .nan, io: 4KiB":                                                                        "a rate of NaN",
		"rate: 1e12, io: 4KiB":                                                                        "a rate of 1e+12",
		"rate: 0.0004, io: 4KiB, bytes: 8KiB":                                                         "a rate of 0.0004",
		"rate: 1, rate_max: .inf, io: 4KiB":                                                           "a rate of +Inf",
		"bandwidth: 1, io: 4KiB, bytes: 8KiB":                                                         "less than an I/O in 1000 s",
		"bandwidth: 2PiB, io: 4KiB":                                                                   "give 1 PiB or less",
		"rate: 5, io: 4KiB, changes: [{at: 1s, rate: -1}]":                                            "change at 1s: a rate of -1",
		"rate: 5, io: 4KiB, changes: [{at: 1s}]":                                                      "change at 1s: an open loop stays one",
		"outstanding: 4, rate_max: 5, io: 4KiB, changes: [{at: 1s}]":                                  "change at 1s: an open loop stays one",
		"outstanding: 5, io: 4KiB, changes: [{at: 1s, rate: 5}]":                                      "a closed one without",
		"outstanding: 1, io: 4KiB, burst: {}":                                                         "a burst takes time, and so does what is between two",
		"rate: 1, io: 4KiB, burst: {for: 1s}":                                                         "give for and every",
		"rate: 1, io: 4KiB, burst: {every: 1s}":                                                       "give for and every",
		"rate: 5, rate_max: 2, io: 4KiB":                                                              "rate_max is 2, below the rate of 5; give more",
		"rate: 5, total: true, lognormal: -1, io: 4KiB":                                               "lognormal is -1; give 0 to 100",
		"rate: 5, total: true, lognormal: .inf, io: 4KiB":                                             "lognormal is +Inf",
		"rate: 5, lognormal: 1, io: 4KiB":                                                             "add total: true",
		"rate: 5, pattern: sequential, hot: {reads: 0.5, span: 1MiB}, io: 4KiB":                       "a sequential load has no hot span",
		"rate: 5, verify: true, io: 4KiB":                                                             "verify",
		"outstanding: 1, io: 4KiB, write: .nan":                                                       "fractions go from 0 to 1",
		"outstanding: 1, io: 4KiB, write: 0.5, hot: {reads: .nan, span: 1MiB}":                        "fractions go from 0 to 1",
		"outstanding: 1, sizes: [{size: 4KiB, weight: 1}, {size: 0, weight: 0}], pattern: sequential": "an I/O of 0",
	} {
		if _, err := Parse([]byte(inSmall("{name: j, volume: v, "+load+"}", ""))); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", load, err, want)
		}
	}
	// A rate that is drawn makes an open loop, which may change; one that ends in a burst does not let time stand still.
	for _, load := range []string{"outstanding: 4, rate_max: 5, io: 4KiB, changes: [{at: 1s, rate: 2}]",
		"outstanding: 1, io: 4KiB, burst: {for: 10s, every: 1ms}, changes: [{at: 500ms, rate: 50}, {at: 1500ms}]"} {
		if r := runOf(t, "%s", inSmall("{name: j, volume: v, "+load+"}", "")); !r.Ended() {
			t.Errorf("%s does not end", load)
		}
	}
	// A rate that is drawn is never so low that the load stands still, or is taken for a closed loop.
	r := runOf(t, "%s", inSmall("{name: j, volume: v, rate_max: 0.001, outstanding: 4, io: 4KiB, arrival: constant}", ""))
	if n, err := r.Value("job.j.bytes", 0, 0); err != nil || n != 0 {
		t.Errorf("%g bytes in 3 s of a rate below an I/O in 1000 s, %v", n, err)
	}
}

// TestBurstsThatFollowAtOnce: a burst that begins while commands of the one before are under way or think, or while an
// arrival is due, runs at the rate that is asked for, and not at twice that.
func TestBurstsThatFollowAtOnce(t *testing.T) {
	for load, want := range map[string][2]float64{
		// All but a thousandth of the time: 100 I/Os of 4 KiB, give or take four deviations, or one each second.
		"rate: 1": {60, 140}, "rate: 1, arrival: constant": {95, 100},
		// A command's time is its think time and less than 1 ms.
		"outstanding: 2, think: 1s": {190, 200},
	} {
		text := strings.Replace(inSmall("{name: j, volume: v, io: 4KiB, burst: {for: 900ms, every: 1ms}, "+load+"}", ""), "until: 3s", "until: 100s", 1)
		if n, err := runOf(t, "%s", text).Value("job.j.bytes", 0, 0); err != nil || n < want[0]*4096 || n > want[1]*4096 {
			t.Errorf("%s: %g I/Os in 100 s, want %g to %g, %v", load, n/4096, want[0], want[1], err)
		}
	}
}

// TestUnknownFiguresInOutput: what a run does not have is null in JSON and "-" in the report, and what it has is there.
func TestUnknownFiguresInOutput(t *testing.T) {
	r := runOf(t, "%s", inSmall("{name: reads, volume: v, io: 4KiB, rate: 100}, {name: never, volume: v, io: 4KiB, rate: 100, at: 1h}", ""))
	json := string(r.JSON())
	for _, want := range []string{`"job.never.latency_ms": null`, `"job.never.seconds": null`, `"job.never.failed": 0`, `"pool.p.write_ms": null`, `"p99_ms": null`, `"pool.p.iops": 1`, `"job.reads.p99_ms": 0.`} {
		if !strings.Contains(json, want) {
			t.Errorf("there is no %s in %s", want, json)
		}
	}
	report := r.Report()
	for name, want := range map[string]string{"never": "never load - - - - - - 0", "a/p": "a/p 0.0 0.0 100 - - 0"} {
		found := false
		for line := range strings.Lines(report) {
			fields := strings.Fields(line)
			if len(fields) > 0 && fields[0] == name {
				found = true
				if name == "a/p" {
					fields[3] = "100"
				}
				if got := strings.Join(fields, " "); got != want {
					t.Errorf("the report has %q, want %q", got, want)
				}
			}
		}
		if !found {
			t.Errorf("there is no %s in %s", name, report)
		}
	}
}

// TestTwoCasesOfOneName are refused: one result would take the place of the other.
func TestTwoCasesOfOneName(t *testing.T) {
	_, err := Parse([]byte(inSmall("", ", cases: [{name: one}, {name: two}, {name: one}]")))
	if err == nil || !strings.Contains(err.Error(), `there are two cases "one"; rename one`) {
		t.Errorf("the error is %v", err)
	}
}

// TestDifferenceFromZero: of a figure that is wanted to be 0 there is no percentage.
func TestDifferenceFromZero(t *testing.T) {
	for _, row := range []struct {
		v, want float64
		text    string
	}{{0, 0, "+0"}, {12.34, 0, "+12.3"}, {-0.5, 0, "-0.5"}, {11, 10, "+10.0 %"}, {9, 10, "-10.0 %"}} {
		if got := difference(row.v, row.want); got != row.text {
			t.Errorf("%g against %g: %q, want %q", row.v, row.want, got, row.text)
		}
	}
	want := 0.0
	e := Expect{Kind: Pinned, What: "x", Value: "job.j.failed", Want: &want}
	r := runOf(t, "%s", inSmall("{name: j, volume: v, io: 4KiB, rate: 100}", ""))
	if o := Compare([]Expect{e}, map[string]*Run{"": r}); !o[0].OK || o[0].Difference != "+0" {
		t.Errorf("the outcome is %+v", o[0])
	}
	all := NewReplicates([]Expect{e})
	for seed := range uint64(2) {
		all.Add(seed+1, map[string]*Run{"": r})
	}
	if o := all.Outcomes(); !o[0].OK || o[0].Difference != "+0" {
		t.Errorf("of several runs the outcome is %+v", o[0])
	}
}

// TestChangesHoldAtOnce: a new rate does not wait for the arrival that was drawn at the old one, and a load that becomes an open or
// a closed loop within a burst goes on as such.
func TestChangesHoldAtOnce(t *testing.T) {
	for load, want := range map[string][2]float64{
		"rate: 0.01, arrival: constant, changes: [{at: 1s, rate: 1000}]":                                                         {1999, 2001},
		"rate: 0.01, changes: [{at: 1s, rate: 1000}]":                                                                            {1800, 2200},
		"rate: 1000, arrival: constant, changes: [{at: 1s, rate: 0.01}]":                                                         {999, 1001},
		"rate: 1000, arrival: constant, changes: [{at: 1s, rate: 0.01}, {at: 2s, rate: 10}]":                                     {1008, 1011},
		"outstanding: 1, think: 10ms, burst: {for: 10s, every: 1ms}, arrival: constant, changes: [{at: 1s, rate: 50}, {at: 2s}]": {225, 250},
		// Before the job begins, and while no burst is: nothing is due.
		"at: 2s, rate: 0.01, arrival: constant, changes: [{at: 1s, rate: 1000}]": {999, 1000},
	} {
		if n, err := runOf(t, "%s", inSmall("{name: j, volume: v, io: 4KiB, "+load+"}", "")).Value("job.j.bytes", 0, 0); err != nil || n < want[0]*4096 || n > want[1]*4096 {
			t.Errorf("%s: %g I/Os in 3 s, want %g to %g, %v", load, n/4096, want[0], want[1], err)
		}
	}
}

// TestTimeStandsStill: where nothing takes time, a closed loop has no end. Its run ends with an error, and an interruption ends
// it before. Work that ends may take as many steps as it needs.
func TestTimeStandsStill(t *testing.T) {
	still := func(job string) *Run {
		text := strings.Replace(inSmall("{volume: v, "+job+"}", ""), "all-flash", "none", 1)
		s, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		r.most = lookAround
		return r
	}
	for _, job := range []string{"outstanding: 4, io: 4KiB", "outstanding: 4, io: 4KiB, for: 1s",
		"kind: transactions, users: 3, steps: [{ios: 2, io: 4KiB}]"} {
		r := still("at: 1s, " + job)
		if want := "time stands still at 1s: nothing takes time; give a profile, think, bytes or a rate"; !r.Advance(3e9) || fmt.Sprint(r.Problem()) != want || r.Ended() {
			t.Errorf("%s: %v, want %s", job, r.Problem(), want)
		}
		r = still("at: 1s, " + job)
		asked := 0
		r.Interrupt(func() bool { asked++; return true })
		if r.Advance(3e9) || asked != 1 || r.now() != 1e9 {
			t.Errorf("%s: it was asked %d times whether to go on, at %s", job, asked, Duration(r.now()))
		}
	}
	for _, job := range []string{"outstanding: 4, io: 4KiB, think: 1ms", "outstanding: 4, io: 4KiB, rate: 10", "outstanding: 4, io: 4KiB, bytes: 100MiB"} {
		if r := still(job); !r.Advance(3e9) || !r.Ended() {
			t.Errorf("%s: %v", job, r.Problem())
		}
	}
}

// TestSmallAlignment: I/Os that are larger than what their addresses are multiples of stay within the span, and come to its end.
func TestSmallAlignment(t *testing.T) {
	for _, row := range []struct {
		load, says string
		end        uint64 // of the I/O that ends last
	}{
		{"align: 4KiB, span: 2MiB, io: 1MiB, disk: thin, size: 2MiB, write: 1", "", 2 << 20},
		{"align: 16MiB, io: 16MiB", "", 64 << 20},
		{"align: 4KiB, span: 128KiB, io: 64KiB, hot: {reads: 1, span: 4KiB}", "", 64 << 10},
		{"align: 512, span: 1000, io: 512", "", 512},
		{"align: 1, span: 64KiB, io: 4KiB", "", 64 << 10},
		{"align: 4KiB, span: 256KiB, io: 64KiB, pattern: sequential", "", 256 << 10},
		{"align: 4KiB, span: 32KiB, io: 64KiB, pattern: sequential", "is 32KiB and smaller than one I/O of 64KiB; give more", 0},
		{"align: 4KiB, span: 32KiB, sizes: [{size: 4KiB, weight: 9}, {size: 64KiB, weight: 1}]", "smaller than one I/O of 64KiB", 0},
	} {
		s, err := Parse([]byte(inSmall("{name: j, volume: v, outstanding: 4, think: 10ms, "+row.load+"}", "")))
		if err != nil {
			t.Fatal(err)
		}
		end := uint64(0)
		r, err := New(s)
		if err == nil {
			r.watch = func(io IO) { end = max(end, io.Offset+io.Bytes) }
			r.Advance(1e9)
		}
		if got := fmt.Sprint(err); row.says == "" && (err != nil || r.jobs[0].failed > 0 || end > row.end || end < row.end/8*7) || !strings.Contains(got, row.says) {
			t.Errorf("%s: the end is %d, %s, want %d, %s", row.load, end, got, row.end, row.says)
		}
	}
}

// TestWholeBlocks: an I/O that is not whole blocks of its volume would be a command of fewer blocks, or of none.
func TestWholeBlocks(t *testing.T) {
	for job, want := range map[string]string{
		"outstanding: 1, io: 512": "job j: an I/O of 512 on volume v, whose blocks are of 4096 bytes; give a multiple of that",
		"rate: 1, sizes: [{size: 4KiB, weight: 1}, {size: 6KiB, weight: 1}]":       "an I/O of 6KiB on volume v",
		"kind: transactions, users: 1, steps: [{compute: 1ms}, {ios: 1, io: 512}]": "step 1: an I/O of 512 on volume v",
		"outstanding: 1, think: 1ms, io: 8KiB, align: 512":                         "",
	} {
		s, err := Parse([]byte(strings.Replace(inSmall("{name: j, volume: v, "+job+"}", ""), "size: 64MiB", "block_size: 4096, size: 64MiB", 1)))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(s)
		if err == nil {
			r.Advance(3e9)
		}
		if got := fmt.Sprint(err); want == "" && (err != nil || r.jobs[0].failed > 0) || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %v, want %s", job, err, want)
		}
	}
}
