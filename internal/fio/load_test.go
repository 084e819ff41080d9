package fio

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// options are "bs=4k iodepth=2" as fio's result has them.
func options(text string) Options {
	o := Options{}
	for f := range strings.FieldsSeq(text) {
		k, v, _ := strings.Cut(f, "=")
		o.set(k, v)
	}
	return o
}

func TestLoadOf(t *testing.T) {
	for text, want := range map[string]Load{
		"": {IO: 4096, Sequential: true, Outstanding: 1},
		"rw=randread bs=8k iodepth=16 ioengine=libaio numjobs=2":                      {IO: 8192, Outstanding: 32},
		"rw=randread bs=8k iodepth=16 ioengine=psync numjobs=2":                       {IO: 8192, Outstanding: 2},
		"rw=randread bs=8k iodepth=16":                                                {IO: 8192, Outstanding: 1}, // fio's default engine is psync
		"rw=randwrite bs=8k,64k":                                                      {IO: 64 << 10, Write: 1, Outstanding: 1},
		"rw=randread bs=8k,64k":                                                       {IO: 8 << 10, Outstanding: 1},
		"rw=randrw rwmixread=70 bs=8k,8k":                                             {IO: 8 << 10, Write: 0.3, Outstanding: 1},
		"rw=randrw rwmixwrite=20":                                                     {IO: 4 << 10, Write: 0.2, Outstanding: 1},
		"rw=write rate_iops=100,50 numjobs=2":                                         {IO: 4096, Write: 1, Sequential: true, Outstanding: 2, Rate: 100},
		"rw=randread thinktime=50":                                                    {IO: 4096, Outstanding: 1, Think: 50 * time.Microsecond},
		"rw=randread bssplit=4k/50:12k/50":                                            {IO: 8192, Outstanding: 1, Sizes: []Weight{{4096, 5000}, {12288, 5000}}},
		"rw=randread:1 buffered=0 direct=1":                                           {IO: 4096, Outstanding: 1},
		"rw=write:0 ioengine=libiscsi":                                                {IO: 4096, Write: 1, Sequential: true, Outstanding: 1},
		"rw=randread ioengine=nbd iodepth=4 uri=nbd+unix:///?socket=x":                {IO: 4096, Outstanding: 4},
		"rw=randread ioengine=rbd iodepth=4 pool=p rbdname=v clientname=a":            {IO: 4096, Outstanding: 4},
		"rw=randread ba=4k iodepth_batch=1 iodepth_low=1 direct=1":                    {IO: 4096, Outstanding: 1},
		"rw=randread ba=1m iodepth_batch_complete=8 verify=md5 iodepth_batch_submit=": {IO: 4096, Outstanding: 1, Left: []string{"ba", "iodepth_batch", "iodepth_batch_complete_min", "verify"}},
	} {
		got, err := LoadOf(options(text))
		got.Write = float64(int(got.Write*1000+0.5)) / 1000
		want.Buffered = !strings.Contains(text, "direct=1") && !strings.Contains(text, "libiscsi") && !strings.Contains(text, "nbd") && !strings.Contains(text, "rbd")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, error %v, want %+v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"bsrange=4k-64k":              "a range of sizes is not simulated",
		"rw=randrw bs=4k,64k":         "reads and writes of one job that differ are not simulated",
		"rw=randrw bssplit=4k/9,8k/1": "reads and writes of one job that differ are not simulated",
		"iodepth=0":                   "iodepth=0 and numjobs=1: both must be numbers of at least 1",
		"iodepth=-3 ioengine=libaio":  "both must be numbers of at least 1",
		"rw=randrw rate_iops=100":     "bounds reads and writes of a mixed job separately",
		"rw=randrw rwmixread=170":     "rwmixread=170 is not a percentage",
		"rw=randread rate_iops=lots":  "is not a number of I/Os a second",
		"rw=randread bs=0":            "is not a valid size of an I/O",
		"bssplit=4k/0:64k/0":          "bssplit=4k/0:64k/0: no size has a hundredth of a percent",
		"bssplit=4k/0.001":            "no size has a hundredth of a percent",
		"bssplit=0/50:4k/50":          "write sizes with percentages",
		"rw=randtrim":                 "rw=randtrim is not simulated",
		"rw=randread:8":               "rw=randread:8: sequences with jumps are not simulated; leave the :8 out",
		"rw=read:4k":                  "rw=read:4k: sequences with jumps",
		"direct=0":                    "direct=0: the page cache is neither simulated nor fitted; measure with direct=1",
		"buffered=1":                  "buffered=1: the page cache",
		"buffered":                    "buffered=: the page cache",
		"direct=1 buffered=1":         "buffered=1: the page cache",
		"bs=nan":                      "is not a valid size",
	} {
		if l, err := LoadOf(options(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, error %v, want %q", text, l, err, says)
		}
	}
}

// TestDirectAndBuffered: in fio they are one setting, and the last one counts, in a job file and in a result.
func TestDirectAndBuffered(t *testing.T) {
	for _, row := range []struct {
		options string // of the global section, and of the job
		refused string
	}{{"direct=1,", ""}, {"buffered=1,direct=1", ""}, {"direct=0,buffered=0", ""}, {"buffered=1 direct=1,", ""}, {"direct=0 buffered=0,", ""}, {",buffered=1 direct=1", ""},
		{"direct=1,buffered=1", "buffered=1"}, {"buffered=0,direct=0", "direct=0"}, {"direct=1 buffered=1,", "buffered=1"}, {",buffered=0 direct=0", "direct=0"}} {
		global, own, _ := strings.Cut(row.options, ",")
		object := func(text string) string {
			var out []string
			for f := range strings.FieldsSeq(text) {
				k, v, _ := strings.Cut(f, "=")
				out = append(out, fmt.Sprintf("%q: %q", k, v))
			}
			return "{" + strings.Join(out, ", ") + "}"
		}
		for range 20 { // a map has another order each time
			list, err := ParseJobs("[global]\n" + strings.ReplaceAll(global, " ", "\n") + "\n[a]\n" + strings.ReplaceAll(own, " ", "\n") + "\n")
			if err != nil {
				t.Fatal(err)
			}
			r, err := ParseResult([]byte(`{"fio version": "fio-3.33", "global options": ` + object(global) + `, "jobs": [{"jobname": "a", "job options": ` + object(own) + `}]}`))
			if err != nil {
				t.Fatal(err)
			}
			ran, err := r.Ran()
			if err != nil {
				t.Fatal(err)
			}
			for from, o := range map[string]map[string]string{"file": list[0].Options, "result": ran[0].Options} {
				l, err := LoadOf(o)
				if l.Buffered || (err == nil) != (row.refused == "") || err != nil && !strings.HasPrefix(err.Error(), row.refused+":") {
					t.Fatalf("%s: %s: %+v, error %v, want %q", row.options, from, l, err, row.refused)
				}
			}
		}
	}
	if r, err := ParseResult([]byte(`{"fio version": "fio-3.33", "global options": null, "jobs": [{"jobname": "a", "job options": {"bs": 4}}]}`)); err == nil {
		t.Errorf("an option that is a number: %+v", r)
	}
}

// TestAliases: two names of an option are one option, and the last one counts, in a job file and in a result.
func TestAliases(t *testing.T) {
	for text, want := range map[string]Load{
		"rw=randread bs=4k,readwrite=randwrite blocksize=64k":                    {IO: 64 << 10, Write: 1, Outstanding: 1},
		"readwrite=randwrite blocksize=64k,rw=randread bs=8k":                    {IO: 8 << 10, Outstanding: 1},
		"rw=randrw rwmixread=70,rwmixwrite=20":                                   {IO: 4 << 10, Write: 0.2, Outstanding: 1},
		"rw=randrw,rwmixwrite=20 rwmixread=75":                                   {IO: 4 << 10, Write: 0.25, Outstanding: 1},
		"rw=randread ba=1m iodepth_batch=8,blockalign=4k iodepth_batch_submit=1": {IO: 4 << 10, Outstanding: 1},
	} {
		global, own, _ := strings.Cut(text, ",")
		list, err := ParseJobs("[global]\ndirect=1\n" + strings.ReplaceAll(global, " ", "\n") + "\n[a]\n" + strings.ReplaceAll(own, " ", "\n") + "\n")
		if err != nil {
			t.Fatal(err)
		}
		ran, err := (&Result{Global: options("direct=1 " + global), Jobs: []JobResult{entry("a", 0, 1, 1, own)}}).Ran()
		if err != nil {
			t.Fatal(err)
		}
		for from, o := range map[string]Options{"file": list[0].Options, "result": ran[0].Options} {
			if l, err := LoadOf(o); err != nil || !reflect.DeepEqual(l, want) {
				t.Errorf("%s: %s: %+v, error %v, want %+v", text, from, l, err, want)
			}
		}
	}
	all, notes := jobs(t, "[global]\ndirect=1\nsize=8m\nruntime=9\nio_size=1m\nstonewall\n[a]\n[b]\ntimeout=2\nio_limit=2m\nwait_for_previous=0\n", Array{})
	if b := all[1]; b["for"] != "2s" || b["bytes"] != uint64(2<<20) || b["after_all"] != nil || len(notes) > 0 {
		t.Errorf("%v, notes %q", b, notes)
	}
}

// TestSizes: filesize is what size=100% is of, io_size may be a part of size, and a size that nobody knows is noted.
func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{"filesize=64m": 64 << 20, "filesize=64m size=100%": 64 << 20, "size=8m filesize=64m": 8 << 20, "size=8m io_size=50%": 4 << 20,
		"size=8m io_size=100%": 8 << 20, "size=100% io_size=2m": 2 << 20, "filesize=100% io_size=100% loops=2": 2 << 30, "size=100%": 1 << 30, "": 1 << 30, "size=100% time_based runtime=1": 1 << 62} {
		all, notes := jobs(t, "[a]\ndirect=1\n"+strings.ReplaceAll(text, " ", "\n")+"\n", Array{})
		if got := all[0]["bytes"]; got != want {
			t.Errorf("%s: %v bytes, want %d", text, got, want)
		}
		if noted := len(notes) == 1 && strings.Contains(notes[0], "1 GiB is assumed for that of a;"); noted != (want == 1<<30 || want == 2<<30) || len(notes) > 1 {
			t.Errorf("%s: notes %q", text, notes)
		}
	}
	if _, notes := jobs(t, "[a]\ndirect=1\nbs=4k\nsize=100%\n", Array{IOs: 100}); len(notes) > 0 {
		t.Errorf("a job that --ios ends before: %q", notes)
	}
}

