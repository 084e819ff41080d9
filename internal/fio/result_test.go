package fio

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestSizesAndTimes(t *testing.T) {
	for text, want := range map[string]uint64{"4k": 4096, "4KiB": 4096, "1m": 1 << 20, "512": 512, "2g": 2 << 30, "0x10": 16, "1.5k": 1536, "1t": 1 << 40} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, error %v", text, got, err)
		}
	}
	for text, want := range map[string]int64{"30": 30e9, "30s": 30e9, "500ms": 5e8, "2m": 120e9, "1h": 3600e9, "10us": 10e3} {
		if got, err := ParseTime(text, 1e9); err != nil || got != want {
			t.Errorf("%s: %d, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "k", "-4k", "four", "1e40"} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

func TestParseResult(t *testing.T) {
	r, err := ParseResult([]byte("fio: a note\n" + `{"fio version": "fio-3.33", "global options": {"bs": "8k"}, "jobs": [{"jobname": "a", "job options": {"rw": "randread"}, "read": {"total_ios": 3, "lat_ns": {"mean": 5, "percentile": {"99.000000": 7, "50.000000": 4}}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	j := &r.Jobs[0]
	if ran, err := r.Ran(); err != nil || ran[0].Options["bs"] != "8k" || ran[0].Options["rw"] != "randread" || j.Read.Count != 3 {
		t.Errorf("%+v, error %v", r, err)
	}
	if p, ns := j.Read.Latency.Quantiles(); len(p) != 2 || p[0] != 50 || ns[1] != 7 {
		t.Errorf("%v %v", p, ns)
	}
	for _, text := range []string{"", "nothing", "{}", `{"fio version": "x"}`, `{"fio version": 3}`} {
		if _, err := ParseResult([]byte(text)); err == nil || !strings.Contains(err.Error(), "not a result of fio") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// TestTimeBasedIsFound: fio's result has no options without a value, so that of jobs with a runtime only what they did says
// whether their length ended them. It is the length of each clone.
func TestTimeBasedIsFound(t *testing.T) {
	for _, row := range []struct {
		options     string
		read, write int64
		timed       bool
	}{
		{`"size": "8m", "runtime": "1"`, 9 << 20, 0, true},
		{`"size": "8m", "runtime": "1"`, 5 << 20, 4 << 20, true},
		{`"size": "8m", "timeout": "1"`, 9 << 20, 0, true},
		{`"size": "8m", "runtime": "1"`, 8 << 20, 0, false},
		{`"size": "8m"`, 9 << 20, 0, false},
		{`"size": "8m", "runtime": "1", "time_based": "0"`, 9 << 20, 0, false},
		{`"size": "8m", "runtime": "1", "time_based": "1"`, 1 << 20, 0, true},
		{`"size": "8m", "runtime": "1", "loops": "2"`, 9 << 20, 0, false},
		{`"size": "8m", "runtime": "1", "io_size": "4m"`, 5 << 20, 0, true},
		{`"size": "8m", "runtime": "1", "numjobs": "2"`, 16 << 20, 0, false},
		{`"size": "8m", "runtime": "1", "numjobs": "2"`, 17 << 20, 0, true},
		{`"size": "100%", "runtime": "1"`, 9 << 40, 0, false},
	} {
		r, err := ParseResult(fmt.Appendf(nil, `{"fio version": "fio-3.33", "global options": {%s, "direct": "1"}, "jobs": [{"jobname": "a", "job options": {"bs": "4k"}, "read": {"total_ios": 9, "io_bytes": %d}, "write": {"io_bytes": %d}}]}`, row.options, row.read, row.write))
		if err != nil {
			t.Fatal(err)
		}
		ran, err := r.Ran()
		if err != nil {
			t.Fatal(err)
		}
		if got := on(ran[0].Options, "time_based"); got != row.timed {
			t.Errorf("%s, %d bytes read and %d written: time_based is %v", row.options, row.read, row.write, got)
		}
	}
}

func TestReadLog(t *testing.T) {
	endless, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	if _, err := ReadLog(endless); err == nil || !strings.Contains(err.Error(), "line 1 is not from a latency log: it is longer than 4096 bytes") {
		t.Errorf("/dev/zero: error %v", err)
	}
	if got, err := ReadLog(strings.NewReader("1, 2, 0, 4096\r\n\n3, 4, 1, 8192, 0")); err != nil || len(got) != 2 || got[1] != (LogEntry{3, 4, true, 8192}) {
		t.Errorf("%+v, error %v", got, err)
	}
	for text, says := range map[string]string{"1, 2, 0": "line 1 is not from", "1, 2, 0, 4096\nx, 2, 0, 4096": `line 2 is not from a latency log: "x"`, "": "no reads and no writes"} {
		if _, err := ReadLog(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
