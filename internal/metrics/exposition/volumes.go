package exposition

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/arraysim/arraysim/internal/metrics"
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
	f      *metrics.Family
	labels []string
	v      float64
	h      *metrics.Histogram
	shown  shown // of the others
}

func newVolumeFold(n int) *volumeFold {
	return &volumeFold{n: n, scores: map[string]*volumeScore{}, last: map[string]*folded{}, other: map[string]*folded{}}
}

// volumeAt is the place of the volume among a family's labels, -1 if it has none.
var volumeAt = func() []int {
	at := make([]int, len(metrics.All()))
	for i, f := range metrics.All() {
		at[i] = slices.Index(f.Labels, "volume")
	}
	return at
}()

// scoreOf is the score of a series' volume, found by the series itself where that is known.
func (x *volumeFold) scoreOf(w *series, name string) *volumeScore {
	if v := w.score; v != nil && !v.gone {
		return v
	}
	v := x.scores[name]
	if v == nil {
		v = &volumeScore{name: name}
		x.scores[name] = v
	}
	w.score = v
	return v
}

// rank chooses the volumes that are shown.
func (x *volumeFold) rank(e *Exporter) {
	e.snap.EachSeries(func(n int, f *metrics.Family, labels []string, v float64, _ *metrics.Histogram) {
		at := volumeAt[f.Index()]
		if at < 0 {
			return
		}
		score := x.scoreOf(e.series[n], labels[at])
		if !score.seen {
			score.seen, score.before, score.moved, score.score = true, score.moved, 0, 0
		}
		switch f {
		case metrics.HostTransferred, metrics.CacheAdmitted:
			score.moved += v
		case metrics.CacheDirty:
			score.score += v
		}
	})
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

// fold shows the series of the snapshot, those of the volumes that are not shown one by one
// as those of the others.
func (x *volumeFold) fold(e *Exporter) {
	x.rank(e)
	for _, o := range x.others {
		if o.f.Kind == metrics.Gauge {
			o.v = 0
		}
	}
	e.snap.EachSeries(func(n int, f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
		w, at := e.series[n], volumeAt[f.Index()]
		// A volume that is called so goes with the others: there is one series of the name.
		if at < 0 || w.score.member && labels[at] != OtherVolumes {
			e.show(&w.shown, f, labels, v, h)
			if at >= 0 && f.Kind != metrics.Gauge {
				x.lastOf(w, f, labels).set(v, h)
			}
			return
		}
		o := x.otherOf(w, f, labels, at)
		if f.Kind == metrics.Gauge {
			o.v += v
			return
		}
		was := x.lastOf(w, f, labels)
		o.grow(was, v, h)
		was.set(v, h)
	})
	for _, o := range x.others {
		e.show(&o.shown, o.f, o.labels, o.v, o.h)
	}
}

// set keeps a counter's values of now.
func (s *folded) set(v float64, h *metrics.Histogram) {
	s.v = v
	if h == nil {
		return
	}
	if s.h == nil {
		s.h = &metrics.Histogram{}
	}
	*s.h = *h
}

// grow adds what a counter has more than it was.
func (s *folded) grow(was *folded, v float64, h *metrics.Histogram) {
	if h != nil {
		if s.h == nil {
			s.h = &metrics.Histogram{}
		}
		before := was.h
		if before == nil {
			before = &metrics.Histogram{}
		}
		s.h.AddGrowth(h, before)
		return
	}
	if v < was.v {
		s.v += v // it began anew
		return
	}
	s.v += v - was.v
}

// lastOf is what a volume's series was at the last scrape, found by the series itself
// where that is known.
func (x *volumeFold) lastOf(w *series, f *metrics.Family, labels []string) *folded {
	if w.was == nil {
		w.was = x.series(x.last, f, labels, -1)
	}
	return w.was
}

// otherOf is the series of the others that a volume's belongs to.
func (x *volumeFold) otherOf(w *series, f *metrics.Family, labels []string, at int) *folded {
	if w.other == nil {
		w.other = x.series(x.other, f, labels, at)
	}
	return w.other
}

// series finds the series of a family and labels; the label at hide is that of the others.
func (x *volumeFold) series(in map[string]*folded, f *metrics.Family, labels []string, hide int) *folded {
	k := append(x.key[:0], byte(f.Index()), byte(f.Index()>>8))
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
		in[string(k)] = s
	}
	return s
}