// entry is a job of a result, which had N I/Os of a mean latency.
func entry(name string, group int, n int64, mean float64, text string) JobResult {
	return JobResult{Name: name, Group: group, Options: options(text), Read: Direction{Count: n, IOPS: float64(n), RuntimeMS: 1000, Latency: Spread{N: n, Mean: mean, Min: mean, Max: mean}}}
}

// TestRan: clones are one job under the load of all, jobs of a group ran at the same time, and groups one after the other.
func TestRan(t *testing.T) {
	r := &Result{Global: map[string]string{"ioengine": "libaio"}, Jobs: []JobResult{
		entry("clones", 0, 100, 1000, "rw=randread iodepth=4 numjobs=2"), entry("clones", 0, 300, 2000, "rw=randread iodepth=4 numjobs=2"),
		entry("one", 1, 10, 5, "rw=randread"), entry("other", 1, 10, 5, "rw=randread"),
	}}
	ran, err := r.Ran()
	if err != nil || len(ran) != 3 {
		t.Fatalf("%+v, error %v", ran, err)
	}
	if c := &ran[0]; c.Read.Count != 400 || c.Read.IOPS != 400 || c.Read.Latency.Mean != 1750 || c.Read.Latency.N != 400 || len(c.Beside) != 0 || c.Read.Latency.Deviation < 430 || c.Read.Latency.Deviation > 436 {
		t.Errorf("clones: %+v", c)
	}
	for i, wall := range []bool{false, true, false} {
		if _, has := ran[i].Options["stonewall"]; has != wall || ran[i].Options["ioengine"] != "libaio" {
			t.Errorf("%s: %v", ran[i].Name, ran[i].Options)
		}
	}
	if len(ran[1].Beside) != 1 || ran[1].Beside[0] != "other" || ran[2].Beside[0] != "one" {
		t.Errorf("beside: %v, %v", ran[1].Beside, ran[2].Beside)
	}
	if text, _, err := Scenario([]Job{ran[0].Job, ran[1].Job, ran[2].Job}, Array{Profile: "svc"}); err != nil || strings.Count(string(text), "after_all:") != 2 {
		t.Errorf("%s (error %v)", text, err)
	}
}

