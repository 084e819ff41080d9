package sim

import (
	"fmt"
	"math"
)

// Replicates holds expectations to several runs of a scenario that differ in their seed: an
// expectation holds if the 95 % interval of its figure's mean is within the bounds. Runs are looked at
// and let go. Not safe for concurrent use.
type Replicates struct {
	expect  []Expect
	figures [][]float64 // by expectation; of one with Times, the ratio
	problem []string
}

// NewReplicates returns replicates without any run.
func NewReplicates(expect []Expect) *Replicates {
	return &Replicates{expect: expect, figures: make([][]float64, len(expect)), problem: make([]string, len(expect))}
}

// Add takes the runs of one seed, by case name.
func (r *Replicates) Add(seed uint64, runs map[string]*Run) {
	for i := range r.expect {
		v, factor, err := r.expect[i].figures(runs)
		if err != nil {
			r.problem[i] = fmt.Sprintf("seed %d: %v", seed, err)
			continue
		}
		r.figures[i] = append(r.figures[i], v/factor)
	}
}

// Outcomes returns what the expectations say: Ours is the mean, Half the half width of its interval.
// The bounds of an expectation with Times are those of the ratio.
func (r *Replicates) Outcomes() []Outcome {
	var out []Outcome
	for i := range r.expect {
		e := &r.expect[i]
		o := e.outcome()
		o.Problem, o.Replicates = r.problem[i], len(r.figures[i])
		if o.Problem == "" {
			o.Ours, o.Half = interval(r.figures[i])
			o.OK = e.holds(o.Ours-o.Half, 1) && e.holds(o.Ours+o.Half, 1)
			if o.Want = e.bounds(1); e.Times != "" {
				o.Want += " (ratio)"
			}
			if e.Want != nil {
				o.Difference = fmt.Sprintf("%+.1f %%", (o.Ours / *e.Want - 1)*100)
			}
		}
		out = append(out, o)
	}
	return out
}

// interval is the mean of figures and half the width of its 95 % interval by Student's t; of a
// single figure nobody knows it.
func interval(x []float64) (mean, half float64) {
	n := float64(len(x))
	for _, v := range x {
		mean += v / n
	}
	if len(x) < 2 {
		return mean, math.NaN()
	}
	squares := 0.0
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return mean, student(len(x)-1) * math.Sqrt(squares/(n-1)/n)
}

// student is the 97.5 % quantile of Student's t for so many degrees of freedom: to 10 by the tables, beyond
// by its expansion in 1/n, which is right to 0.0002 there.
func student(n int) float64 {
	table := [...]float64{12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281}
	if n <= len(table) {
		return table[n-1]
	}
	const z = 1.959964
	d := float64(n)
	return z + (z*z*z+z)/(4*d) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*d*d) + (3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*d*d*d)
}
