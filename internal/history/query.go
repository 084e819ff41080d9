package history

import (
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
}

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
	Fields     []Field
	Series     [][]float32 // by field, then by time; NaN is unknown
}

// steps are those that a query uses.
var steps = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute,
	2 * time.Minute, CoarseStep, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour}

// Query returns what is known of a range. Ranges that begin within the last hour come from samples,
// others from steps of five minutes.
func (h *History) Query(q Query) Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	ticks, step := h.fine.ticks, steps[0]
	if h.fine.last()-q.From.UnixMilli() > (FineAge + time.Minute).Milliseconds() {
		step = CoarseStep
		done, _ := slices.BinarySearchFunc(h.fine.ticks, h.coarse.last()+1, func(t tick, at int64) int { return int(t.end - at) })
		ticks = append(slices.Clone(h.coarse.ticks), h.fine.ticks[done:]...)
	}
	need := q.To.Sub(q.From) / time.Duration(max(q.Points, 1))
	for _, s := range steps {
		if s >= step {
			if step = s; s >= need {
				break
			}
		}
	}
	w := step.Milliseconds()
	first := (q.From.UnixMilli()/w + 1) * w // the end of the first whole step
	n := int(max(0, (q.To.UnixMilli()+w-1-first)/w+1))
	r := Result{Step: step, Times: make([]time.Time, n), Covered: make([]bool, n)}
	folds := make([]*fold, n)
	for i := range folds {
		folds[i] = newFold()
		r.Times[i] = time.UnixMilli(first + int64(i)*w)
	}
	for _, t := range ticks {
		// A sample counts in each step that it covers more than a sliver of: samples are not taken on the second.
		for i := max(0, (t.end-t.span-first+w)/w); i < int64(n); i++ {
			from := first + (i-1)*w
			part := t
			part.span = min(t.end, from+w) - max(t.end-t.span, from)
			if part.span <= 0 {
				break
			}
			if part.span*10 >= min(t.span, w) {
				folds[i].add(h, part)
				r.Covered[i] = true
			}
		}
	}
	if n > 0 && r.Times[n-1].After(q.To) {
		r.Times[n-1] = q.To
	}
	for _, o := range h.choose(q, folds) {
		r.Objects = append(r.Objects, h.series(o, folds, first, w))
	}
	return r
}

// choose returns the numbers of the objects that a query gets, by kind and name.
func (h *History) choose(q Query, folds []*fold) []uint32 {
	rank := make([]float64, len(h.objects))
	var out []uint32
	for n, o := range h.objects {
		if o == nil || q.Kind != "" && h.kinds[o.key.kind].Name != q.Kind || q.Name != "" && o.key.name != q.Name {
			continue
		}
		active := false
		for _, f := range folds {
			if s := f.rows[uint32(n)]; s != nil {
				active = true
				for i, field := range h.kinds[o.key.kind].Fields {
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
		x, y := h.objects[a].key, h.objects[b].key
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
	left := make([]int, len(h.kinds))
	for i := range left {
		if left[i] = q.Top; h.kinds[i].Always || q.Name != "" {
			left[i] = math.MaxInt
		}
	}
	return slices.DeleteFunc(out, func(n uint32) bool {
		k := h.objects[n].key.kind
		left[k]--
		return left[k] < 0
	})
}

func (h *History) series(n uint32, folds []*fold, first, step int64) Object {
	o := h.objects[n]
	k := h.kinds[o.key.kind]
	out := Object{Kind: k.Name, Name: o.key.name, Fields: k.Fields, Series: make([][]float32, len(k.Fields))}
	for i := range out.Series {
		out.Series[i] = make([]float32, len(folds))
	}
	values := make([]float32, len(k.Fields))
	for i, f := range folds {
		end := first + int64(i)*step
		f.values(h, n, end-step, end, values)
		for j, v := range values {
			out.Series[j][i] = v
		}
	}
	return out
}

// Sum is the integral over time, in seconds, of a field of one object over the samples that end in
// (from, to], with the time that these cover. It knows the last hour alone.
func (h *History) Sum(kind, name, field string, from, to time.Time) (sum float64, covered time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.kindOf[kind]
	if !ok {
		return 0, 0
	}
	at := slices.IndexFunc(h.kinds[i].Fields, func(f Field) bool { return f.Name == field })
	n, known := h.numbers[key{i, name}]
	for _, t := range h.fine.ticks {
		if t.end <= from.UnixMilli() || t.end > to.UnixMilli() {
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
