package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Options say how to fit.
type Options struct {
	Model *Model
	Free  []string // settings of the profile; nil is Usual
	// HoldOut is the share of loads that are kept from the fit and predicted by it; 0 is none.
	HoldOut float64
	// Level is the probability with which all intervals together hold what is true; 0 is 0.95.
	Level float64
	// Progress, if there is one, is called after each look at the model.
	Progress func(looks int, deviation float64)
}

// Residual is an observation beside its prediction by a profile that has the values of all estimates.
type Residual struct {
	Observation
	Predicted float64 // seconds
	HeldOut   bool
}

// Relative is the prediction's relative deviation.
func (r *Residual) Relative() float64 { return r.Predicted/r.Mean - 1 }

// Fit is a fitted profile.
type Fit struct {
	Estimates []Estimate
	// Confused are sets of parameters that the data cannot tell apart: they may change together, and
	// the predictions hardly do.
	Confused  [][]string
	Residuals []Residual
	// Scale is how much larger the residuals are than noise explains: far above 1, the model misses something.
	Scale float64
	Level float64
	Looks int // at the model
	// Repeat is by how much, relatively, a latency differs when its load is measured again, and Repeated of how many
	// loads that is known; NaN: of none. No model predicts a single measurement closer.
	Repeat   float64
	Repeated int
}

const (
	maxJacobians = 4
	maxSteps     = 6
	// step is the change of a parameter, as a logarithm, of which the model's derivative is taken. It is
	// large enough for a step of the whole numbers of times in nanoseconds and of what a simulation counts.
	step = 0.04
	// floor is a relative error that no measurement is below.
	floor = 0.003
	// vague is the standard error, as a logarithm, from which the data do not determine a parameter: its
	// interval would span a factor of ten and more.
	vague = 0.6
	// vagueWidth is half the width of an interval, as a logarithm, from which it says nothing.
	vagueWidth = 2.3
	// leastScale bounds how much better than their noise the residuals may be: a few of them can be small by chance.
	leastScale = 0.3
	// spread is what is assumed of latencies whose deviation is not known.
	spread = 1.0
)

// Run fits the parameters to observations by the least squares of logarithms, weighted by what noise each
// observation and its simulation have (Levenberg and Marquardt).
func Run(ctx context.Context, obs []Observation, opt Options) (*Fit, error) {
	if opt.Free == nil {
		opt.Free = Usual
		if !slices.ContainsFunc(obs, func(o Observation) bool { return o.Writes }) {
			opt.Free = slices.DeleteFunc(slices.Clone(Usual), func(k string) bool { return k == "cache.write" })
		}
	}
	if opt.Level == 0 {
		opt.Level = 0.95
	}
	params, err := opt.Model.Parameters(opt.Free)
	if err != nil {
		return nil, err
	}
	if n := len(slices.DeleteFunc(slices.Clone(params), func(p Parameter) bool { return p.kind != count })); n > mostCounts {
		return nil, fmt.Errorf("%d whole numbers are too many to be fitted; leave all but %d out of --free", n, mostCounts)
	}
	train, held := split(obs, opt.HoldOut)
	if len(train) <= len(params) {
		return nil, fmt.Errorf("%d latencies do not determine %d parameters; measure more loads, hold out less (--hold-out), or fit less (--free)", len(train), len(params))
	}
	f := &fitter{ctx: ctx, opt: &opt, params: params, obs: train}
	again, loads := repeat(obs)
	if loads > 0 {
		f.between = again
	}
	ends, err := f.search()
	if err != nil {
		return nil, err
	}
	best := ends[0]
	out, err := f.conclude(best)
	if err != nil {
		return nil, err
	}
	determined := Keys(out.Estimates)
	for _, p := range f.equals(ends)[1:] {
		other, err := f.conclude(p)
		if err != nil {
			return nil, err
		}
		out.widen(other)
	}
	// What fits that are equally good differ in is not told apart, though each of them is steep in it.
	left := Keys(out.Estimates)
	if lost := slices.DeleteFunc(determined, func(k string) bool { return slices.Contains(left, k) }); len(lost) > 0 {
		out.Confused = append(out.Confused, lost)
	}
	values, err := f.settle(best)
	if err != nil {
		return nil, err
	}
	for i := range out.Estimates {
		out.Estimates[i].Value = values[i]
	}
	out.Looks, out.Repeat, out.Repeated = f.looks, again, loads
	for _, part := range [][]Observation{train, held} {
		mean, _, err := opt.Model.latencies(part, params, values)
		if err != nil {
			return nil, err
		}
		for i := range part {
			out.Residuals = append(out.Residuals, Residual{part[i], mean[i], len(out.Residuals) >= len(train)})
		}
	}
	return out, nil
}

