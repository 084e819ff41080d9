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
// A counter of the others grows by what each of them grew while it was among them, and that stays
// there: a volume that is shown again goes on from where its own series was, or from 0 if it never
// had one. What it did since the last scrape is the others' still, because the growth of a series
// that a scrape begins to have is in no rate. So nothing that a volume did is counted in two
// series, what all of them grew is what was done, and none goes back, except that of a volume whose
// counter began anew and which was never among the others.
//
// What is kept of a volume that is gone is for its return: all volumes of an array are gone while that
// moves. Of those that went first it is forgotten when more are gone than keepGone, and than there ever were.
type volumeFold struct {
	n      int
	scores map[string]*volumeScore
	last   map[string]*own    // series by volume
	other  map[string]*folded // series of the others
	others []*folded          // the same, in the order in which they came
	ranked []*volumeScore     // of the last scrape, what is shown first
	key    []byte

	keys  map[string][]string // of last, by volume
	gone  []departure         // oldest first
	left  map[string]uint64   // number of the last departure of a volume that is gone
	went  uint64              // departures
	peak  int                 // most volumes of a scrape
	names []string            // that the present scrape does not have any more
}

// keepGone is how many volumes that are gone are remembered, at the least.
const keepGone = 1024

// departure is that a scrape did not have a volume any more.
type departure struct {
	name   string
	number uint64
}

type volumeScore struct {
	name                 string
	moved, before, score float64
	member, seen, gone   bool
	ranked               bool // at an earlier scrape, too
	returns              bool // it is a member, and was none at the last scrape
}

// value is what a counter or a histogram was at a scrape.
type value struct {
	v float64
	h *metrics.Histogram
}

// own is a counter of one volume: what it was at the last scrape, and what of that is in the
// volume's own series.
type own struct {
	was   value
	part  value // if split; else it is all of was
	split bool  // the others have some of it
}

// folded is a series of the others.
type folded struct {
	f      *metrics.Family
	labels []string
	value
	shown shown
}

func newVolumeFold(n int) *volumeFold {
	return &volumeFold{n: n, scores: map[string]*volumeScore{}, last: map[string]*own{}, other: map[string]*folded{}, keys: map[string][]string{}, left: map[string]uint64{}}
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
	x.ranked, x.names = x.ranked[:0], x.names[:0]
	for name, v := range x.scores {
		if !v.seen {
			v.gone = true
			delete(x.scores, name)
			x.names = append(x.names, name)
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
		member := i < x.n
		v.returns = member && !v.member && v.ranked
		v.member, v.ranked = member, true
	}
	x.forget()
}

// forget notes which volumes have gone, and forgets those that went first where there are too many.
func (x *volumeFold) forget() {
	slices.Sort(x.names)
	for _, name := range x.names {
		x.went++
		x.left[name] = x.went
		x.gone = append(x.gone, departure{name, x.went})
	}
	x.peak = max(x.peak, len(x.ranked))
	for len(x.gone) > max(keepGone, x.peak) {
		d := x.gone[0]
		x.gone = x.gone[1:]
		if x.left[d.name] != d.number { // it went once more since
			continue
		}
		delete(x.left, d.name)
		if x.scores[d.name] != nil {
			continue
		}
		for _, k := range x.keys[d.name] {
			delete(x.last, k)
		}
		delete(x.keys, d.name)
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
		if at < 0 || f.Kind == metrics.Gauge && w.score.member && labels[at] != OtherVolumes {
			e.show(&w.shown, f, labels, v, h)
			return
		}
		if f.Kind == metrics.Gauge {
			x.otherOf(w, f, labels, at).v += v
			return
		}
		was := x.lastOf(w, f, labels)
		if !w.score.member || labels[at] == OtherVolumes {
			was.giveTo(&x.otherOf(w, f, labels, at).value, v, h)
			return
		}
		if w.score.returns {
			was.giveTo(&x.otherOf(w, f, labels, at).value, v, h)
		}
		now := was.take(v, h)
		e.show(&w.shown, f, labels, now.v, now.h)
	})
	for _, o := range x.others {
		e.show(&o.shown, o.f, o.labels, o.v, o.h)
	}
}

// giveTo lets the others have what the counter has grown.
func (s *own) giveTo(other *value, v float64, h *metrics.Histogram) {
	if !s.split {
		s.part.set(s.was.v, s.was.h)
		s.split = true
	}
	other.grow(&s.was, v, h)
	s.was.set(v, h)
}

// take lets the volume's own series have what the counter has grown, and returns what is in it.
func (s *own) take(v float64, h *metrics.Histogram) value {
	if !s.split {
		s.was.set(v, h)
		return s.was
	}
	s.part.grow(&s.was, v, h)
	s.was.set(v, h)
	return s.part
}

// set keeps a counter's values of now.
func (s *value) set(v float64, h *metrics.Histogram) {
	s.v = v
	if h == nil {
		return
	}
	if s.h == nil {
		s.h = &metrics.Histogram{}
	}
	*s.h = *h
}

// grow adds what a counter has more than it was, and all of one that began anew.
func (s *value) grow(was *value, v float64, h *metrics.Histogram) {
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
		s.v += v
		return
	}
	s.v += v - was.v
}

// lastOf is what a volume's series was at the last scrape, found by the series itself
// where that is known.
func (x *volumeFold) lastOf(w *series, f *metrics.Family, labels []string) *own {
	if w.was == nil {
		k := string(x.keyOf(f, labels, -1))
		if w.was = x.last[k]; w.was == nil {
			w.was = &own{}
			x.last[k] = w.was
			name := labels[volumeAt[f.Index()]]
			x.keys[name] = append(x.keys[name], k)
		}
	}
	return w.was
}

// otherOf is the series of the others that a volume's belongs to.
func (x *volumeFold) otherOf(w *series, f *metrics.Family, labels []string, at int) *folded {
	if w.other == nil {
		k := string(x.keyOf(f, labels, at))
		if w.other = x.other[k]; w.other == nil {
			w.other = &folded{f: f, labels: slices.Clone(labels)}
			w.other.labels[at] = OtherVolumes
			x.other[k] = w.other
			x.others = append(x.others, w.other)
		}
	}
	return w.other
}

// keyOf is the key of a family and labels without the one at hide. It is valid until the next call.
func (x *volumeFold) keyOf(f *metrics.Family, labels []string, hide int) []byte {
	k := append(x.key[:0], byte(f.Index()), byte(f.Index()>>8))
	for i, l := range labels {
		if i != hide {
			k = append(k, l...)
		}
		k = append(k, 0xff)
	}
	x.key = k
	return k
}
