package fit

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// An interval by the profile likelihood: a parameter is moved away from the best fit while all others are fitted anew, until
// the sum of squares refuses it. The Jacobian at the best fit alone says how far that is only where the model is nearly
// linear in logarithms. Where two parameters replace each other, as a front end's time and a disk's, the valley between them
// is curved: one of them may go down to nothing, and the derivative at its other end says that it does not.

const (
	mostWalks    = 14   // places along one parameter, on one side
	mostRestarts = 3    // from deeper ends that walks led to
	firstStep    = 1.0  // of a walk, at most, as a logarithm
	longestStep  = 1.5  // of a walk, later
	linear       = 0.15 // how near to the edge, relatively, a place is from which a straight line leads there
	narrow       = 0.02 // between two places, as a logarithm: not looked into any further
	refit        = 3    // steps with derivatives of a place nearby
)

// region is where the truth is with the level: sums of squares from the least one to a bound.
type region struct {
	least, bound float64
	quantile     float64 // of Student's t: so many standard errors from the best fit
	variance     float64 // of the residuals: what they have, but not less than the measurement's part of it
	final        bool    // it stays, though a place may be deeper: such a one is inside
}

// region returns where the fits are that the data do not refuse beside the best. All intervals together hold with the
// level: each by Bonferroni with a k-th of what is left of it.
func (f *fitter) region(best *point) region {
	n, k := float64(len(f.obs)), float64(len(f.params))
	q := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - k}.Quantile(1 - (1-f.opt.Level)/2/k)
	variance := max(best.own, best.sum/(n-k))
	return region{least: best.sum, bound: best.sum + q*q*variance, quantile: q, variance: variance}
}

// at returns how far from the best fit a place is: 1 is the region's edge. In a linear model it grows like the distance.
func (r region) at(p *point) float64 {
	return math.Sqrt(max(0, p.sum-r.least) / (r.bound - r.least))
}

// deeper reports whether a place is so much below the best fit that this one was none.
func (r region) deeper(p *point) bool { return !r.final && p.sum < r.least-0.1*(r.bound-r.least) }

// estimate returns the intervals of all parameters, and the best fit. That is the first of the ends, or a deeper one that
// the walk along a parameter led to. Ends that are as good, but beyond the intervals, widen them. When it has begun again often
// enough, the intervals have the deeper places, too.
func (f *fitter) estimate(ends []*point) (*Fit, *point, error) {
	for restarts := 0; ; restarts++ {
		best := ends[0]
		r := f.region(best)
		r.final = restarts == mostRestarts
		out, deeper, err := f.intervals(best, r)
		for i := 1; i < len(ends) && err == nil && deeper == nil; i++ {
			if p := ends[i]; p.sum <= r.bound && out.beyond(p) {
				var other *Fit
				if other, deeper, err = f.intervals(p, r); err == nil && deeper == nil {
					out.widen(other, r.quantile)
				}
			}
		}
		if err != nil {
			return nil, nil, err
		}
		if deeper == nil {
			return out, best, nil
		}
		if deeper, err = f.descend(deeper); err != nil {
			return nil, nil, err
		}
		ends = append([]*point{deeper}, ends...)
	}
}

// beyond reports whether a place is outside an interval.
func (out *Fit) beyond(p *point) bool {
	for i, v := range p.values() {
		if e := &out.Estimates[i]; e.Known() && (v < e.Low || v > e.High) {
			return true
		}
	}
	return false
}

// intervals walks from an end along each parameter that its derivatives determine. It stops at a place that is deeper than
// the region.
func (f *fitter) intervals(from *point, r region) (out *Fit, deeper *point, err error) {
	j, err := f.jacobian(from)
	if err != nil {
		return nil, nil, err
	}
	if out, err = f.conclude(from, j); err != nil {
		return nil, nil, err
	}
	for k := range out.Estimates {
		e := &out.Estimates[k]
		if !e.Known() {
			continue
		}
		first := max(narrow, min(firstStep, r.quantile*e.Error))
		for _, dir := range []float64{-1, 1} {
			w, err := f.walk(from, j, k, dir*first, r)
			if err != nil {
				return nil, nil, err
			}
			switch {
			case r.deeper(w.last):
				return out, w.last, nil
			case w.open:
				e.Low, e.High, e.Error = math.NaN(), math.NaN(), math.Inf(1)
				out.confuse(f.moved(from, w.last, k))
			case dir < 0:
				e.Low = math.Exp(w.edge)
			default:
				e.High = math.Exp(w.edge)
			}
			if w.open {
				break
			}
		}
		if e.kind == count {
			e.Low, e.High = max(1, math.Floor(e.Low)), math.Ceil(e.High)
		}
		if e.Known() {
			e.Error = math.Log(e.High/e.Low) / 2 / r.quantile
			if e.judge(); !e.Known() {
				out.confuse([]string{e.Key})
			}
		}
	}
	return out, nil, nil
}

