package fio

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// jobs returns the jobs of a scenario that is made of a job file.
func jobs(t *testing.T, file string, a Array) ([]map[string]any, []string) {
	t.Helper()
	list, err := ParseJobs(file)
	if err != nil {
		t.Fatal(err)
	}
	text, notes, err := Scenario(list, a)
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Jobs []map[string]any }
	if err := yaml.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s.Jobs, notes
}

// TestScenario: each option of a job file that the simulator has is in the scenario, and what it has not is said.
func TestScenario(t *testing.T) {
	all, notes := jobs(t, `; a comment
[global]
ioengine=libaio
direct=1
bs=8k
size=256m
runtime=2 # seconds
time_based

[reads]
rw=randread
iodepth=16
numjobs=2
[beside]
rw=write
rate_iops=100
[mixed]
stonewall
rw=randrw
rwmixread=70
thinktime=50
bssplit=4k/60:64k/40
verify=crc32c
`, Array{Profile: "svc"})
	if len(notes) != 1 || !strings.Contains(notes[0], "verify") {
		t.Errorf("notes %q", notes)
	}
	for i, want := range []map[string]any{
		{"name": "reads", "host": "reads", "pattern": "random", "outstanding": 32, "io": 8192, "write": 0, "for": "2s", "after_all": nil, "span": 256 << 20},
		{"name": "beside", "pattern": "sequential", "outstanding": 1, "rate": 100, "write": 1, "after_all": nil, "arrival": "constant"},
		{"name": "mixed", "pattern": "random", "write": 0.3, "think": "50µs", "after_all": "[reads beside]", "io": nil, "for": "2s"},
	} {
		for k, v := range want {
			got := all[i][k]
			if x, ok := got.(float64); ok {
				got = fmt.Sprintf("%.9g", x)
			}
			if fmt.Sprint(got) != fmt.Sprint(v) {
				t.Errorf("job %d: %s is %v, want %v", i, k, got, v)
			}
		}
	}
	if list := all[2]["sizes"].([]any); len(list) != 2 {
		t.Errorf("sizes %v", list)
	}
	if ends, _ := jobs(t, "[a]\nrw=read\nsize=1m\n", Array{}); fmt.Sprint(ends[0]["bytes"]) != fmt.Sprint(1<<20) || fmt.Sprint(ends[0]["outstanding"]) != "1" {
		t.Errorf("%v", ends[0])
	}
	if bounded, _ := jobs(t, "[a]\nrw=read\nsize=1g\nbs=4k\n[b]\nstonewall\nrw=read\nsize=1g", Array{IOs: 100}); fmt.Sprint(bounded[0]["bytes"]) != "409600" || fmt.Sprint(bounded[1]["after_all"]) != "[a]" {
		t.Errorf("%v", bounded)
	}
}

func TestJobMistakes(t *testing.T) {
	for file, says := range map[string]string{
		"bs=4k\n": `line 1: "bs" comes before any section`, "[a\n": "line 1: a section ends with ]", "[global]\nbs=4k\n": "it has no jobs",
		"[a]\nrw=trim\n": "job a: rw=trim is not simulated", "[a]\n[a]\n": "two jobs of this name", "[a]\ntime_based\n": "time_based needs a runtime",
		"[a]\nsize=50%\n": "job a: size=50%: the simulated LUN is as large as its jobs say", "[a]\nio_size=10%\n": "job a: io_size=10%: the simulated LUN",
		"[a]\nrw=randread:8\n": "job a: rw=randread:8: sequences with jumps are not simulated; leave the :8 out", "[a]\nsize=x\n": `job a: size: "x"`,
		"[a]\nfilesize=50%\n": "filesize=50%: the simulated LUN is as large as its jobs say, so a part of it is unknown; give bytes, such as filesize=1g", "[a]\nfilesize=x\n": `job a: filesize: "x"`,
		"[a]\nsize=1m\nio_size=x%\n": "job a: io_size=x% is not a percentage", "[a]\nsize=1m\nio_size=200%\n": "job a: io_size=200% is not a percentage from 1 to 100",
		"[a]\nbuffered=1\n": "job a: buffered=1: the page cache is neither simulated nor fitted; measure with direct=1",
		"[a]\niodepth=0\n":  "both must be numbers of at least 1", "[a]\nbs=x\n": `"x" is not a valid size`, "[a]\nbssplit=4k-3\n": "write sizes with percentages",
	} {
		list, err := ParseJobs(file)
		if err == nil {
			_, _, err = Scenario(list, Array{})
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want %q", file, err, says)
		}
	}
}

// TestArrayBytes: more I/Os than there are bytes are no bound, and none of 0.
func TestArrayBytes(t *testing.T) {
	for ios, want := range map[int64]uint64{0: math.MaxUint64, 100: 409_600, 1 << 52: math.MaxUint64, math.MaxInt64: math.MaxUint64} {
		if got := (Array{IOs: ios}).Bytes(4096); got != want {
			t.Errorf("%d I/Os are %d bytes, want %d", ios, got, want)
		}
	}
}

// TestStages: what begins behind a stonewall waits for all jobs before it. new_group begins a report, and a switch of 0
// is off.
func TestStages(t *testing.T) {
	all, notes := jobs(t, "[global]\nruntime=1\ntime_based\n[a]\nruntime=9\n[b]\n[c]\nnew_group\nstonewall=0\n[d]\nwait_for_previous\ntime_based=0\nsize=100%\n[e]\ndirect=1\n", Array{})
	for i, want := range []string{"<nil>", "<nil>", "<nil>", "[a b c]", "[a b c]"} {
		if got := fmt.Sprint(all[i]["after_all"]); got != want {
			t.Errorf("job %v is behind %s, want %s", all[i]["name"], got, want)
		}
	}
	if got := all[3]["bytes"]; got != uint64(1<<30) {
		t.Errorf("time_based=0 and size=100%%: %v bytes", got)
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "without direct=1 fio runs a, b, c, d through the page cache, which the simulator does not have") || !strings.Contains(notes[1], "1 GiB is assumed for that of d;") {
		t.Errorf("notes %q", notes)
	}
}
