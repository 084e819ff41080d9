package history

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Query asks for a part of the history.
type Query struct {
	From, To time.Time
	Points   int // at most; steps get as long as that needs
	// Kind and Name ask for one object. Without a name, kinds that are not Always give the Top
	// objects of highest rank in the range.
	Kind, Name string
	Top        int
	// Highest adds the objects that are highest by this field of kinds that are not Always: Also by its highest
	// value in the range, and Also by its highest in the last Recent of it.
	Highest string
	Also    int
}

// Recent is the end of a range that Query.Highest looks at by itself.
const Recent = 5 * time.Second

// Result is what a query finds. Each series has a value for each of Times.
type Result struct {
	Step    time.Duration
	Times   []time.Time // the ends of the steps
	Covered []bool      // whether anything was sampled in the step
	Objects []Object
}

// Object is one object's part of a result.
type Object struct {
	Kind, Name string
	ID         uint32 // its user's number for the newest object of this name
	Named      bool   // ID is known
	Fields     []Field
	Series     [][]float32 // by field, then by time; NaN is unknown
}

// steps are those that a query uses.
var steps = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute,
	2 * time.Minute, CoarseStep, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 96 * time.Hour, 192 * time.Hour}

// Query returns what is known of a range. Ranges that begin within the last hour come from samples,
// others from steps of five minutes. Only what the range needs is copied while samples wait; the
// computing is the caller's own time.
func (h *History) Query(q Query) Result { return h.look(q).result() }

// look is a query with all that its answer needs. Nothing that is done to the history changes it.
type look struct {
	query Query
	view  view
	ticks []tick
	step  time.Duration
	first int64 // the end of the first step, ms
	n     int   // steps
}

func (h *History) look(q Query) *look {
	h.mu.Lock()
	defer h.mu.Unlock()
	step := steps[0]
	old := h.fine.last()-q.From.UnixMilli() > (FineAge + time.Minute).Milliseconds()
	if old {
		step = CoarseStep
	}
	points := max(q.Points, 1)
	need := q.To.Sub(q.From) / time.Duration(points)
	for _, s := range steps {
		if s >= step {
			if step = s; s >= need {
				break
			}
		}
	}
	l := &look{query: q, step: step, view: h.view().clone()}
	w := step.Milliseconds()
	l.first = (q.From.UnixMilli()/w + 1) * w // the end of the first whole step
	l.n = int(max(0, (q.To.UnixMilli()+w-1-l.first)/w+1))
	if l.n > points && step >= need {
		// A range that begins within a step has a part of one more than fit in: its steps are not the clock's, but end where it ends.
		l.first, l.n = q.To.UnixMilli()-int64(points-1)*w, points
	}
	from, to := l.first-w, l.first+int64(l.n-1)*w
	if !old {
		l.ticks = slices.Clone(between(h.fine.ticks, from, to))
		return l
	}
	done, _ := slices.BinarySearchFunc(h.fine.ticks, h.coarse.last()+1, func(t tick, at int64) int { return cmp.Compare(t.end, at) })
	l.ticks = append(slices.Clone(between(h.coarse.ticks, from, to)), between(h.fine.ticks[done:], from, to)...)
	return l
}

// between returns the ticks that have a part of (from, to]. Their rows never change.
func between(ticks []tick, from, to int64) []tick {
	i, _ := slices.BinarySearchFunc(ticks, from+1, func(t tick, at int64) int { return cmp.Compare(t.end, at) })
	ticks = ticks[i:]
	for n := len(ticks); n > 0 && ticks[n-1].end-ticks[n-1].span >= to; n-- {
		ticks = ticks[:n-1]
	}
	return ticks
}

// view is who the objects are and what their figures mean.
type view struct {
	kinds   []Kind
	objects []*object // by number; nil is free
}

func (h *History) view() view { return view{h.kinds, h.objects} }

// clone copies what changes while samples are taken. The objects lie in two pieces of memory: there are thousands.
func (v view) clone() view {
	n := 0
	for _, o := range v.objects {
		if o != nil {
			n += len(o.lives)
		}
	}
	objects, lives := make([]object, len(v.objects)), make([]life, 0, n)
	out := view{v.kinds, make([]*object, len(v.objects))}
	for i, o := range v.objects {
		if o != nil {
			at := len(lives)
			lives = append(lives, o.lives...)
			objects[i] = object{o.key, lives[at:len(lives):len(lives)], o.id, o.named}
			out.objects[i] = &objects[i]
		}
	}
	return out
}

