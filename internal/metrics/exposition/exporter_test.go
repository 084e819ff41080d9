package exposition

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/metricstest"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func scrape(t *testing.T, accept string, src ...metrics.Source) (body, contentType string) {
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
	text, _ := scrape(t, "text/plain", metricstest.Source(metricstest.Everything))
	for _, f := range metrics.All() {
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
	om, contentType := scrape(t, "application/openmetrics-text; version=1.0.0", metricstest.Source(metricstest.Everything))
	if !strings.Contains(contentType, "openmetrics-text") || !strings.HasSuffix(om, "# EOF\n") {
		t.Errorf("asked for OpenMetrics, got %s", contentType)
	}
}

// A volume that was deleted and one that has its name now are the same series.
func TestEqualLabelsAddUp(t *testing.T) {
	h := metrics.Histogram{}
	h.Observe(1)
	text, _ := scrape(t, "text/plain", metricstest.Source(func(e metrics.Emitter) {
		for range 2 {
			e.Value(metrics.CacheDestaged, 7, "p", "v", "host")
			e.Histogram(metrics.BackendDuration, &h, "p", "m", "read")
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

// promlint is what promtool check metrics runs.
func TestLint(t *testing.T) {
	text, _ := scrape(t, "text/plain", metricstest.Source(metricstest.Everything))
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var kindNames = map[metrics.Kind]string{metrics.Counter: "counter", metrics.Gauge: "gauge", metrics.Histo: "histogram"}
