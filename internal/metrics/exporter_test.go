package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// sourceFunc is a Source.
type sourceFunc func(Emitter)

func (f sourceFunc) Emit(e Emitter) { f(e) }

// everything emits two samples of every family, with labels that differ in case
// of labels, and a strange one among them.
func everything(e Emitter) {
	for _, f := range All() {
		if f == BuildInfo { // the exporter's own
			continue
		}
		labels := make([]string, len(f.Labels))
		for i := range 2 {
			for j := range labels {
				labels[j] = "l" + strconv.Itoa(i*j)
			}
			if f.Kind == Histo {
				h := Histogram{}
				h.Observe(15e3)
				h.Observe(100e9)
				e.Histogram(f, &h, labels...)
			} else {
				e.Value(f, float64(i+1), labels...)
			}
			if len(labels) < 2 {
				break
			}
		}
	}
	e.Value(HostQueueDepth, 1, "\xff\"\n\\")
}

func scrape(t *testing.T, accept string, src ...Source) (body, contentType string) {
	t.Helper()
	h, err := NewExporter(&sync.Mutex{}, "v1", src...).Handler()
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), w.Header().Get("Content-Type")
}

func TestScrape(t *testing.T) {
	text, _ := scrape(t, "text/plain", sourceFunc(everything))
	for _, f := range All() {
		if !strings.Contains(text, "# TYPE "+f.Name+" "+kindNames[f.Kind]+"\n") {
			t.Errorf("%s is missing or is no %s", f.Name, kindNames[f.Kind])
		}
	}
	for _, row := range []struct{ name, line string }{
		{"a label of two that differ", `arraysim_cache_dirty_bytes{origin="l2",pool="l0",volume="l1"} 2`},
		{"cumulative buckets", `arraysim_backend_operation_duration_seconds_bucket{direction="l0",mdisk="l0",pool="l0",le="1e-05"} 0`},
		{"a bucket above", `arraysim_backend_operation_duration_seconds_bucket{direction="l0",mdisk="l0",pool="l0",le="30"} 1`},
		{"the last bucket", `arraysim_backend_operation_duration_seconds_bucket{direction="l0",mdisk="l0",pool="l0",le="+Inf"} 2`},
		{"a sum in seconds", `arraysim_backend_operation_duration_seconds_sum{direction="l0",mdisk="l0",pool="l0"} 100.000015`},
		{"a label that is not UTF-8", `arraysim_host_queue_depth{volume="` + "\uFFFD" + `\"\n\\"} 1`},
	} {
		if !strings.Contains(text, row.line+"\n") {
			t.Errorf("%s: no line %s", row.name, row.line)
		}
	}
	om, contentType := scrape(t, "application/openmetrics-text; version=1.0.0", sourceFunc(everything))
	if !strings.Contains(contentType, "openmetrics-text") || !strings.HasSuffix(om, "# EOF\n") {
		t.Errorf("asked for OpenMetrics, got %s", contentType)
	}
}

// A volume that was deleted and one that has its name now are the same series.
func TestEqualLabelsAddUp(t *testing.T) {
	h := Histogram{}
	h.Observe(1)
	text, _ := scrape(t, "text/plain", sourceFunc(func(e Emitter) {
		for range 2 {
			e.Value(CacheDestaged, 7, "p", "v", "host")
			e.Histogram(BackendDuration, &h, "p", "m", "read")
		}
	}))
	for _, line := range []string{
		`arraysim_cache_destaged_bytes_total{origin="host",pool="p",volume="v"} 14`,
		`arraysim_backend_operation_duration_seconds_count{direction="read",mdisk="m",pool="p"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

// lockProbe tells whether it is held.
type lockProbe struct{ held, taken int }

func (l *lockProbe) Lock()   { l.held++; l.taken++ }
func (l *lockProbe) Unlock() { l.held-- }

func TestSourcesEmitUnderTheLock(t *testing.T) {
	var l lockProbe
	var held []int
	src := sourceFunc(func(e Emitter) { held = append(held, l.held); e.Value(CacheSize, 1) })
	got := Collect(&l, src, src)
	if l.taken != 1 || l.held != 0 || !slices.Equal(held, []int{1, 1}) {
		t.Errorf("taken %d times, held %v while the sources emitted", l.taken, held)
	}
	if len(got) != 1 || got[0].Family != CacheSize || got[0].Value != 2 {
		t.Errorf("got %+v", got)
	}
}

// promlint is what promtool check metrics runs.
func TestLint(t *testing.T) {
	text, _ := scrape(t, "text/plain", sourceFunc(everything))
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var kindNames = map[Kind]string{Counter: "counter", Gauge: "gauge", Histo: "histogram"}

var (
	rowRE  = regexp.MustCompile("(?m)^\\| `(arraysim_[a-z_]+)` \\| (\\w+) \\| ([a-z_, ]*?) *\\| (.+) \\|$")
	nameRE = regexp.MustCompile(`arraysim_[a-z_]+`)
)

func TestDocumentedCounters(t *testing.T) {
	b, err := os.ReadFile("../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	rows := rowRE.FindAllStringSubmatch(doc, -1)
	known := map[string]bool{}
	for i, f := range All() {
		known[f.Name] = true
		if i >= len(rows) {
			t.Errorf("docs/counters.md has no row for %s", f.Name)
			continue
		}
		got := rows[i]
		if want := strings.Join(f.Labels, ", "); got[1] != f.Name || got[2] != kindNames[f.Kind] || got[3] != want {
			t.Errorf("row %d of docs/counters.md is %q, want %s, %s, labels %q", i+1, got[1:4], f.Name, kindNames[f.Kind], want)
		}
	}
	if len(rows) > len(All()) {
		t.Errorf("docs/counters.md has %d rows, there are %d families", len(rows), len(All()))
	}
	for _, name := range nameRE.FindAllString(doc, -1) {
		if base := strings.TrimSuffix(name, "_bucket"); !known[base] {
			t.Errorf("docs/counters.md speaks of %s, which does not exist", name)
		}
	}
}