// TestRanStages: new_group=1 divides reports and no time, whoever ran beside whom is known over groups, and a switch of 0 is off.
// The values of fio 3.33 for switches without one are not in its result.
func TestRanStages(t *testing.T) {
	timed := func(name string, group int, options string) JobResult {
		j := entry(name, group, 10, 5, options)
		j.Elapsed = 3
		return j
	}
	ran, err := (&Result{Jobs: []JobResult{timed("a", 0, ""), timed("b", 1, "new_group=1"), timed("c", 2, ""), timed("d", 2, "stonewall=0"), timed("e", 3, "wait_for_previous=1 new_group=1")}}).Ran()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		wall   bool
		beside string
	}{{false, "[b]"}, {false, "[a]"}, {true, "[d]"}, {false, "[c]"}, {true, "[]"}} {
		if _, wall := ran[i].Options["stonewall"]; wall != want.wall || fmt.Sprint(ran[i].Beside) != want.beside {
			t.Errorf("%s: stonewall %v, beside %v, want %+v", ran[i].Name, wall, ran[i].Beside, want)
		}
	}
	_, err = (&Result{Jobs: []JobResult{timed("a", 0, ""), timed("b", 1, ""), timed("c", 2, ""), timed("d", 3, "")}}).Ran()
	if err == nil || !strings.Contains(err.Error(), "one after the other they take 4.0 s, and fio took 3; write new_group=1") {
		t.Errorf("four groups of a second in three: error %v", err)
	}
}

