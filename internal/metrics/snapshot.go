package metrics

import (
	"encoding/binary"
	"strings"
	"sync"
)

// Snapshot is what sources said at one instant, samples of equal labels added up:
// a volume that was deleted keeps its counters, and another may have its name now.
// Its memory is used again by the next Take. The zero value is empty and ready. It
// is an [Emitter], for readers of stored counters; it is not safe for concurrent use.
type Snapshot struct {
	Time int64 // nanoseconds since 1970, or since a scenario's beginning

	samples []sample
	labels  []string
	hists   []Histogram
	seen    map[string]*place // of a sample, by its key; those of earlier rounds stay, to be used again
	round   uint64
	size    int // samples of the last Take
	key     []byte
}

type place struct {
	round uint64
	at    int // in Snapshot.samples
}

type sample struct {
	f      *Family
	v      float64
	at     int // in Snapshot.labels
	histAt int // in Snapshot.hists, -1 for a value
}

// Take empties the snapshot and lets sources emit into it, with lock held. Nothing
// but the copying of integers happens under the lock once the memory has grown.
func (s *Snapshot) Take(now int64, lock sync.Locker, sources ...Source) {
	s.Reset(now)
	lock.Lock()
	for _, src := range sources {
		src.Emit((*rawSnapshot)(s))
	}
	lock.Unlock()
	s.merge()
}

// Reset empties the snapshot.
func (s *Snapshot) Reset(now int64) {
	clear(s.labels)
	if len(s.seen) > 4*s.size+1024 {
		clear(s.seen) // most of them are of volumes that are gone
	}
	s.round++
	s.Time = now
	s.samples, s.labels, s.hists = s.samples[:0], s.labels[:0], s.hists[:0]
}

// Len returns the number of samples.
func (s *Snapshot) Len() int { return len(s.samples) }

// Each calls fn for every sample, in the order in which they were emitted first.
// labels are in the order of f.Labels; h is nil but for histograms. Neither may be
// kept or changed.
func (s *Snapshot) Each(fn func(f *Family, labels []string, v float64, h *Histogram)) {
	for i := range s.samples {
		m := &s.samples[i]
		fn(m.f, s.labelsOf(m), m.v, s.histOf(m))
	}
}

func (s *Snapshot) labelsOf(m *sample) []string { return s.labels[m.at : m.at+len(m.f.Labels)] }

func (s *Snapshot) histOf(m *sample) *Histogram {
	if m.histAt < 0 {
		return nil
	}
	return &s.hists[m.histAt]
}

// Value implements [Emitter].
func (s *Snapshot) Value(f *Family, v float64, labels ...string) {
	(*rawSnapshot)(s).Value(f, v, labels...)
	s.mergeFrom(len(s.samples) - 1)
}

// Histogram implements [Emitter].
func (s *Snapshot) Histogram(f *Family, h *Histogram, labels ...string) {
	(*rawSnapshot)(s).Histogram(f, h, labels...)
	s.mergeFrom(len(s.samples) - 1)
}

// rawSnapshot appends without looking for equal labels, which is what happens while
// the executor is held.
type rawSnapshot Snapshot

func (s *rawSnapshot) add(f *Family, v float64, hist int, labels []string) {
	if len(labels) != len(f.Labels) {
		panic("metrics: " + f.Name + " is emitted with the wrong number of labels")
	}
	s.samples = append(s.samples, sample{f: f, v: v, at: len(s.labels), histAt: hist})
	s.labels = append(s.labels, labels...)
}

func (s *rawSnapshot) Value(f *Family, v float64, labels ...string) { s.add(f, v, -1, labels) }

func (s *rawSnapshot) Histogram(f *Family, h *Histogram, labels ...string) {
	s.hists = append(s.hists, *h)
	s.add(f, 0, len(s.hists)-1, labels)
}

func (s *Snapshot) merge() {
	all := s.samples
	s.samples = s.samples[:0]
	for i := range all {
		// The samples kept are never more than those read: all is written behind its reader.
		s.samples = append(s.samples, all[i])
		s.mergeFrom(len(s.samples) - 1)
	}
	s.size = len(s.samples)
}

// mergeFrom adds the last sample, which is at i, to an earlier one of equal labels.
func (s *Snapshot) mergeFrom(i int) {
	if s.seen == nil {
		s.round++
		s.seen = make(map[string]*place)
	}
	m := &s.samples[i]
	k := binary.NativeEndian.AppendUint16(s.key[:0], uint16(m.f.index))
	for j, l := range s.labelsOf(m) {
		// Initiator names are peer bytes, and a label that is not UTF-8 would fail its readers.
		l = strings.ToValidUTF8(l, "\uFFFD")
		s.labels[m.at+j] = l
		k = append(k, l...)
		k = append(k, 0xff)
	}
	s.key = k
	p := s.seen[string(k)]
	if p == nil {
		p = &place{}
		s.seen[string(k)] = p
	}
	if p.round != s.round {
		p.round, p.at = s.round, i
		return
	}
	first := &s.samples[p.at]
	if h := s.histOf(m); h != nil {
		s.histOf(first).Add(h)
	} else {
		first.v += m.v
	}
	s.samples = s.samples[:i]
}

// Add adds the observations of o.
func (h *Histogram) Add(o *Histogram) {
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
	var s Snapshot
	s.Take(0, lock, sources...)
	var out []Sample
	s.Each(func(f *Family, labels []string, v float64, h *Histogram) {
		if h != nil {
			return
		}
		x := Sample{Family: f, Value: v, Labels: make(map[string]string, len(labels))}
		for i, l := range labels {
			x.Labels[f.Labels[i]] = l
		}
		out = append(out, x)
	})
	return out
}
