package fit

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Estimate is a parameter by a fit. Low and High are NaN where the data do not determine it.
type Estimate struct {
	Parameter
	// Value is what the best fit has, as Setting writes it. Where the data do not determine it, only all
	// values together mean something: the predictions are made with them.
	Value     float64
	Low, High float64
	// Error is the relative standard error, at least of a size; +Inf if the data say nothing.
	Error float64
}

// Known tells whether the data determine the parameter.
func (e *Estimate) Known() bool { return !math.IsNaN(e.Low) }

// Keys returns the names of settings that are determined.
func Keys(all []Estimate) []string {
	var out []string
	for i := range all {
		if all[i].Known() {
			out = append(out, all[i].Key)
		}
	}
	return out
}

// widen takes over the intervals of another fit that is as good: what differs is not determined better than that. Parameters
// that are lost so are not told apart, though each of the fits is steep in them.
func (out *Fit) widen(other *Fit, quantile float64) {
	var lost []string
	for i := range out.Estimates {
		e, o := &out.Estimates[i], &other.Estimates[i]
		known := e.Known()
		e.Low, e.High = min(e.Low, o.Low), max(e.High, o.High)
		e.Error = max(e.Error, o.Error, math.Log(e.High/e.Low)/2/quantile)
		if e.judge(); known && !e.Known() {
			lost = append(lost, e.Key)
		}
	}
	if len(lost) > 0 {
		out.confuse(lost)
	}
}

// judge makes an interval that says nothing one that is not known.
func (e *Estimate) judge() {
	if !(e.Error <= vague && e.High/e.Low < math.Exp(2*vagueWidth)) { // NaN, too
		e.Low, e.High = math.NaN(), math.NaN()
	}
}

// confuse notes a set of parameters that are not told apart, once.
func (out *Fit) confuse(set []string) {
	if !slices.ContainsFunc(out.Confused, func(c []string) bool { return slices.Equal(c, set) }) {
		out.Confused = append(out.Confused, set)
	}
}

// conclude makes estimates of the end of a search and its Jacobian: from the singular values come the standard errors, as
// far as the model is linear, and the combinations of parameters that no observation depends on.
func (f *fitter) conclude(p *point, j *mat.Dense) (*Fit, error) {
	n, k := len(f.obs), len(f.params)
	out := &Fit{Level: f.opt.Level, Scale: math.Sqrt(p.sum / float64(n-k))}
	var svd mat.SVD
	if !svd.Factorize(j, mat.SVDThin) {
		return nil, errors.New("the model's derivatives have no singular values; fit fewer parameters (--free)")
	}
	var v mat.Dense
	svd.VTo(&v)
	variance := make([]float64, k)
	r := f.region(p)
	scale := math.Sqrt(r.variance)
	loosest, most := make([][]string, k), make([]float64, k) // by parameter: the direction that most of its variance is from
	for c, s := range svd.Values(nil) {
		sd := math.Inf(1)
		if s > 0 {
			sd = scale / s
		}
		var loose []string
		largest := 0.0 // of many parameters none may have much of a direction
		for i := range k {
			largest = max(largest, math.Abs(v.At(i, c)))
		}
		for i := range k {
			if w := math.Abs(v.At(i, c)); w > 0.3 || w == largest {
				loose = append(loose, f.params[i].Key)
			}
		}
		for i := range k {
			w := v.At(i, c)
			if w == 0 {
				continue
			}
			part := w * w * min(sd*sd, 1e12)
			if variance[i] += part; part > most[i] {
				most[i], loosest[i] = part, loose
			}
		}
		if sd > vague {
			out.Confused = append(out.Confused, loose)
		}
	}
	q := r.quantile
	for i := range f.params {
		sd := math.Sqrt(variance[i])
		e := Estimate{Parameter: f.params[i], Value: math.Exp(p.x[i]), Error: sd}
		e.Low, e.High = math.Exp(p.x[i]-q*sd), math.Exp(p.x[i]+q*sd)
		if e.kind == count {
			e.Low, e.High = max(1, math.Floor(e.Low)), math.Ceil(e.High)
		}
		e.judge()
		if !e.Known() && !slices.ContainsFunc(out.Confused, func(c []string) bool { return slices.Contains(c, e.Key) }) {
			set := loosest[i]
			if !slices.Contains(set, e.Key) {
				set = append(slices.Clone(set), e.Key)
			}
			out.Confused = append(out.Confused, set)
		}
		out.Estimates = append(out.Estimates, e)
	}
	return out, nil
}

// Settings returns the values of all estimates as settings of a profile. That profile makes the predictions.
func (f *Fit) Settings() map[string]any {
	out := map[string]any{}
	for i := range f.Estimates {
		e := &f.Estimates[i]
		out[e.Key] = e.Setting(e.Value)
	}
	return out
}

// Errors returns the median and the largest relative deviation of predictions, of what was held out or of
// what was fitted; NaN if there is none.
func (f *Fit) Errors(heldOut bool) (median, worst float64, n int) {
	var all []float64
	for i := range f.Residuals {
		if r := &f.Residuals[i]; r.HeldOut == heldOut {
			all = append(all, math.Abs(r.Relative()))
		}
	}
	if len(all) == 0 {
		return math.NaN(), math.NaN(), 0
	}
	slices.Sort(all)
	m := len(all) / 2
	if median = all[m]; len(all)%2 == 0 {
		median = (all[m-1] + all[m]) / 2
	}
	return median, all[len(all)-1], len(all)
}
