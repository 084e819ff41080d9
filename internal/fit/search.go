package fit

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

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
			f.bound(x)
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

// mostCounts is how many whole numbers may be fitted: settle fits the others beside every choice of their neighbours.
const mostCounts = 4

// mostServers bounds a whole number while it is searched. Beyond what is in flight more servers change nothing, so that the
// search would go on with ever larger steps, and each server takes memory in the simulation.
const mostServers = 4096

// bound keeps whole numbers from 1 to mostServers.
func (f *fitter) bound(x []float64) {
	for k := range x {
		if f.params[k].kind == count {
			x[k] = min(max(x[k], 0), math.Log(mostServers))
		}
	}
}

// settle returns the values of the best fit that a profile can have: whole nanoseconds, bytes and servers. Beside each
// choice of the next whole numbers of servers it fits the others again.
func (f *fitter) settle(p *point) ([]float64, error) {
	var open []int // numbers that are not whole
	f.held = make([]bool, len(f.params))
	defer func() { f.held = nil }()
	for k, v := range p.values() {
		f.held[k] = f.params[k].kind == count
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
	d := damping{lambda: 0.1, up: 4, least: 1e-6}
	for range maxJacobians {
		j, err := f.jacobian(p)
		if err != nil {
			return nil, err
		}
		begin := p.sum
		if p, err = f.steps(p, j, maxSteps, &d, func(p *point) float64 { return 0.05 + 1e-3*p.sum }); err != nil {
			return nil, err
		}
		if begin-p.sum < 0.1+1e-2*p.sum {
			break
		}
	}
	return p, nil
}

// damping is how far steps go: the larger lambda, the shorter.
type damping struct {
	lambda float64
	up     float64 // factor for lambda behind a step that does not help
	worse  float64 // the least lambda behind one that leads upwards
	least  float64 // the least lambda of all
}

// steps takes some steps with the derivatives that there are, each of which corrects them, until one gains less than little
// says of where it ends.
func (f *fitter) steps(p *point, j *mat.Dense, most int, d *damping, little func(*point) float64) (*point, error) {
	for range most {
		x, ok := f.step(p, j, d.lambda)
		if !ok {
			d.lambda *= d.up
			continue
		}
		q, err := f.look(x)
		if err != nil {
			return nil, err
		}
		broyden(j, p, q)
		if q.sum >= p.sum {
			d.lambda = max(d.up*d.lambda, d.worse)
			continue
		}
		gain := p.sum - q.sum
		d.lambda = max(d.lambda/5, d.least)
		if p = q; gain < little(p) {
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

// isHeld reports whether a parameter stays as it is.
func (f *fitter) isHeld(k int) bool { return f.held != nil && f.held[k] }

// step solves (J'J + lambda diag(J'J)) d = -J'r. No parameter changes by more than a factor of e at once.
func (f *fitter) step(p *point, j *mat.Dense, lambda float64) ([]float64, bool) {
	n := len(p.x)
	var a mat.Dense
	a.Mul(j.T(), j)
	var g, d mat.VecDense
	g.MulVec(j.T(), mat.NewVecDense(len(p.r), p.r))
	g.ScaleVec(-1, &g)
	for i := range n {
		a.Set(i, i, a.At(i, i)*(1+lambda)+1e-6)
		if f.isHeld(i) {
			for c := range n {
				a.Set(i, c, 0)
				a.Set(c, i, 0)
			}
			a.Set(i, i, 1)
			g.SetVec(i, 0)
		}
	}
	if err := d.SolveVec(&a, &g); err != nil {
		return nil, false
	}
	x := slices.Clone(p.x)
	for i := range x {
		x[i] += max(-1, min(1, d.AtVec(i)))
	}
	f.bound(x)
	return x, true
}

// jacobian is the derivative of the residuals, by two-sided differences. The same seed in all of them makes
// their noise the same, too.
func (f *fitter) jacobian(p *point) (*mat.Dense, error) {
	j := mat.NewDense(len(f.obs), len(f.params), nil)
	for k := range f.params {
		if f.isHeld(k) {
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