// split holds out every so-manieth load, and never the first. All latencies of a load stay together: a fit that
// has seen the same load measured again predicts nothing.
func split(obs []Observation, share float64) (train, held []Observation) {
	out := map[Load]bool{} // whether a load is held out
	n := 0
	for _, o := range obs {
		if _, known := out[o.Load]; !known {
			due := int(float64(len(out)+1)*share+1e-9) > n // five times a fifth is one
			if out[o.Load] = due; due {
				n++
			}
		}
		if out[o.Load] {
			held = append(held, o)
		} else {
			train = append(train, o)
		}
	}
	return train, held
}

// fitter is a fit under way.
type fitter struct {
	ctx    context.Context
	opt    *Options
	params []Parameter
	obs    []Observation
	looks  int
	whole  bool // numbers of servers stay as they are
	// between is the noise between two measurements of a load, which is more than that within one where the array
	// has other work; 0 if no load was measured again.
	between float64
}

// point is a place in the space of logarithms, with its weighted residuals.
type point struct {
	x   []float64
	r   []float64
	sum float64
}

func (p *point) values() []float64 {
	v := make([]float64, len(p.x))
	for i, x := range p.x {
		v[i] = math.Exp(x)
	}
	return v
}

// look asks the model at a place.
func (f *fitter) look(x []float64) (*point, error) {
	if err := f.ctx.Err(); err != nil {
		return nil, errors.New("interrupted")
	}
	p := &point{x: slices.Clone(x), r: make([]float64, len(f.obs))}
	mean, noise, err := f.opt.Model.latencies(f.obs, f.params, p.values())
	if err != nil {
		return nil, err
	}
	for i := range f.obs {
		o := &f.obs[i]
		cv := o.Spread
		if cv == 0 {
			cv = spread
		}
		sigma := math.Sqrt(floor*floor + f.between*f.between + cv*cv/float64(max(o.N, 1)) + noise[i]*noise[i])
		p.r[i] = math.Log(mean[i]/o.Mean) / sigma
		p.sum += p.r[i] * p.r[i]
	}
	if f.looks++; f.opt.Progress != nil {
		f.opt.Progress(f.looks, math.Sqrt(p.sum/float64(len(f.obs))))
	}
	return p, nil
}

// search descends from several beginnings, which differ in what share of the time the front end has, and returns
// the ends, the deepest first. That share is what most data say least of: fits that are equally good may be far apart.
func (f *fitter) search() ([]*point, error) {
	var ends []*point
	for _, share := range []float64{0.05, 0.3, 0.6, 0.9} {
		var begin *point
		for _, narrow := range []bool{false, true} {
			var x []float64
			for _, v := range guess(f.params, f.obs, share, narrow) {
				x = append(x, math.Log(v))
			}
			p, err := f.look(x)
			if err != nil {
				return nil, err
			}
			if begin == nil || p.sum < begin.sum {
				begin = p
			}
		}
		end, err := f.descend(begin)
		if err != nil {
			return nil, err
		}
		ends = append(ends, end)
	}
	slices.SortStableFunc(ends, func(a, b *point) int { return compare(a.sum, b.sum) })
	return ends, nil
}

// equals returns those ends that the data do not refuse beside the best: their sums of squares are in the region that
// holds the truth with the level, by the F distribution.
func (f *fitter) equals(ends []*point) []*point {
	n, k := float64(len(f.obs)), float64(len(f.params))
	variance := max(leastScale*leastScale, ends[0].sum/(n-k))
	bound := ends[0].sum + variance*k*distuv.F{D1: k, D2: n - k}.Quantile(f.opt.Level)
	return slices.DeleteFunc(slices.Clone(ends), func(p *point) bool { return p.sum > bound })
}

// mostCounts is how many whole numbers may be fitted: settle fits the others beside every choice of their neighbours.
const mostCounts = 4

