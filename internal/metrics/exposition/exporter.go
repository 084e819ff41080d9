// Package exposition shows counters to those who scrape them: as Prometheus' text, as
// OpenMetrics or as protobuf, over HTTP, and as text alone for a run in virtual time.
package exposition

import (
	"bytes"
	"cmp"
	"net/http"
	"runtime"
	"slices"
	"sync"

	"github.com/arraysim/arraysim/internal/metrics"
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
	sources []metrics.Source
	version string
	others  prometheus.Gatherer // of the Go runtime and the process; nil for none

	mu       sync.Mutex // held from Gather until what it returned was written
	snap     metrics.Snapshot
	epoch    uint64
	series   []*series   // by the numbers of the snapshot's epoch
	build    shown       // of BuildInfo
	fold     *volumeFold // nil: every volume is shown
	families []*dto.MetricFamily
	out      []*dto.MetricFamily
}

// NewExporter makes an exporter of sources, which are asked with lock held (an
// executor's). version is the value of the version label of [metrics.BuildInfo].
func NewExporter(lock sync.Locker, version string, sources ...metrics.Source) *Exporter {
	x := &Exporter{lock: lock, sources: sources, version: version}
	for _, f := range metrics.All() {
		x.families = append(x.families, familyOf(f))
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

// series is what the exporter keeps of a series from one scrape to the next.
type series struct {
	shown shown
	was   *own
	other *folded
	score *volumeScore
}

// keep makes a place for every series of the snapshot.
func (x *Exporter) keep() {
	epoch, n := x.snap.Series()
	if epoch != x.epoch {
		x.epoch, x.series = epoch, nil // their numbers are of others now
	}
	for len(x.series) < n {
		x.series = append(x.series, &series{})
	}
}

// show puts a series among what a scrape returns.
func (x *Exporter) show(w *shown, f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
	to := x.families[f.Index()]
	to.Metric = append(to.Metric, w.set(f, labels, v, h))
}

// Gather takes a snapshot. What it returns is valid until done is called, which must be.
func (x *Exporter) Gather() (out []*dto.MetricFamily, done func(), err error) {
	x.mu.Lock()
	x.snap.Take(0, x.lock, x.sources...)
	x.keep()
	for _, f := range x.families {
		f.Metric = f.Metric[:0]
	}
	if x.fold != nil {
		x.fold.fold(x)
	} else {
		x.snap.EachSeries(func(n int, f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
			x.show(&x.series[n].shown, f, labels, v, h)
		})
	}
	x.show(&x.build, metrics.BuildInfo, []string{x.version, runtime.Version()}, 1, nil)
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
