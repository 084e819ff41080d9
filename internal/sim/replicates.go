package sim

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/stats"
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
			o.Ours, o.Half = stats.Interval(r.figures[i])
			o.OK = e.holds(o.Ours-o.Half, 1) && e.holds(o.Ours+o.Half, 1)
			if o.Want = e.bounds(1); e.Times != "" {
				o.Want += " (ratio)"
			}
			if e.Want != nil {
				o.Difference = difference(o.Ours, *e.Want)
			}
		}
		out = append(out, o)
	}
	return out
}