// moved names the parameter of a walk, and those that changed with it.
func (f *fitter) moved(from, to *point, k int) []string {
	var out []string
	for i := range f.params {
		if i == k || math.Abs(to.x[i]-from.x[i]) > 0.3*math.Abs(to.x[k]-from.x[k]) {
			out = append(out, f.params[i].Key)
		}
	}
	return out
}

// walked is the end of a walk: at the region's edge, or open, which is so far that the parameter is not determined.
type walked struct {
	edge float64
	open bool
	last *point
}

// walk goes along a parameter from an end, with a first step of this length and direction, to the region's edge.
func (f *fitter) walk(from *point, j *mat.Dense, k int, step float64, r region) (walked, error) {
	in, out := from, (*point)(nil) // the farthest place inside, and the nearest one outside
	for range mostWalks {
		x := in.x[k] + step
		if out != nil {
			x = in.x[k] + max(0.15, min(0.85, (1-r.at(in))/(r.at(out)-r.at(in))))*(out.x[k]-in.x[k])
		}
		p, jp, err := f.along(in, j, k, x, r)
		if err != nil || r.deeper(p) {
			return walked{last: p}, err
		}
		if r.at(p) > 1 {
			if out = p; r.at(p) < 1+linear || math.Abs(out.x[k]-in.x[k]) < narrow {
				return walked{edge: between(in, out, k, r), last: p}, nil
			}
			continue
		}
		went, gained := p.x[k]-in.x[k], r.at(p)-r.at(in)
		in, j = p, jp
		switch {
		case math.Abs(x-p.x[k]) > 1e-9: // a whole number is as small as it can be, or as large as the search tries
			return walked{edge: p.x[k], open: x > p.x[k], last: p}, nil
		case math.Abs(p.x[k]-from.x[k]) > 2*vagueWidth:
			return walked{open: true, last: p}, nil
		case out != nil && (r.at(p) > 1-linear || math.Abs(out.x[k]-p.x[k]) < narrow):
			return walked{edge: between(in, out, k, r), last: p}, nil
		case out == nil && r.at(p) > 1-linear && gained > linear:
			return walked{edge: p.x[k] + went*(1-r.at(p))/gained, last: p}, nil
		case out == nil: // to where the edge seems to be, and a little beyond it
			ahead := math.Abs(went) * 1.1 * (1 - r.at(p)) / max(gained, 1e-3)
			step = math.Copysign(max(narrow, min(ahead, 3*math.Abs(went), longestStep)), went)
		}
	}
	if out == nil {
		return walked{open: true, last: in}, nil
	}
	return walked{edge: out.x[k], last: in}, nil
}

// between returns where the edge is between a place inside and one outside.
func between(in, out *point, k int, r region) float64 {
	return in.x[k] + (out.x[k]-in.x[k])*(1-r.at(in))/(r.at(out)-r.at(in))
}

// along sets a parameter to x and fits the others, from a place nearby with its derivatives. It returns derivatives of the
// new place, too. A place is refused only by derivatives of its own, unless it is near.
func (f *fitter) along(in *point, j *mat.Dense, k int, x float64, r region) (*point, *mat.Dense, error) {
	f.held = make([]bool, len(f.params))
	f.held[k] = true
	defer func() { f.held = nil }()
	to := slices.Clone(in.x)
	for i, t := range f.tangent(j, k) {
		to[i] += max(-1, min(1, t*(x-in.x[k])))
	}
	to[k] = x
	f.bound(to)
	p, err := f.look(to)
	if err != nil {
		return nil, nil, err
	}
	j = mat.DenseCopyOf(j)
	broyden(j, in, p)
	if p, err = f.relax(p, j, refit, r); err != nil {
		return nil, nil, err
	}
	if at := r.at(p); at <= 1 || at < 1+linear && math.Abs(x-in.x[k]) < 0.3 {
		return p, j, nil
	}
	f.held[k] = false // its column counts in the next tangent
	if j, err = f.jacobian(p); err != nil {
		return nil, nil, err
	}
	f.held[k] = true
	p, err = f.relax(p, j, maxSteps, r)
	return p, j, err
}

// relax descends with the derivatives that there are, which each step corrects.
func (f *fitter) relax(p *point, j *mat.Dense, steps int, r region) (*point, error) {
	d := damping{lambda: 1e-3, up: 10, worse: 0.1}
	return f.steps(p, j, steps, &d, func(*point) float64 { return 0.03 * (r.bound - r.least) })
}

// tangent returns by how much the others change with a parameter so that the residuals change least; 0 for itself.
func (f *fitter) tangent(j *mat.Dense, k int) []float64 {
	n := len(f.params)
	var a mat.Dense
	a.Mul(j.T(), j)
	b := mat.NewVecDense(n, nil)
	for i := range n {
		if i != k {
			b.SetVec(i, -a.At(i, k))
		}
	}
	for i := range n {
		a.Set(i, k, 0)
		a.Set(k, i, 0)
		a.Set(i, i, a.At(i, i)*(1+1e-4)+1e-6)
	}
	a.Set(k, k, 1)
	var t mat.VecDense
	if err := t.SolveVec(&a, b); err != nil {
		return make([]float64, n)
	}
	return slices.Clone(t.RawVector().Data)
}
