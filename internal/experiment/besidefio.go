package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/arraysim/arraysim/internal/fio"
	"github.com/arraysim/arraysim/internal/sim"
)

// Comparison is fio's result of a job beside the simulated one, reads or writes.
type Comparison struct {
	Job       string     `json:"job"`
	Direction string     `json:"direction"`
	Fio       int64      `json:"fio_ios"`
	Simulated int        `json:"simulated_ios"`
	Window    Window     `json:"window"`
	Figures   []Residual `json:"figures"`
}

// Window is the time that the figures are of: each job's own, fio's from its first I/O to its last, the simulated one from
// its first to where --ios ends it or a job beside it.
type Window struct {
	Fio       *float64 `json:"fio_seconds"` // nil if fio does not say
	Simulated float64  `json:"simulated_seconds"`
	// Beside are the other jobs of the same stage.
	Beside []BesideJob `json:"beside,omitempty"`
	// Differ says that a job beside this one ran in another part of fio's window than of the simulated one, so that
	// residuals compare different loads.
	Differ bool `json:"differ"`
}

// BesideJob is a job with the parts of another one's windows in which it ran, from 0 to 1; fio's is nil if it is unknown.
type BesideJob struct {
	Job       string   `json:"job"`
	Fio       *float64 `json:"fio_share"`
	Simulated float64  `json:"simulated_share"`
}

// sameShare is how far two shares of windows may be apart, as the ends of a run are never the same.
const sameShare = 0.05

// Residual is one figure: the simulated one over fio's, less 1.
type Residual struct {
	Figure    string  `json:"figure"`
	Fio       float64 `json:"fio"`
	Simulated float64 `json:"simulated"`
	Residual  float64 `json:"residual"`
}

// BesideFio runs the jobs of a result of fio against an array and puts what it measured beside the simulated figures. Notes
// say which options of the jobs were left out.
func BesideFio(ctx context.Context, r *fio.Result, array fio.Array, w Work) (out []Comparison, notes []string, err error) {
	ran, err := r.Ran()
	if err != nil {
		return nil, nil, err
	}
	var jobs []fio.Job
	for _, j := range ran {
		jobs = append(jobs, j.Job)
	}
	text, notes, err := fio.Scenario(jobs, array)
	if err != nil {
		return nil, nil, err
	}
	s, err := sim.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	simulated := map[string]*answers{}
	for i := range ran {
		l, err := fio.LoadOf(ran[i].Options)
		if err != nil {
			return nil, nil, err
		}
		simulated[ran[i].Name] = &answers{bound: array.Bytes(l.IO)}
	}
	w.Attach = func(_ *sim.Scenario, r *sim.Run) (func(bool) error, error) {
		r.Watch(func(x sim.IO) { simulated[x.Host].add(&x) }) // a job of fio is a host of the scenario
		return func(bool) error { return nil }, nil
	}
	runs, err := w.Run(ctx, []*sim.Scenario{s})
	switch {
	case err != nil:
		return nil, nil, err
	case runs[0] == nil:
		return nil, nil, errors.New("interrupted before the simulation began")
	case !runs[0].Ended():
		now, _ := runs[0].Time()
		return nil, nil, fmt.Errorf("interrupted at %s of simulated time", time.Duration(now))
	}
	intervals, err := fioIntervals(ran)
	if err != nil {
		return nil, nil, err
	}
	for i := range ran {
		j := &ran[i]
		ours := simulated[j.Name]
		end := ours.last
		for _, name := range j.Beside {
			// Behind the end that --ios sets, another load than fio's goes on.
			if other := simulated[name]; other.bytes >= other.bound {
				end = min(end, other.last)
			}
		}
		for _, d := range []struct {
			name  string
			write bool
			fio   *fio.Direction
		}{{"read", false, &j.Read}, {"write", true, &j.Write}} {
			ns := ours.until(end, d.write)
			if d.fio.Count == 0 {
				continue
			}
			if len(ns) == 0 {
				note := fmt.Sprintf("job %s has no %s within its --ios; give more", j.Name, d.name)
				if end < ours.last {
					note = fmt.Sprintf("job %s has no %s before another job reaches --ios; give more", j.Name, d.name)
				}
				notes = append(notes, note)
				continue
			}
			c := compareDirection(j.Name, d.name, d.fio, ns, end-ours.first)
			c.Window = windowOf(j, d.fio, interval{float64(ours.first), float64(end)}, intervals, simulated)
			out = append(out, c)
		}
	}
	return out, notes, nil
}

// answers are the simulated I/Os of a job, in the order of their ends.
type answers struct {
	all         []answer
	bytes       uint64
	bound       uint64 // bytes that --ios lets it have
	first, last int64
}

type answer struct {
	done, took int64
	write      bool
}

func (a *answers) add(x *sim.IO) {
	if len(a.all) == 0 {
		a.first = x.Issued
	}
	a.all = append(a.all, answer{x.Done, x.Done - x.Issued, x.Write})
	a.bytes += x.Bytes
	a.first, a.last = min(a.first, x.Issued), x.Done
}

// until returns the latencies of the reads or of the writes that ended by a time.
func (a *answers) until(end int64, write bool) (ns []float64) {
	for _, x := range a.all {
		if x.write == write && x.done <= end {
			ns = append(ns, float64(x.took))
		}
	}
	return ns
}

// compareDirection compares I/Os a second, the mean and each percentile that fio has. ns are the simulated latencies, which
// it sorts, of I/Os over a span of so many ns.
func compareDirection(job, direction string, d *fio.Direction, ns []float64, span int64) Comparison {
	slices.Sort(ns)
	c := Comparison{Job: job, Direction: direction, Fio: d.Count, Simulated: len(ns)}
	add := func(name string, theirs, ours float64) {
		if theirs > 0 {
			c.Figures = append(c.Figures, Residual{name, theirs, ours, ours/theirs - 1})
		}
	}
	add("iops", d.IOPS, float64(len(ns))/(float64(max(span, 1))/1e9))
	add("mean us", d.Latency.Mean/1e3, fio.Describe(ns).Mean/1e3)
	spread := &d.Completion
	if len(spread.Percentiles) == 0 {
		spread = &d.Latency
	}
	percent, theirs := spread.Quantiles()
	for i, p := range percent {
		// The rank that fio takes: the smallest latency that so many percent do not exceed. Percentiles beyond
		// what was simulated are not known.
		if k := int(p/100*float64(len(ns)) + 0.9999999); k >= 1 && (p < 100-100/float64(len(ns))) {
			add("p"+strconv.FormatFloat(p, 'f', -1, 64)+" us", theirs[i]/1e3, ns[k-1]/1e3)
		}
	}
	return c
}
