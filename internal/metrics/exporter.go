package metrics

import (
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Exporter is a prometheus.Collector over the sources of one executor. A scrape
// holds the executor only while the sources emit into a snapshot; everything else
// happens after it is released.
type Exporter struct {
	lock    sync.Locker
	sources []Source
	version string

	mu   sync.Mutex // guards snap: one scrape at a time
	snap Snapshot
	fold *volumeFold // nil: every volume is shown
	desc map[*Family]*prometheus.Desc
}

// NewExporter makes an exporter of sources, which are asked with lock held (an
// executor's). version is the value of the version label of [BuildInfo].
func NewExporter(lock sync.Locker, version string, sources ...Source) *Exporter {
	x := &Exporter{lock: lock, sources: sources, version: version, desc: make(map[*Family]*prometheus.Desc)}
	for _, f := range All() {
		x.desc[f] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	}
	return x
}

// LimitVolumes makes scrapes show n volumes one by one, those that do most, and the
// others together as volume "other"; 0 shows all. Call it before the first scrape.
func (x *Exporter) LimitVolumes(n int) {
	if x.fold = nil; n > 0 {
		x.fold = newVolumeFold(n)
	}
}

// Handler serves the exporter and the metrics of the Go runtime and the process,
// as text or OpenMetrics as the client asks. It uses a registry of its own.
func (x *Exporter) Handler() (http.Handler, error) {
	r := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{x, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4}), nil
}

// Describe sends the descriptions of all families.
func (x *Exporter) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range All() {
		ch <- x.desc[f]
	}
}

// Collect takes a snapshot and sends it.
func (x *Exporter) Collect(ch chan<- prometheus.Metric) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.snap
	s.Take(0, x.lock, x.sources...)
	if x.fold != nil {
		x.fold.fold(s)
	}
	s.Value(BuildInfo, 1, x.version, runtime.Version())
	for i := range s.samples {
		ch <- x.metric(s, &s.samples[i])
	}
}

var (
	kinds  = map[Kind]prometheus.ValueType{Counter: prometheus.CounterValue, Gauge: prometheus.GaugeValue}
	bounds = func() (b [len(LatencyBounds)]float64) {
		for i, ns := range LatencyBounds {
			b[i] = float64(ns) / 1e9
		}
		return b
	}()
)

func (x *Exporter) metric(s *Snapshot, m *sample) prometheus.Metric {
	desc, labels := x.desc[m.f], s.labelsOf(m)
	var out prometheus.Metric
	var err error
	if h := s.histOf(m); h == nil {
		out, err = prometheus.NewConstMetric(desc, kinds[m.f.Kind], m.v, labels...)
	} else {
		cumulative := make(map[float64]uint64, len(bounds))
		n := uint64(0)
		for i, le := range bounds {
			n += h.Buckets[i]
			cumulative[le] = n
		}
		out, err = prometheus.NewConstHistogram(desc, h.Count, float64(h.Sum)/1e9, cumulative, labels...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return out
}
