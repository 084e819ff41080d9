package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	if len(opt.Free) == 0 {
		return nil, errors.New("no setting is to be fitted; name some with --free")
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
	out, best, err := f.estimate(ends)
	if err != nil {
		return nil, err
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
	held   []bool // parameters that stay as they are; nil is none
	// between is the noise between two measurements of a load, which is more than that within one where the array
	// has other work; 0 if no load was measured again.
	between float64
}

// point is a place in the space of logarithms, with its weighted residuals.
type point struct {
	x   []float64
	r   []float64
	sum float64
	// own is the part of the residuals' variance that is the measurement's. A few residuals may be smaller by chance, and
	// the fit is not better known for that.
	own float64
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
		own := floor*floor + f.between*f.between + cv*cv/float64(max(o.N, 1))
		all := own + noise[i]*noise[i]
		p.own += own / all / float64(len(f.obs))
		p.r[i] = math.Log(mean[i]/o.Mean) / math.Sqrt(all)
		p.sum += p.r[i] * p.r[i]
	}
	if f.looks++; f.opt.Progress != nil {
		f.opt.Progress(f.looks, math.Sqrt(p.sum/float64(len(f.obs))))
	}
	return p, nil
}
