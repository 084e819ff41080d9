package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/wasm"
	"github.com/arraysim/arraysim/lab/plug"
)

// YAML returns the scenario as a file for `arraysim sim`. What is plugged in is not in it.
func (s *Scenario) YAML() ([]byte, error) { return yaml.Marshal(s) }

// Run carries the scenario out, until its end or until ctx is done. It returns an error for what the
// scenario says wrong, for a policy that failed, and for ctx. It looks at ctx after each 100 ms of
// simulated time, and not while volumes are filled and caches warmed; a policy that does not return is
// not interrupted. A panic of a policy goes through.
func (s *Scenario) Run(ctx context.Context) (*Result, error) {
	text, err := s.YAML()
	if err != nil {
		return nil, err
	}
	return RunYAML(ctx, text, s.Plugged)
}

// RunYAML carries out a scenario file without its cases, with policies by the names that it has for
// them. Paths in it are relative to the working directory.
func RunYAML(ctx context.Context, text []byte, plugged plug.Policies) (*Result, error) {
	c, err := parse(text, plugged)
	if err != nil {
		return nil, err
	}
	return runScenario(ctx, c)
}

func parse(text []byte, plugged plug.Policies) (*sim.Scenario, error) {
	c, err := sim.Parse(text)
	if err != nil {
		return nil, err
	}
	load := wasm.Loader(".")
	c.Plugged, c.LoadWasm = plugged, func(file string) (sim.Module, error) { return load(file) }
	return c, nil
}

func runScenario(ctx context.Context, c *sim.Scenario) (*Result, error) {
	r, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for ctx.Err() == nil {
		if now, _ := r.Time(); r.Advance(now + int64(slice)) {
			break
		}
	}
	r.Finish()
	if err := errors.Join(r.Problem(), ctx.Err()); err != nil {
		return nil, err
	}
	return &Result{r, time.Duration(c.Series)}, nil
}

// slice is the simulated time after which ctx is looked at.
const slice = 100 * time.Millisecond

// Result is a run that has ended. It answers questions only, and those of several goroutines at once.
type Result struct {
	r      *sim.Run
	series time.Duration
}

// Time returns how long the run was, in simulated time.
func (r *Result) Time() time.Duration {
	now, _ := r.r.Time()
	return time.Duration(now)
}

// Value returns a figure of the whole run by its name, such as job.NAME.iops, pool.NAME.fullness_max,
// cache.NAME.hit_percent or metric.FAMILY,label=value: those that expectations of scenario files have,
// docs/laboratory.md lists them. A name that there is not is an error, and so is the mean of nothing.
func (r *Result) Value(name string) (float64, error) { return r.r.Value(name, 0, 0) }

// Between is Value over an interval. It begins with a step of the scenario's Series, and ends with one or with the
// run; others are an error. Figures of jobs and counters have no intervals: see Series.
func (r *Result) Between(name string, from, to time.Duration) (float64, error) {
	if err := timed(name); err != nil {
		return 0, err
	}
	if from < 0 || to <= from || to > r.Time() {
		return 0, fmt.Errorf("from %s to %s is not an interval of a run of %s", from, to, r.Time())
	}
	if from%r.series != 0 || to%r.series != 0 && to != r.Time() {
		return 0, fmt.Errorf("from %s to %s is not an interval of whole steps of %s: give whole steps, or the scenario a shorter Series", from, to, r.series)
	}
	return r.r.Value(name, sim.Duration(to), sim.Duration(to-from))
}

// timed returns an error for a figure that is of the whole run only.
func timed(name string) error {
	switch kind, _, _ := strings.Cut(name, "."); kind {
	case "volume", "group", "pool", "cache":
		return nil
	}
	return fmt.Errorf("%s is a figure of the whole run; those of volumes, groups, pools and caches have intervals", name)
}

// Series returns a figure for each interval of the scenario's Series, the first at 0; what is left of
// the last interval is left out. The mean of an interval without anything is NaN. A job has the
// series job.NAME.iops, mb_s and latency_ms, which begin with the job and end with the run; one that
// has not begun has none, which is an error.
func (r *Result) Series(name string) ([]float64, error) {
	if job, what, ok := cutJob(name); ok {
		return r.jobSeries(name, job, what)
	}
	if err := timed(name); err != nil {
		return nil, err
	}
	if _, err := r.Value(name); err != nil {
		return nil, err
	}
	var out []float64
	for at := r.series; at <= r.Time(); at += r.series {
		v, err := r.Between(name, at-r.series, at)
		if err != nil {
			v = math.NaN()
		}
		out = append(out, v)
	}
	return out, nil
}

func cutJob(name string) (job, what string, ok bool) {
	if name, ok = strings.CutPrefix(name, "job."); !ok {
		return "", "", false
	}
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return name, "", true
	}
	return name[:at], name[at+1:], true
}

func (r *Result) jobSeries(name, job, what string) ([]float64, error) {
	if _, err := r.Value(name); err != nil {
		return nil, err
	}
	const step = 100 * time.Millisecond
	n := int(r.series / step)
	steps, began, ok := r.r.Steps(job)
	if !ok {
		return nil, fmt.Errorf("there is no series %s: no such job, or it has not begun", name)
	}
	var out []float64
	for at := 0; time.Duration(began)+time.Duration(at+n)*step <= r.Time(); at += n {
		var sum sim.Step
		for i := at; i < min(at+n, len(steps)); i++ {
			sum.IOs, sum.Bytes, sum.Wait = sum.IOs+steps[i].IOs, sum.Bytes+steps[i].Bytes, sum.Wait+steps[i].Wait
		}
		switch what {
		case "iops":
			out = append(out, float64(sum.IOs)/r.series.Seconds())
		case "mb_s":
			out = append(out, float64(sum.Bytes)/float64(MiB)/r.series.Seconds())
		case "latency_ms":
			out = append(out, float64(sum.Wait)/float64(sum.IOs)/1e6)
		default:
			return nil, fmt.Errorf("job %s has no series of %s; it has iops, mb_s and latency_ms", job, what)
		}
	}
	return out, nil
}

// Percentile returns a percentile, from 0 to 100, of the response times of a job's I/Os. It is
// within 1 % of the exact one.
func (r *Result) Percentile(job string, p float64) (time.Duration, error) {
	ms, err := r.r.Percentile(job, p)
	return time.Duration(ms * 1e6), err
}

// Report returns the run as a text for people.
func (r *Result) Report() string { return r.r.Report() }

// Files returns what `arraysim sim --out` writes, by name: the time series as CSV, the counters, the
// log of events, the report.
func (r *Result) Files() map[string][]byte { return r.r.Output() }

// Write writes Files into a folder, which it makes.
func (r *Result) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := r.Files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}
