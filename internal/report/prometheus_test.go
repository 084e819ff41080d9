package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
)

// promSeries is a series of an answer: labels as "name=value ...", values of every 15 s, NaN where there is none.
type promSeries struct {
	name, labels string
	values       []float64
}

// saveAnswer writes an answer that begins at a sample.
func saveAnswer(t *testing.T, dir, file string, from int, all ...promSeries) {
	t.Helper()
	result := []any{}
	for _, s := range all {
		labels, values := map[string]string{"__name__": s.name}, [][2]any{}
		for l := range strings.FieldsSeq(s.labels) {
			name, value, _ := strings.Cut(l, "=")
			labels[name] = value
		}
		for i, x := range s.values {
			if !math.IsNaN(x) {
				values = append(values, [2]any{1e9 + 15*(from+i), fmt.Sprint(x)})
			}
		}
		result = append(result, map[string]any{"metric": labels, "values": values})
	}
	b, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// promVolume is what a volume needs to be judged.
func promVolume(labels string, host, lower, held []float64) []promSeries {
	return []promSeries{
		{metrics.HostTransferred.Name, labels + " direction=write", host}, {metrics.CacheDestaged.Name, labels + " origin=host", lower},
		{metrics.CacheDirty.Name, labels + " origin=host", held},
	}
}

// steps are n values from one on, each so much more.
func steps(n int, from, by float64) (out []float64) {
	for i := range n {
		out = append(out, from+float64(i)*by)
	}
	return out
}

// A volume that was deleted and made again has not done what is left to the end of 32 bits.
func TestOurCountersDoNotWrap(t *testing.T) {
	dir := t.TempDir()
	saveAnswer(t, dir, "range.json", 0, promVolume("pool=p volume=v", []float64{4.2e9, 4.2e9, 0.1e9, 0.1e9}, []float64{3.3e9, 3.3e9, 0.1e9, 0.1e9}, steps(4, 0, 0))...)
	d := load1(t, dir, Options{})
	if found := culprits(detect(d)); len(found) > 0 || !slices.Contains(d.Notes, restarted) {
		t.Errorf("%v are accused; notes %v", found, d.Notes)
	}
}
