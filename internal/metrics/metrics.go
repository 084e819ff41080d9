// Package metrics names every counter of arraysim, once, and collects what the layers
// emit. Package exposition shows it to those who scrape, and package export writes it to
// files, so that the core knows neither.
//
// A layer keeps its counters as plain integers under its executor and emits
// them, on demand, as samples of the families declared here. Each layer (host,
// offload, cache, backend) has families of its own, so that sums over labels stay
// meaningful.
package metrics

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Kind is the type of a family.
type Kind uint8

// Kinds.
const (
	Counter Kind = iota
	Gauge
	Histo
)

// Family is one metric: its full name, help text and label names.
type Family struct {
	Name   string
	Help   string
	Kind   Kind
	Labels []string

	index int // in All
}

// Index is the family's place in [All].
func (f *Family) Index() int { return f.index }

// Layer is where the family is taken: "host", "offload", "cache", "backend",
// "iscsi" or, for what is no flow of data, "array".
func (f *Family) Layer() string {
	name := strings.TrimPrefix(f.Name, prefix)
	if name == "undercover_write_bytes_total" {
		return "cache"
	}
	layer, _, _ := strings.Cut(name, "_")
	switch layer {
	case "host", "offload", "cache", "backend", "iscsi":
		return layer
	}
	return "array"
}

// Emitter receives samples for a [Snapshot]. It is no interface, so that the label values of
// a call stay on the stack: a scrape emits some ten samples a volume while the executor is
// held.
type Emitter struct{ to *Snapshot }

// Value takes one sample. Label values are in the order of Family.Labels.
func (e Emitter) Value(f *Family, v float64, labels ...string) { e.to.add(f, v, -1, labels) }

// Histogram takes one histogram, which is copied before the call returns.
func (e Emitter) Histogram(f *Family, h *Histogram, labels ...string) {
	e.to.hists = append(e.to.hists, *h)
	e.to.add(f, 0, len(e.to.hists)-1, labels)
}

// Source is a layer that has counters. Emit is called with the executor held and
// must not block.
type Source interface {
	Emit(Emitter)
}

// LatencyBounds are the upper bounds, in nanoseconds, of the buckets of a
// latency histogram: 10 us to 30 s, three a decade.
var LatencyBounds = [...]int64{
	10e3, 20e3, 50e3, 100e3, 200e3, 500e3, 1e6, 2e6, 5e6, 10e6, 20e6, 50e6,
	100e6, 200e6, 500e6, 1e9, 2e9, 5e9, 10e9, 30e9,
}

// Histogram counts durations. The zero value is ready. It is not safe for
// concurrent use.
type Histogram struct {
	Buckets [len(LatencyBounds) + 1]uint64 // not cumulative; the last is above all bounds
	Count   uint64
	Sum     int64 // nanoseconds
	// Fine are the buckets of Prometheus' native histograms, of a factor of the square
	// root of two each: Fine[i] is of durations up to 2^((i+FineFirst)/2) s, the first
	// of all that are shorter and the last of all that are longer, too.
	Fine [fineBuckets]uint64
}

// Native histograms of schema 1: from 7.6 us to 128 s.
const (
	FineSchema  = 1
	FineFirst   = -34
	fineBuckets = 49
)

var fineBounds = func() (b [fineBuckets]int64) {
	for i := range b {
		b[i] = int64(math.Round(1e9 * math.Pow(2, float64(i+FineFirst)/2)))
	}
	return b
}()

// FineBound is the longest duration, in nanoseconds, of the fine bucket i. The last bucket has
// what is longer, too.
func FineBound(i int) int64 { return fineBounds[i] }

// Observe counts one duration in nanoseconds.
func (h *Histogram) Observe(ns int64) {
	n := bits.Len64(uint64(max(ns, 0)))
	i := int(firstBound[n])
	for i < len(LatencyBounds) && LatencyBounds[i] < ns {
		i++
	}
	h.Buckets[i]++
	h.Count++
	h.Sum += ns
	for i = int(firstFine[n]); i < fineBuckets-1 && fineBounds[i] < ns; i++ {
	}
	h.Fine[i]++
}

// firstBound and firstFine say, by the number of bits of a duration, which bound is the first that it
// may not be above: there are one or two more before the next number of bits.
var firstBound, firstFine = firstByBits(LatencyBounds[:]), firstByBits(fineBounds[:fineBuckets-1])

func firstByBits(bounds []int64) (first [64]uint8) {
	for n := range first {
		i, _ := slices.BinarySearch(bounds, int64(uint64(1)<<n>>1))
		first[n] = uint8(i)
	}
	return first
}

// Refine makes the fine buckets of a histogram that was kept without them, as well as its
// buckets allow it: each is counted at its upper bound.
func (h *Histogram) Refine() {
	sum := uint64(0)
	for _, n := range h.Fine {
		sum += n
	}
	if sum == h.Count {
		return
	}
	h.Fine = [fineBuckets]uint64{}
	for i, n := range h.Buckets {
		at := int64(math.MaxInt64)
		if i < len(LatencyBounds) {
			at = LatencyBounds[i]
		}
		j, _ := slices.BinarySearch(fineBounds[:fineBuckets-1], at)
		h.Fine[j] += n
	}
}
