package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/sim"
)

// progress runs scenarios side by side and shows how far they are.
type progress struct {
	grid []*sim.Scenario
	bars *mpb.Progress
	// attach, if there is one, watches a run from its beginning; what it returns ends that.
	attach attachment
}

func newProgress(grid []*sim.Scenario, show bool) *progress {
	p := &progress{grid: grid}
	if show {
		p.bars = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
	}
	return p
}

func (p *progress) close() {
	if p.bars != nil {
		p.bars.Wait()
	}
}

// run returns the runs in the order of the grid. One that fails ends the others.
func (p *progress) run(ctx context.Context, jobs int) ([]*sim.Run, error) {
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	runs := make([]*sim.Run, len(p.grid))
	errs := make([]error, len(p.grid))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(jobs, len(p.grid)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(p.grid)); i = next.Add(1) - 1 {
				if runs[i], errs[i] = p.one(ctx, p.grid[i]); errs[i] != nil {
					errs[i] = fmt.Errorf("%s: %w", p.grid[i].Name, errs[i])
					stop()
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// one carries out a run in slices of about a tenth of a second.
func (p *progress) one(ctx context.Context, s *sim.Scenario) (_ *sim.Run, err error) {
	r, err := sim.New(s)
	if err != nil {
		return nil, err
	}
	if p.attach != nil {
		done, failed := p.attach(s, r)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, done()) }()
	}
	const steps = 1000
	var bar *mpb.Bar
	var label atomic.Value
	label.Store("")
	if p.bars != nil {
		bar = p.bars.AddBar(steps, mpb.PrependDecorators(decor.Name(admin.Printable(s.Name), decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return label.Load().(string) }, decor.WCSyncSpaceR), decor.Elapsed(decor.ET_STYLE_MMSS)))
	}
	start := time.Now()
	slice := int64(10e6)
	for ctx.Err() == nil {
		began := time.Now()
		now, until := r.Time()
		over := r.Advance(now + slice)
		now, _ = r.Time()
		if bar != nil {
			done := r.Progress()
			if until > 0 {
				done = int(now * steps / until)
			}
			wall := time.Since(start)
			text := fmt.Sprintf(" simulated %s, %.1fx", time.Duration(now).Round(10*time.Millisecond), float64(now)/float64(wall))
			if done > 0 && done < steps {
				text += fmt.Sprintf(", %s left", (wall * time.Duration(steps-done) / time.Duration(done)).Round(time.Second))
			}
			label.Store(text)
			bar.SetCurrent(int64(max(0, min(done, steps-1))))
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
	if bar != nil {
		bar.SetCurrent(steps)
		bar.Abort(false)
	}
	return r, nil
}
