package history

import "math"

// fold adds up the ticks of one step of time.
type fold struct {
	span     int64 // ms that are covered
	complete int64 // of them, by ticks that omit nothing
	rows     map[uint32]*sums
}

// sums are what the rows of one object add up to.
type sums struct {
	span     int64     // ms of its rows
	complete int64     // of them, in ticks that omit nothing
	add      []float64 // values times ms, and times their weight
	over     []float64 // what add is divided by; of a Mean, that is its known time
	top      []float64 // NaN where nothing is known
}

func newFold() *fold { return &fold{rows: map[uint32]*sums{}} }

// add takes one tick of the step.
func (f *fold) add(in view, t tick) {
	f.span += t.span
	if t.omitted == 0 {
		f.complete += t.span
	}
	for _, r := range t.rows {
		if in.objects[r.object] == nil {
			continue
		}
		s := f.rows[r.object]
		if s == nil {
			n := len(r.values)
			s = &sums{add: make([]float64, n), over: make([]float64, n), top: make([]float64, n)}
			for i := range s.top {
				s.top[i] = math.NaN()
			}
			f.rows[r.object] = s
		}
		s.span += t.span
		if t.omitted == 0 {
			s.complete += t.span
		}
		s.row(in.kinds[in.objects[r.object].key.kind].Fields, r.values, float64(t.span))
	}
}

func (s *sums) row(fields []Field, values []float32, ms float64) {
	for i, field := range fields {
		v := float64(values[i])
		if math.IsNaN(v) {
			continue
		}
		w := ms
		if field.Rule == Weighted {
			w *= float64(values[field.Weight])
		}
		s.add[i] += v * w
		s.over[i] += w
		if !(s.top[i] >= v) {
			s.top[i] = v
		}
	}
}

// tick makes one tick of all, which ends at end.
func (f *fold) tick(in view, end, step int64) tick {
	t := tick{end: end, span: f.span}
	for n, s := range f.rows {
		if o := in.objects[n]; o != nil {
			values := make([]float32, len(s.add))
			f.values(in, n, end-step, end, values)
			t.rows = append(t.rows, row{n, values})
		}
	}
	if f.complete < f.span {
		t.omitted = 1 // who has no row is unknown for a part of it
	}
	return t
}

// values writes what an object did in the step (from, to]; NaN is unknown.
func (f *fold) values(in view, n uint32, from, to int64, out []float32) {
	o := in.objects[n]
	fields := in.kinds[o.key.kind].Fields
	s := f.rows[n]
	idle := min(f.complete, o.lived(from, to)) // ms in which it did nothing, as far as is known
	if s != nil {
		idle -= s.complete
	}
	idle = max(idle, 0)
	for i, field := range fields {
		v := math.NaN()
		switch {
		case s == nil:
			if idle > 0 && (field.Rule == Mean || field.Rule == Max) {
				v = 0
			}
		case field.Rule == Mean && s.over[i] > 0:
			v = s.add[i] / (s.over[i] + float64(idle))
		case field.Rule == Weighted && s.over[i] > 0:
			v = s.add[i] / s.over[i]
		case field.Rule == Max || field.Rule == Worst:
			v = s.top[i]
		}
		out[i] = float32(v)
	}
}
