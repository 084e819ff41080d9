// Package metricstest has sources of samples for the tests of those who read them.
package metricstest

import (
	"strconv"

	"github.com/arraysim/arraysim/internal/metrics"
)

// Source is a function that is a source of samples.
type Source func(metrics.Emitter)

// Emit implements metrics.Source.
func (f Source) Emit(e metrics.Emitter) { f(e) }

// Everything emits two samples of every family, with labels that differ in case
// of labels, and a strange one among them.
func Everything(e metrics.Emitter) {
	for _, f := range metrics.All() {
		if f == metrics.BuildInfo { // the exporter's own
			continue
		}
		labels := make([]string, len(f.Labels))
		for i := range 2 {
			for j := range labels {
				labels[j] = "l" + strconv.Itoa(i*j)
			}
			if f.Kind == metrics.Histo {
				h := metrics.Histogram{}
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
	e.Value(metrics.HostQueueDepth, 1, "\xff\"\n\\")
}
