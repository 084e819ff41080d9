package sim

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Whatever an array, a host or its disk is called, the files of a run can be read by what reads CSV and
// Prometheus' text format.
func TestOutputOfAnyName(t *testing.T) {
	const volume, pool, array, host = "v", "p", `a\b, "1"`, `esx "1", old`
	s, err := Parse([]byte(`{name: names, until: 3s, arrays: [{name: 'a\b, "1"', cache: 64MiB, pools: [{name: p, mdisks: [{size: 4GiB}]}],
		volumes: [{name: v, pool: p, size: 64MiB}]}], hosts: [{name: 'esx "1", old', cache: [{name: 'x,y', volume: v, size: 16MiB}]}],
		jobs: [{name: j, volume: v, io: 4KiB, write: 1, rate: 100}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	r.Advance(3e9)
	r.Finish()
	out := r.Output()
	for name, columns := range map[string]map[string]string{
		"volumes.csv":   {"array": array, "pool": pool, "volume": volume},
		"pools.csv":     {"array": array, "pool": pool},
		"hostcache.csv": {"host": host, "disk": "x,y", "volume": volume},
	} {
		rows, err := csv.NewReader(bytes.NewReader(out[name])).ReadAll()
		if err != nil || len(rows) < 2 {
			t.Errorf("%s: %d rows, %v:\n%s", name, len(rows), err, out[name])
			continue
		}
		for column, want := range columns {
			if at := slices.Index(rows[0], column); at < 0 || rows[1][at] != want {
				t.Errorf("%s: %s is %q, want %q", name, column, rows[1], want)
			}
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(out["counters.txt"]))
	if err != nil {
		t.Fatalf("counters.txt: %v:\n%.2000s", err, out["counters.txt"])
	}
	seen := map[string]string{}
	for _, m := range families["arraysim_host_transferred_bytes_total"].GetMetric() {
		for _, l := range m.Label {
			seen[l.GetName()] = l.GetValue()
		}
	}
	if seen["array"] != array || seen["pool"] != pool || seen["volume"] != volume {
		t.Errorf("counters.txt has the labels %q", seen)
	}
	if !strings.Contains(string(out["counters.txt"]), "# TYPE arraysim_host_command_duration_seconds histogram") {
		t.Errorf("counters.txt does not say what is a histogram:\n%.2000s", out["counters.txt"])
	}
}
