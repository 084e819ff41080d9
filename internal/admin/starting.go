package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arraysim/arraysim/internal/array"
)

// errStopped ends a start that is told to end before the array serves. It has changed nothing that the next one does not find.
var errStopped = errors.New("the start was stopped")

// StartStatus is what a start is at that has not come to its end.
type StartStatus struct {
	Step    string `json:"step"`
	IOGroup int    `json:"io_group,omitempty"`
	// Pool is the one whose garbage is collected before the array serves, and Collected how many pages of maps that is so far;
	// nil: no garbage is collected now. How many there are in all is not known before the end.
	Pool      string `json:"pool,omitempty"`
	Collected *int   `json:"collected_pages,omitempty" doc:"Pages of maps that were collected so far."`
}

func (s *StartStatus) line() string {
	text := s.Step
	if s.Collected != nil {
		text += fmt.Sprintf(" of pool %s: %d pages of maps so far", s.Pool, *s.Collected)
	}
	return text
}

// startTold is the time between two lines about a start that collects garbage.
const startTold = 10 * time.Second

// starts returns who hears of the start of an I/O group's array. With ctx the start ends.
func (d *daemon) starts(ctx context.Context, f *folder) func(array.Progress) error {
	var told time.Time
	return func(p array.Progress) error {
		if ctx.Err() != nil {
			return errStopped
		}
		s := &StartStatus{Step: p.Step, IOGroup: f.number, Pool: p.Pool}
		if p.Pool != "" {
			s.Collected = &p.Collected
		}
		d.starting.Store(s)
		d.ending.at("the start: " + s.line())
		if p.Pool == "" {
			return nil
		}
		d.showStart(ctx)
		if now := time.Now(); now.Sub(told) >= startTold { // at once, too: who waits for the array learns why
			told = now
			d.log.Info("the start collects garbage, because thick volumes need its space; a signal ends the start", "pool", p.Pool, "pages", p.Collected)
			d.notify(fmt.Sprint("EXTEND_TIMEOUT_USEC=", openingMore.Microseconds()), "STATUS=Recovering the array: "+s.line())
		}
		return nil
	}
}

// showStart has the admin socket answer with the state of a start that takes long.
func (d *daemon) showStart(ctx context.Context) {
	if d.opening != nil {
		return
	}
	d.opening = newOpening(d)
	d.opening.alone, d.opening.canceled = true, ctx.Done()
	d.opening.serve(d.data)
	d.opening.has(d.data)
}
