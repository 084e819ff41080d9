package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/experiment"
	"github.com/arraysim/arraysim/internal/sim"
)

// runBars are the progress bars of runs side by side, on standard error.
type runBars struct{ all *mpb.Progress }

// metered is w with bars, if they are to show; end waits until they stand as they are.
func metered(w experiment.Work, show bool) (_ experiment.Work, end func()) {
	if !show {
		return w, func() {}
	}
	b := &runBars{mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))}
	w.Meter = b.meter
	return w, b.all.Wait
}

// runBar is the bar of one run.
type runBar struct {
	bar   *mpb.Bar
	label atomic.Value
	start time.Time
}

// runSteps are the parts of a run: thousandths.
const runSteps = 1000

func (b *runBars) meter(s *sim.Scenario) experiment.Meter {
	m := &runBar{start: time.Now()}
	m.label.Store("")
	m.bar = b.all.AddBar(runSteps, mpb.PrependDecorators(decor.Name(admin.Printable(s.Name), decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return m.label.Load().(string) }, decor.WCSyncSpaceR), decor.Elapsed(decor.ET_STYLE_MMSS)))
	return m
}

// Advance implements experiment.Meter.
func (m *runBar) Advance(done int, now time.Duration) {
	wall := time.Since(m.start)
	text := fmt.Sprintf(" simulated %s, %.1fx", now.Round(10*time.Millisecond), float64(now)/float64(wall))
	if done > 0 && done < runSteps {
		text += fmt.Sprintf(", %s left", (wall * time.Duration(runSteps-done) / time.Duration(done)).Round(time.Second))
	}
	m.label.Store(text)
	m.bar.SetCurrent(int64(min(done, runSteps-1)))
}

// End implements experiment.Meter.
func (m *runBar) End(ended bool) {
	if ended {
		m.bar.SetCurrent(runSteps)
	}
	m.bar.Abort(false)
}
