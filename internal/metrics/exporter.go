package metrics

import (
	"net/http"
	"runtime"
	"strings"
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
	snap snapshot
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
	s.reset()
	x.lock.Lock()
	for _, src := range x.sources {
		src.Emit(s)
	}
	x.lock.Unlock()
	s.Value(BuildInfo, 1, x.version, runtime.Version())
	for _, m := range s.merged() {
		ch <- x.metric(m)
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

func (x *Exporter) metric(m *sample) prometheus.Metric {
	desc := x.desc[m.f]
	for i, l := range m.labels {
		// Initiator names are peer bytes, and a label that is not UTF-8 would fail the scrape.
		m.labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	var out prometheus.Metric
	var err error
	if m.hist == nil {
		out, err = prometheus.NewConstMetric(desc, kinds[m.f.Kind], m.v, m.labels...)
	} else {
		cumulative := make(map[float64]uint64, len(bounds))
		n := uint64(0)
		for i, le := range bounds {
			n += m.hist.Buckets[i]
			cumulative[le] = n
		}
		out, err = prometheus.NewConstHistogram(desc, m.hist.Count, float64(m.hist.Sum)/1e9, cumulative, m.labels...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return out
}

// snapshot keeps what sources emit, in memory that is used again.
type snapshot struct {
	samples []sample
	labels  []string
	hists   []Histogram
}

type sample struct {
	f      *Family
	v      float64
	at     int // in snapshot.labels
	histAt int // in snapshot.hists, -1 for a value

	labels []string
	hist   *Histogram
}

func (s *snapshot) reset() {
	clear(s.labels)
	s.samples, s.labels, s.hists = s.samples[:0], s.labels[:0], s.hists[:0]
}

func (s *snapshot) add(f *Family, v float64, hist int, labels []string) {
	if len(labels) != len(f.Labels) {
		panic("metrics: " + f.Name + " is emitted with the wrong number of labels")
	}
	s.samples = append(s.samples, sample{f: f, v: v, at: len(s.labels), histAt: hist})
	s.labels = append(s.labels, labels...)
}

// Value implements Emitter.
func (s *snapshot) Value(f *Family, v float64, labels ...string) { s.add(f, v, -1, labels) }

// Histogram implements Emitter.
func (s *snapshot) Histogram(f *Family, h *Histogram, labels ...string) {
	s.hists = append(s.hists, *h)
	s.add(f, 0, len(s.hists)-1, labels)
}

// merged returns the samples with those of equal labels added up: a volume that
// was deleted keeps its counters, and another may have its name now.
func (s *snapshot) merged() []*sample {
	out := make([]*sample, 0, len(s.samples))
	seen := make(map[string]*sample, len(s.samples))
	for i := range s.samples {
		m := &s.samples[i]
		m.labels = s.labels[m.at : m.at+len(m.f.Labels)]
		if m.histAt >= 0 {
			m.hist = &s.hists[m.histAt]
		}
		key := m.f.Name + "\xff" + strings.Join(m.labels, "\xff")
		first := seen[key]
		switch {
		case first == nil:
			seen[key] = m
			out = append(out, m)
		case m.hist != nil:
			first.hist.add(m.hist)
		default:
			first.v += m.v
		}
	}
	return out
}

func (h *Histogram) add(o *Histogram) {
	for i, n := range o.Buckets {
		h.Buckets[i] += n
	}
	h.Count += o.Count
	h.Sum += o.Sum
}

// Sample is one value of a family, for readers that want no Prometheus.
type Sample struct {
	Family *Family
	Value  float64
	Labels map[string]string
}

// Collect returns the counters and gauges of sources, sums over equal labels, in
// the order in which they are emitted. lock is held only while they emit.
func Collect(lock sync.Locker, sources ...Source) []Sample {
	var s snapshot
	lock.Lock()
	for _, src := range sources {
		src.Emit(&s)
	}
	lock.Unlock()
	var out []Sample
	for _, m := range s.merged() {
		if m.hist != nil {
			continue
		}
		x := Sample{Family: m.f, Value: m.v, Labels: make(map[string]string, len(m.labels))}
		for i, l := range m.labels {
			x.Labels[m.f.Labels[i]] = l
		}
		out = append(out, x)
	}
	return out
}