// settle returns the values of the best fit that a profile can have: whole nanoseconds, bytes and servers. Beside each
// choice of the next whole numbers of servers it fits the others again.
func (f *fitter) settle(p *point) ([]float64, error) {
	f.whole = true
	defer func() { f.whole = false }()
	var open []int // numbers that are not whole
	for k, v := range p.values() {
		if f.params[k].kind == count && math.Abs(v-math.Round(v)) > 1e-9 {
			open = append(open, k)
		}
	}
	best := p
	for choice := range 1 << len(open) {
		if len(open) == 0 {
			break
		}
		x := slices.Clone(p.x)
		for i, k := range open {
			v := math.Floor(p.values()[k])
			if choice>>i&1 != 0 {
				v++
			}
			x[k] = math.Log(max(1, v))
		}
		q, err := f.look(x)
		if err == nil {
			q, err = f.descend(q)
		}
		if err != nil {
			return nil, err
		}
		if choice == 0 || q.sum < best.sum {
			best = q
		}
	}
	values := best.values()
	for i := range values {
		values[i] = max(1, math.Round(values[i]))
	}
	return values, nil
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// descend is the method of Levenberg and Marquardt. Between two Jacobians, each of which costs two looks a
// parameter, a step corrects the one that there is (Broyden).
func (f *fitter) descend(p *point) (*point, error) {
	lambda := 0.1
	for range maxJacobians {
		j, err := f.jacobian(p)
		if err != nil {
			return nil, err
		}
		begin := p.sum
		for range maxSteps {
			x, ok := stepFrom(p, j, lambda)
			if !ok {
				lambda *= 4
				continue
			}
			q, err := f.look(x)
			if err != nil {
				return nil, err
			}
			broyden(j, p, q)
			if q.sum >= p.sum {
				lambda *= 4
				continue
			}
			gain := p.sum - q.sum
			lambda = max(lambda/5, 1e-6)
			if p = q; gain < 0.05+1e-3*p.sum {
				break
			}
		}
		if begin-p.sum < 0.1+1e-2*p.sum {
			break
		}
	}
	return p, nil
}

// broyden corrects the Jacobian at p by what was seen at q: the smallest change with which it says the same.
func broyden(j *mat.Dense, p, q *point) {
	n, k := j.Dims()
	norm := 0.0
	d := make([]float64, k)
	for i := range d {
		d[i] = q.x[i] - p.x[i]
		norm += d[i] * d[i]
	}
	if norm < 1e-12 {
		return
	}
	for r := range n {
		said := 0.0
		for i := range d {
			said += j.At(r, i) * d[i]
		}
		miss := (q.r[r] - p.r[r] - said) / norm
		for i := range d {
			j.Set(r, i, j.At(r, i)+miss*d[i])
		}
	}
}

// stepFrom solves (J'J + lambda diag(J'J)) d = -J'r. No parameter changes by more than a factor of e at once.
func stepFrom(p *point, j *mat.Dense, lambda float64) ([]float64, bool) {
	n := len(p.x)
	var a mat.Dense
	a.Mul(j.T(), j)
	for i := range n {
		a.Set(i, i, a.At(i, i)*(1+lambda)+1e-6)
	}
	var g, d mat.VecDense
	g.MulVec(j.T(), mat.NewVecDense(len(p.r), p.r))
	g.ScaleVec(-1, &g)
	if err := d.SolveVec(&a, &g); err != nil {
		return nil, false
	}
	x := slices.Clone(p.x)
	for i := range x {
		x[i] += max(-1, min(1, d.AtVec(i)))
	}
	return x, true
}

// jacobian is the derivative of the residuals, by two-sided differences. The same seed in all of them makes
// their noise the same, too.
func (f *fitter) jacobian(p *point) (*mat.Dense, error) {
	j := mat.NewDense(len(f.obs), len(f.params), nil)
	for k := range f.params {
		if f.whole && f.params[k].kind == count {
			continue // a column of zeros, along which no step goes
		}
		h := step
		if f.params[k].kind == count {
			h = max(step, 0.5*math.Exp(-p.x[k])) // half a server, at least
		}
		x := slices.Clone(p.x)
		x[k] += h
		up, err := f.look(x)
		if err != nil {
			return nil, err
		}
		x[k] -= 2 * h
		down, err := f.look(x)
		if err != nil {
			return nil, err
		}
		for i := range f.obs {
			j.Set(i, k, (up.r[i]-down.r[i])/(2*h))
		}
	}
	return j, nil
}
