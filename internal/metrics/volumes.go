package metrics

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// OtherVolumes is the volume label of all volumes that are not shown one by one.
const OtherVolumes = "other"

// ParseVolumes reads how many volumes a scrape shows one by one: "all" (0) or "top:N".
func ParseVolumes(text string) (n int, err error) {
	if text == "all" {
		return 0, nil
	}
	if t, ok := strings.CutPrefix(text, "top:"); ok {
		if n, err = strconv.Atoi(t); err == nil && n > 0 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%q is not a number of volumes; write all, or top:N such as top:50", text)
}

// volumeFold bounds the volumes of scrapes: the n that did most since the last scrape, or
// hold most of the cache, keep their series, and the others add up to one more.
//
// A counter of the others grows by what each of them grew while it was among them. So
// rates are right, although volumes come and go: nothing that a volume did is counted in
// two series, and no series goes back.
type volumeFold struct {
	n      int
	scores map[string]*volumeScore
	last   map[string]*folded // series by volume
	other  map[string]*folded // series of the others
	others []*folded          // the same, in the order in which they came
	ranked []*volumeScore     // of the last scrape, what is shown first
	key    []byte
}

type volumeScore struct {
	name                 string
	moved, before, score float64
	member, seen, gone   bool
}

type folded struct {
	f      *Family
	labels []string
	v      float64
	h      *Histogram
	p      place // of the series that is shown
}

func newVolumeFold(n int) *volumeFold {
	return &volumeFold{n: n, scores: map[string]*volumeScore{}, last: map[string]*folded{}, other: map[string]*folded{}}
}

// volumeAt is the place of the volume among a family's labels, -1 if it has none.
var volumeAt = func() []int {
	at := make([]int, len(All()))
	for i, f := range All() {
		at[i] = slices.Index(f.Labels, "volume")
	}
	return at
}()

// scoreOf is the score of a sample's volume, found by the series itself where that is known.
func (x *volumeFold) scoreOf(m *sample, name string) *volumeScore {
	if v := m.p.score; v != nil && !v.gone {
		return v
	}
	v := x.scores[name]
	if v == nil {
		v = &volumeScore{name: name}
		x.scores[name] = v
	}
	m.p.score = v
	return v
}

// rank chooses the volumes that are shown.
func (x *volumeFold) rank(s *Snapshot) {
	for i := range s.samples {
		m := &s.samples[i]
		at := volumeAt[m.f.index]
		if at < 0 {
			continue
		}
		v := x.scoreOf(m, s.labels[m.at+at])
		if !v.seen {
			v.seen, v.before, v.moved, v.score = true, v.moved, 0, 0
		}
		switch m.f {
		case HostTransferred, CacheAdmitted:
			v.moved += m.v
		case CacheDirty:
			v.score += m.v
		}
	}
	x.ranked = x.ranked[:0]
	for name, v := range x.scores {
		if !v.seen {
			v.gone = true
			delete(x.scores, name)
			continue
		}
		v.seen = false
		v.score += max(v.moved-v.before, 0)
		if v.member {
			v.score *= 2 // a newcomer must do twice as much: series that come and go are of no use
		}
		x.ranked = append(x.ranked, v)
	}
	slices.SortFunc(x.ranked, func(a, b *volumeScore) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
	for i, v := range x.ranked {
		v.member = i < x.n
	}
}

// fold replaces the series of the volumes that are not shown by those of the others.
func (x *volumeFold) fold(s *Snapshot) {
	x.rank(s)
	for _, o := range x.others {
		if o.f.Kind == Gauge {
			o.v = 0
		}
	}
	kept := s.samples[:0]
	for i := range s.samples {
		m := s.samples[i]
		at := volumeAt[m.f.index]
		if at < 0 {
			kept = append(kept, m)
			continue
		}
		labels := s.labelsOf(&m)
		// A volume that is called so goes with the others: there is one series of the name.
		member := m.p.score.member && labels[at] != OtherVolumes
		if member {
			kept = append(kept, m)
		}
		if m.f.Kind == Gauge {
			if !member {
				x.otherOf(&m, labels, at).v += m.v
			}
			continue
		}
		was := x.lastOf(&m, labels)
		if m.histAt >= 0 {
			h := &s.hists[m.histAt]
			if was.h == nil {
				was.h = &Histogram{}
			}
			if !member {
				o := x.otherOf(&m, labels, at)
				if o.h == nil {
					o.h = &Histogram{}
				}
				o.h.addGrowth(h, was.h)
			}
			*was.h = *h
			continue
		}
		if !member {
			grown := m.v - was.v
			if grown < 0 {
				grown = m.v // it began anew
			}
			x.otherOf(&m, labels, at).v += grown
		}
		was.v = m.v
	}
	s.samples = kept
	for _, o := range x.others {
		at := len(s.labels)
		s.labels = append(s.labels, o.labels...)
		m := sample{f: o.f, v: o.v, at: at, histAt: -1, p: &o.p}
		if o.h != nil {
			m.histAt = len(s.hists)
			s.hists = append(s.hists, *o.h)
		}
		s.samples = append(s.samples, m)
	}
}

// addGrowth adds what now has more than was.
func (h *Histogram) addGrowth(now, was *Histogram) {
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

// lastOf is what a volume's series was at the last scrape, found by the series itself
// where that is known.
func (x *volumeFold) lastOf(m *sample, labels []string) *folded {
	if m.p.was == nil {
		m.p.was = x.series(x.last, m.f, labels, -1)
	}
	return m.p.was
}

// otherOf is the series of the others that a volume's belongs to.
func (x *volumeFold) otherOf(m *sample, labels []string, at int) *folded {
	if m.p.other == nil {
		m.p.other = x.series(x.other, m.f, labels, at)
	}
	return m.p.other
}

// series finds the series of a family and labels; the label at hide is that of the others.
func (x *volumeFold) series(in map[string]*folded, f *Family, labels []string, hide int) *folded {
	k := append(x.key[:0], byte(f.index), byte(f.index>>8))
	for i, l := range labels {
		if i != hide {
			k = append(k, l...)
		}
		k = append(k, 0xff)
	}
	x.key = k
	s := in[string(k)]
	if s == nil {
		s = &folded{f: f, labels: slices.Clone(labels)}
		if hide >= 0 {
			s.labels[hide] = OtherVolumes
			x.others = append(x.others, s)
		}
		s.p.labels = s.labels
		in[string(k)] = s
	}
	return s
}