// TestRanRefuses: what cannot be told apart is refused. fio 3.33 gives one entry for two jobs of a group with
// group_reporting: the first one's name, the last one's options, and the time of all threads.
func TestRanRefuses(t *testing.T) {
	sum := entry("a", 0, 100, 5, "rw=randwrite bs=64k")
	sum.ThreadMS = 3136
	grouped := entry("c", 0, 100, 5, "rw=randread numjobs=3")
	grouped.ThreadMS = 3084
	failed := entry("a", 0, 1, 1, "")
	failed.Error = 5
	for says, jobs := range map[string][]JobResult{
		"sums up several jobs": {sum}, "ended with error 5": {failed},
		"two jobs a ran at the same time": {entry("a", 0, 1, 1, ""), entry("a", 0, 1, 1, "")},
		"":                                {grouped},
	} {
		_, err := (&Result{Jobs: jobs}).Ran()
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("error %v, want %q", err, says)
		}
	}
}

// TestLoops: a job that is repeated has so many times the bytes; what is left out is named.
func TestLoops(t *testing.T) {
	all, notes := jobs(t, "[a]\nrw=read\ndirect=1\nsize=1m\nloops=3\nramp_time=5\nblockalign=64k\niodepth_batch=4\n", Array{})
	if got := all[0]["bytes"]; got != uint64(3<<20) {
		t.Errorf("%v bytes", got)
	}
	if text := strings.Join(notes, "; "); len(notes) != 3 || !strings.Contains(text, "ramp_time") || !strings.Contains(text, "counterpart of ba,") || !strings.Contains(text, "iodepth_batch") {
		t.Errorf("notes %q", notes)
	}
}

// TestClonesLength: each clone of a job has its length, so all together have as many times that; what --ios ends, ends
// there however many there are.
func TestClonesLength(t *testing.T) {
	for text, want := range map[string]uint64{"size=1m numjobs=4": 4 << 20, "size=8m io_size=50% loops=3 numjobs=2": 24 << 20, "size=1m numjobs=1": 1 << 20,
		"numjobs=4": 4 << 30, "size=1m numjobs=4 runtime=1": 4 << 20, "size=1m numjobs=4 runtime=1 time_based": 1 << 62, "size=1t loops=4000 numjobs=1048576": 1 << 62} {
		for ios, most := range map[int64]uint64{0: 1 << 62, 100: 100 * 4096} {
			all, _ := jobs(t, "[a]\ndirect=1\nbs=4k\n"+strings.ReplaceAll(text, " ", "\n")+"\n", Array{IOs: ios})
			if got := all[0]["bytes"]; got != min(want, most) {
				t.Errorf("%s, %d I/Os: %v bytes, want %d", text, ios, got, min(want, most))
			}
		}
	}
}
