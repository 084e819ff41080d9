package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/sim"
)

// Work says how runs are carried out.
type Work struct {
	// Jobs is how many run at the same time; 0 is the number of cores.
	Jobs int
	// Attach, unless nil, watches each run from its beginning.
	Attach Attachment
	// Meter, unless nil, returns what shows how far a run is. It is called when the run begins, by the goroutine of the run.
	Meter func(*sim.Scenario) Meter
}

// Meter shows how far a run is. One goroutine calls it.
type Meter interface {
	// Advance says that so many thousandths are done, and how far the run's own time is.
	Advance(done int, now time.Duration)
	// End says that the run is over: at its end, or cut off before it.
	End(ended bool)
}

// steps are the parts of a run that a Meter knows.
const steps = 1000

// Run carries out all scenarios and returns the runs in their order. One that fails ends the others, and only those that had
// ended are returned beside its error, also where their files could not be written. When ctx ends, so do
// the runs, where they are: they are returned, too, and nil for each that had not begun.
func (w Work) Run(ctx context.Context, grid []*sim.Scenario) ([]*sim.Run, error) {
	jobs := w.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	interrupted := ctx // by the caller, and not by a run that fails
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	runs := make([]*sim.Run, len(grid))
	errs := make([]error, len(grid))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(jobs, len(grid)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(grid)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if runs[i], errs[i] = w.one(ctx, interrupted, grid[i]); errs[i] != nil {
					errs[i] = fmt.Errorf("%s: %w", grid[i].Name, errs[i])
					stop()
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			for i, r := range runs {
				if r != nil && !r.Ended() && interrupted.Err() == nil {
					runs[i] = nil
				}
			}
			return runs, err
		}
	}
	return runs, nil
}

// one carries out a run in slices of about a tenth of a second, so that it shows how far it is, and ends soon after ctx. What it
// has by then is kept if interrupted has ended, too.
func (w Work) one(ctx, interrupted context.Context, s *sim.Scenario) (_ *sim.Run, err error) {
	r, err := sim.New(s)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // it has not begun
		r.Finish()
		return nil, nil
	}
	if w.Attach != nil {
		done, failed := w.Attach(s, r)
		if failed != nil {
			return nil, failed
		}
		if ctx.Err() != nil { // while it was being prepared
			r.Finish()
			return nil, done(false)
		}
		defer func() { err = errors.Join(err, done(r.Problem() == nil && (r.Ended() || interrupted.Err() != nil))) }()
	}
	var meter Meter
	if w.Meter != nil {
		meter = w.Meter(s)
		defer func() { meter.End(r.Ended()) }()
	}
	r.Interrupt(func() bool { return ctx.Err() != nil })
	slice := int64(10e6)
	for ctx.Err() == nil {
		began := time.Now()
		now, until := r.Time()
		over := r.Advance(now + slice)
		now, _ = r.Time()
		if meter != nil {
			done := r.Progress()
			if until > 0 {
				done = int(now * steps / until)
			}
			meter.Advance(max(0, min(done, steps)), time.Duration(now))
		}
		if over {
			break
		}
		switch took := time.Since(began); {
		case took < 50*time.Millisecond:
			slice = min(slice*2, 1e13)
		case took > 200*time.Millisecond:
			slice = max(slice/2, 1e6)
		}
	}
	r.Finish()
	if err := r.Problem(); err != nil {
		return nil, err
	}
	return r, nil
}

// Attachment watches a run from its beginning. Done ends that: keep tells whether the run came to its end, or to where somebody
// interrupted it. If not, because it or another one failed, what an earlier run left stays as it is.
type Attachment func(*sim.Scenario, *sim.Run) (done func(keep bool) error, err error)
