package metrics

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// Snapshot is what sources said at one instant, samples of equal labels added up:
// a volume that was deleted keeps its counters, and another may have its name now.
// Its memory is used again by the next Take. The zero value is empty and ready. It is not
// safe for concurrent use.
type Snapshot struct {
	Time int64 // nanoseconds since 1970, or since a scenario's beginning

	samples []sample
	labels  []string
	hists   []Histogram
	seen    map[string]*place // of a sample, by its key; those of earlier rounds stay, to be used again
	epoch   uint64            // how often seen was emptied
	round   uint64
	size    int // samples of the last Take
	key     []byte
	memo    []memo // what the last Take's samples were, by the order in which they were emitted
}

// place is a series: what has the same family and labels.
type place struct {
	number int // as EachSeries has it
	round  uint64
	at     int      // in Snapshot.samples
	labels []string // as readers get them
}

// memo says that a sample is of a series, so that a Take whose sources emit the same
// series in the same order as before looks nothing up.
type memo struct {
	f      *Family
	labels []string // as they were emitted
	p      *place
}

type sample struct {
	f      *Family
	v      float64
	at     int // in Snapshot.labels
	histAt int // in Snapshot.hists, -1 for a value
	p      *place
}

// Take empties the snapshot and lets sources emit into it, with lock held. Nothing
// but the copying of integers happens under the lock once the memory has grown.
func (s *Snapshot) Take(now int64, lock sync.Locker, sources ...Source) {
	s.Reset(now)
	lock.Lock()
	for _, src := range sources {
		src.Emit(Emitter{s})
	}
	lock.Unlock()
	s.merge()
}

// Reset empties the snapshot.
func (s *Snapshot) Reset(now int64) {
	clear(s.labels)
	if len(s.seen) > 4*s.size+1024 {
		clear(s.seen) // most of them are of volumes that are gone
		s.memo = s.memo[:0]
		s.epoch++
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

// EachSeries is Each for readers that keep something for each series, that is for each family
// with its label values: a series has the same number in every Take of an epoch.
func (s *Snapshot) EachSeries(fn func(number int, f *Family, labels []string, v float64, h *Histogram)) {
	for i := range s.samples {
		m := &s.samples[i]
		fn(m.p.number, m.f, s.labelsOf(m), m.v, s.histOf(m))
	}
}

// Series returns the present epoch and how many numbers it has given to series, from 0 on. An
// epoch ends when most of its series are gone.
func (s *Snapshot) Series() (epoch uint64, count int) { return s.epoch, len(s.seen) }

func (s *Snapshot) labelsOf(m *sample) []string { return s.labels[m.at : m.at+len(m.f.Labels)] }

func (s *Snapshot) histOf(m *sample) *Histogram {
	if m.histAt < 0 {
		return nil
	}
	return &s.hists[m.histAt]
}

// Value takes one sample, for readers of stored counters, as Emitter does for sources.
func (s *Snapshot) Value(f *Family, v float64, labels ...string) {
	Emitter{s}.Value(f, v, labels...)
	s.mergeLast()
}

// Histogram takes one histogram, which is copied.
func (s *Snapshot) Histogram(f *Family, h *Histogram, labels ...string) {
	Emitter{s}.Histogram(f, h, labels...)
	s.mergeLast()
}

func (s *Snapshot) mergeLast() {
	i := len(s.samples) - 1
	s.samples[i].p = s.placeOf(&s.samples[i])
	s.mergeFrom(i)
}

// add appends without looking for equal labels, which is what happens while the executor is
// held.
func (s *Snapshot) add(f *Family, v float64, hist int, labels []string) {
	if len(labels) != len(f.Labels) {
		panic("metrics: " + f.Name + " is emitted with the wrong number of labels")
	}
	s.samples = append(s.samples, sample{f: f, v: v, at: len(s.labels), histAt: hist})
	s.labels = append(s.labels, labels...)
}

func (s *Snapshot) merge() {
	all := s.samples
	s.samples = s.samples[:0]
	for i := range all {
		// The samples kept are never more than those read: all is written behind its reader.
		m := all[i]
		labels := s.labelsOf(&m)
		if i < len(s.memo) && s.memo[i].f == m.f && slices.Equal(s.memo[i].labels, labels) {
			m.p = s.memo[i].p
		} else {
			known := memo{f: m.f, labels: slices.Clone(labels)}
			m.p = s.placeOf(&m)
			known.p = m.p
			if i < len(s.memo) {
				s.memo[i] = known
			} else {
				s.memo = append(s.memo, known)
			}
		}
		copy(labels, m.p.labels)
		s.samples = append(s.samples, m)
		s.mergeFrom(len(s.samples) - 1)
	}
	s.size = len(s.samples)
}

// placeOf finds the series of a sample, and makes its labels valid UTF-8: initiator names
// are peer bytes, and a label that is not would fail its readers.
func (s *Snapshot) placeOf(m *sample) *place {
	if s.seen == nil {
		s.round++
		s.seen = make(map[string]*place)
	}
	k := binary.NativeEndian.AppendUint16(s.key[:0], uint16(m.f.index))
	labels := s.labelsOf(m)
	for j, l := range labels {
		l = strings.ToValidUTF8(l, "\uFFFD")
		labels[j] = l
		k = append(k, l...)
		k = append(k, 0xff)
	}
	s.key = k
	p := s.seen[string(k)]
	if p == nil {
		p = &place{number: len(s.seen), labels: slices.Clone(labels)}
		s.seen[string(k)] = p
	}
	return p
}

// mergeFrom adds the last sample, which is at i, to an earlier one of equal labels.
func (s *Snapshot) mergeFrom(i int) {
	m := &s.samples[i]
	p := m.p
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
	for i, n := range o.Fine {
		h.Fine[i] += n
	}
	h.Count += o.Count
	h.Sum += o.Sum
}

// AddGrowth adds what now has more than was, an earlier reading of the same histogram. One that
// shrank began anew, and all that it has is growth.
func (h *Histogram) AddGrowth(now, was *Histogram) {
	if now.Count < was.Count {
		was = &Histogram{}
	}
	for i := range h.Buckets {
		h.Buckets[i] += now.Buckets[i] - was.Buckets[i]
	}
	for i := range h.Fine {
		h.Fine[i] += now.Fine[i] - was.Fine[i]
	}
	h.Count += now.Count - was.Count
	h.Sum += now.Sum - was.Sum
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

// Locked returns a source that emits what others do, with lock held: for counters of several executors.
func Locked(lock sync.Locker, sources ...Source) Source { return lockedSource{lock, sources} }

type lockedSource struct {
	lock    sync.Locker
	sources []Source
}

// Emit implements Source.
func (l lockedSource) Emit(e Emitter) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, src := range l.sources {
		src.Emit(e)
	}
}

// Unlocked is the lock for sources that need none, or have their own by [Locked].
var Unlocked sync.Locker = unlocked{}

type unlocked struct{}

func (unlocked) Lock()   {}
func (unlocked) Unlock() {}
