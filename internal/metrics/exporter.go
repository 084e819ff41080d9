package metrics

import (
	"bytes"
	"cmp"
	"net/http"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Exporter is a prometheus.TransactionalGatherer over sources. A
// scrape holds their executors only while they emit into a snapshot; everything else
// happens after it is released. What a series looks like on the wire is kept from one
// scrape to the next, so that a scrape of many volumes only puts new numbers in.
type Exporter struct {
	lock    sync.Locker
	sources []Source
	version string
	others  prometheus.Gatherer // of the Go runtime and the process; nil for none

	mu       sync.Mutex // held from Gather until what it returned was written
	snap     Snapshot
	fold     *volumeFold // nil: every volume is shown
	families []*dto.MetricFamily
	out      []*dto.MetricFamily
}

// NewExporter makes an exporter of sources, which are asked with lock held (an
// executor's). version is the value of the version label of [BuildInfo].
func NewExporter(lock sync.Locker, version string, sources ...Source) *Exporter {
	x := &Exporter{lock: lock, sources: sources, version: version}
	types := map[Kind]dto.MetricType{Counter: dto.MetricType_COUNTER, Gauge: dto.MetricType_GAUGE, Histo: dto.MetricType_HISTOGRAM}
	for _, f := range All() {
		x.families = append(x.families, &dto.MetricFamily{Name: &f.Name, Help: &f.Help, Type: types[f.Kind].Enum()})
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

// Handler serves the exporter and the metrics of the Go runtime and the process, as
// text, as OpenMetrics or as protobuf, which has native histograms, as the client asks.
func (x *Exporter) Handler() (http.Handler, error) {
	r := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	x.others = r
	inner := promhttp.HandlerForTransactional(x, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4})
	buffers := sync.Pool{New: func() any { return new(bytes.Buffer) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that reads slowly must not keep the others waiting.
		b := buffers.Get().(*bytes.Buffer)
		b.Reset()
		kept := &keptResponse{header: w.Header(), body: b, code: http.StatusOK}
		inner.ServeHTTP(kept, r)
		w.WriteHeader(kept.code)
		_, _ = b.WriteTo(w) // an error means that the client has gone
		buffers.Put(b)
	}), nil
}

// keptResponse is a response that is sent later.
type keptResponse struct {
	header http.Header
	body   *bytes.Buffer
	code   int
}

func (k *keptResponse) Header() http.Header         { return k.header }
func (k *keptResponse) WriteHeader(code int)        { k.code = code }
func (k *keptResponse) Write(b []byte) (int, error) { return k.body.Write(b) }

// Gather takes a snapshot. What it returns is valid until done is called, which must be.
func (x *Exporter) Gather() (out []*dto.MetricFamily, done func(), err error) {
	x.mu.Lock()
	s := &x.snap
	s.Take(0, x.lock, x.sources...)
	if x.fold != nil {
		x.fold.fold(s)
	}
	s.Value(BuildInfo, 1, x.version, runtime.Version())
	for _, f := range x.families {
		f.Metric = f.Metric[:0]
	}
	for i := range s.samples {
		m := &s.samples[i]
		f := x.families[m.f.index]
		f.Metric = append(f.Metric, m.p.shown.set(m.f, m.p.labels, m.v, s.histOf(m)))
	}
	x.out = x.out[:0]
	if x.others != nil {
		if x.out, err = x.others.Gather(); err != nil {
			x.mu.Unlock()
			return nil, func() {}, err
		}
	}
	for _, f := range x.families {
		if len(f.Metric) > 0 {
			x.out = append(x.out, f)
		}
	}
	slices.SortFunc(x.out, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return x.out, x.mu.Unlock, nil
}
