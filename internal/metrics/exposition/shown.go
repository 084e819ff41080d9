package exposition

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/metrics"
	dto "github.com/prometheus/client_model/go"
)

// familyOf is a family without series, as Prometheus has it.
func familyOf(f *metrics.Family) *dto.MetricFamily {
	types := [...]dto.MetricType{metrics.Counter: dto.MetricType_COUNTER, metrics.Gauge: dto.MetricType_GAUGE, metrics.Histo: dto.MetricType_HISTOGRAM}
	return &dto.MetricFamily{Name: &f.Name, Help: &f.Help, Type: types[f.Kind].Enum()}
}

// shown is a series as a scrape shows it. It is made once; set puts new numbers in.
type shown struct {
	metric *dto.Metric
	value  float64
	hist   *shownHistogram
}

type shownHistogram struct {
	count, zero uint64
	sum         float64
	classic     [len(metrics.LatencyBounds)]uint64 // cumulative
	wire        dto.Histogram
}

var (
	bounds = func() (b [len(metrics.LatencyBounds)]float64) {
		for i, ns := range metrics.LatencyBounds {
			b[i] = float64(ns) / 1e9
		}
		return b
	}()
	fineScale     = int32(metrics.FineSchema)
	fineThreshold = float64(metrics.FineBound(0)) / 1e9
)

// set returns the series with the values of now.
func (w *shown) set(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) *dto.Metric {
	if w.metric == nil {
		w.make(f, labels)
	}
	w.value = v
	if h != nil {
		w.hist.set(h)
	}
	return w.metric
}

func (w *shown) make(f *metrics.Family, labels []string) {
	m := &dto.Metric{}
	labels = slices.Clone(labels)
	for i := range f.Labels {
		m.Label = append(m.Label, &dto.LabelPair{Name: &f.Labels[i], Value: &labels[i]})
	}
	slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	switch f.Kind {
	case metrics.Counter:
		m.Counter = &dto.Counter{Value: &w.value}
	case metrics.Gauge:
		m.Gauge = &dto.Gauge{Value: &w.value}
	case metrics.Histo:
		h := &shownHistogram{}
		h.wire.SampleCount, h.wire.SampleSum = &h.count, &h.sum
		for i := range bounds {
			h.wire.Bucket = append(h.wire.Bucket, &dto.Bucket{CumulativeCount: &h.classic[i], UpperBound: &bounds[i]})
		}
		h.wire.Schema, h.wire.ZeroThreshold, h.wire.ZeroCount = &fineScale, &fineThreshold, &h.zero
		w.hist, m.Histogram = h, &h.wire
	}
	w.metric = m
}

func (w *shownHistogram) set(h *metrics.Histogram) {
	w.count, w.sum = h.Count, float64(h.Sum)/1e9
	n := uint64(0)
	for i := range w.classic {
		n += h.Buckets[i]
		w.classic[i] = n
	}
	// Native buckets: runs of those that are not empty, each as the difference to the one
	// before. The first, of what is shorter than all bounds, is the zero bucket.
	w.zero = h.Fine[0]
	w.wire.PositiveSpan, w.wire.PositiveDelta = w.wire.PositiveSpan[:0], w.wire.PositiveDelta[:0]
	before, end := int64(0), 0
	for i := 1; i < len(h.Fine); i++ {
		if h.Fine[i] == 0 {
			continue
		}
		if k := len(w.wire.PositiveSpan); k > 0 && i == end {
			*w.wire.PositiveSpan[k-1].Length++
		} else {
			// The offset of the first run is its index, those of others the gap before them.
			offset, length := int32(i-end), uint32(1)
			if k == 0 {
				offset = int32(i + metrics.FineFirst)
			}
			w.wire.PositiveSpan = append(w.wire.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: &length})
		}
		end = i + 1
		w.wire.PositiveDelta = append(w.wire.PositiveDelta, int64(h.Fine[i])-before)
		before = int64(h.Fine[i])
	}
}