func (l *look) result() Result {
	w, n := l.step.Milliseconds(), l.n
	r := Result{Step: l.step, Times: make([]time.Time, n), Covered: make([]bool, n)}
	folds := make([]*fold, n)
	for i := range folds {
		folds[i] = newFold()
		r.Times[i] = time.UnixMilli(l.first + int64(i)*w)
	}
	for _, t := range l.ticks {
		// A sample counts in each step that it covers more than a sliver of: samples are not taken on the second.
		for i := max(0, (t.end-t.span-l.first+w)/w); i < int64(n); i++ {
			from := l.first + (i-1)*w
			part := t
			part.span = min(t.end, from+w) - max(t.end-t.span, from)
			if part.span <= 0 {
				break
			}
			if part.span*10 >= min(t.span, w) {
				folds[i].add(l.view, part)
				r.Covered[i] = true
			}
		}
	}
	if n > 0 && r.Times[n-1].After(l.query.To) {
		r.Times[n-1] = l.query.To
	}
	recent := min(n, max(2, int((Recent+l.step-1)/l.step))) // a step that has just begun may have no sample yet
	for _, o := range l.view.choose(l.query, folds, recent) {
		r.Objects = append(r.Objects, l.view.series(o, folds, l.first, w))
	}
	return r
}

// choose returns the numbers of the objects that a query gets, by kind and rank. The last recent steps are its end.
func (v view) choose(q Query, folds []*fold, recent int) []uint32 {
	rank := make([]float64, len(v.objects))
	var out []uint32
	for n, o := range v.objects {
		if o == nil || q.Kind != "" && v.kinds[o.key.kind].Name != q.Kind || q.Name != "" && o.key.name != q.Name {
			continue
		}
		active := false
		for _, f := range folds {
			if s := f.rows[uint32(n)]; s != nil {
				active = true
				for i, field := range v.kinds[o.key.kind].Fields {
					if field.Rank {
						rank[n] += s.add[i]
					}
				}
			}
		}
		if active || q.Name != "" {
			out = append(out, uint32(n))
		}
	}
	slices.SortFunc(out, func(a, b uint32) int {
		x, y := v.objects[a].key, v.objects[b].key
		switch {
		case x.kind != y.kind:
			return x.kind - y.kind
		case rank[a] > rank[b]:
			return -1
		case rank[a] < rank[b]:
			return 1
		case x.name < y.name:
			return -1
		}
		return 1
	})
	left := make([]int, len(v.kinds))
	for i := range left {
		if left[i] = q.Top; v.kinds[i].Always || q.Name != "" {
			left[i] = math.MaxInt
		}
	}
	also := v.highest(q, out, folds)
	for n := range v.highest(q, out, folds[len(folds)-recent:]) {
		also[n] = true
	}
	return slices.DeleteFunc(out, func(n uint32) bool {
		k := v.objects[n].key.kind
		left[k]--
		return left[k] < 0 && !also[n]
	})
}

// highest returns the q.Also of the objects list that are highest by q.Highest in the steps.
func (v view) highest(q Query, list []uint32, folds []*fold) map[uint32]bool {
	top := map[uint32]float64{}
	var found []uint32
	for _, n := range list {
		i := slices.IndexFunc(v.kinds[v.objects[n].key.kind].Fields, func(f Field) bool { return f.Name == q.Highest })
		if i < 0 || v.kinds[v.objects[n].key.kind].Always {
			continue
		}
		for _, f := range folds {
			if s := f.rows[n]; s != nil && s.top[i] > top[n] {
				top[n] = s.top[i]
			}
		}
		if top[n] > 0 {
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b uint32) int { return cmp.Compare(top[b], top[a]) })
	out := map[uint32]bool{}
	for _, n := range found[:min(len(found), q.Also)] {
		out[n] = true
	}
	return out
}

func (v view) series(n uint32, folds []*fold, first, step int64) Object {
	o := v.objects[n]
	k := v.kinds[o.key.kind]
	out := Object{Kind: k.Name, Name: o.key.name, ID: o.id, Named: o.named, Fields: k.Fields, Series: make([][]float32, len(k.Fields))}
	for i := range out.Series {
		out.Series[i] = make([]float32, len(folds))
	}
	values := make([]float32, len(k.Fields))
	for i, f := range folds {
		end := first + int64(i)*step
		f.values(v, n, end-step, end, values)
		for j, x := range values {
			out.Series[j][i] = x
		}
	}
	return out
}

// Sum is the integral over time, in seconds, of a field of one object over the samples that end in
// (from, to], with the time that these cover. It knows the last hour alone.
func (h *History) Sum(kind, name, field string, from, to time.Time) (sum float64, covered time.Duration) {
	i, ok := h.kindOf[kind]
	if !ok {
		return 0, 0
	}
	h.mu.Lock()
	n, known := h.numbers[key{i, name}]
	ticks := slices.Clone(between(h.fine.ticks, from.UnixMilli(), math.MaxInt64))
	h.mu.Unlock()
	at := slices.IndexFunc(h.kinds[i].Fields, func(f Field) bool { return f.Name == field })
	for _, t := range ticks {
		if t.end > to.UnixMilli() {
			continue
		}
		span := time.Duration(t.span) * time.Millisecond
		covered += span
		for _, r := range t.rows {
			if known && at >= 0 && r.object == n && r.values[at] == r.values[at] {
				sum += float64(r.values[at]) * span.Seconds()
			}
		}
	}
	return sum, covered
}
