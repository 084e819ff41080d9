package cachedaemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// A stop, or a start that was told to stop, does not wait for ever for a LUN that does not answer. Its commands end after a
// minute, and are sent again.
const (
	lookEvery   = time.Second
	silentLooks = 75 // without progress
	// heldLooks without an answer, one behind the other, say that somebody holds the executor: one may be late on a busy machine.
	heldLooks = 5
	// lookPatience is for how long a look waits for the executor.
	lookPatience = lookEvery / 20
	// lastPatience is for how long files and sessions may take to close that nobody waits for any more.
	lastPatience = time.Second
)

// errHangs is the error of a daemon that has ended without all of its stop, because something does not answer.
var errHangs = errors.New("the stop did not end")

// started waits for the end of a start, which a signal ends when it does not end soon, and a second one at once.
func (d *daemon) started(ctx context.Context, opened <-chan error) (err error, ended bool) {
	var late <-chan time.Time
	stop := ctx.Done()
	for {
		select {
		case err := <-opened:
			return err, true
		case <-stop:
			stop, late = nil, time.After(silentLooks*lookEvery)
		case <-late:
			return fmt.Errorf("%w: the LUN, a peer or the flash does not answer the start; what is dirty stays on the flash", errHangs), false
		case <-d.hurry:
			return errors.New("the start was stopped at once; what is dirty stays on the flash"), false
		}
	}
}

// stop destages what is dirty; a second signal leaves it on flash.
func (d *daemon) stop() error {
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() { // whoever holds the executor may never let go of it
		defer close(begun)
		st := d.locked(d.disk.State)
		if st.DirtySectors > 0 {
			d.log.Info("destaging; a second signal stops at once and keeps the rest on the flash", "bytes", st.DirtySectors<<block.SectorShift, "estimate", time.Duration(st.TimeToDestage))
		}
		d.exec.Lock()
		defer d.exec.Unlock()
		d.disk.Close(false, func(err error) { done <- err })
	}()
	select {
	case <-begun:
	case <-time.After(lastPatience):
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	return d.closed(done, look.C)
}

// progress is what changes while a stop gets on.
type progress struct {
	name            string // of the LUN below
	dirty, destaged uint64
}

// closed waits until the cache is closed, as long as it makes progress at one of many looks, or until a second signal.
func (d *daemon) closed(done <-chan error, look <-chan time.Time) error {
	var last progress
	silent, unanswered := 0, 0
	var told <-chan progress // of a look that has not ended: while it is held up no other one begins
	for {
		select {
		case err := <-done:
			if err == nil {
				d.release()
			}
			return err
		case <-d.hurry:
			d.log.Warn("dirty data stays on the flash; the next start with it continues")
			return nil
		case <-look:
		}
		silent++
		now := last
		if told == nil {
			told = d.progress()
		}
		select {
		case now = <-told:
			told, unanswered = nil, 0
		case <-d.hurry:
			continue
		case <-time.After(lookPatience):
			unanswered++
		}
		if now != last {
			last, silent = now, 0
		}
		switch {
		case silent < silentLooks:
		case unanswered > 0 && unanswered < heldLooks: // the answer that is late may tell of progress
		case unanswered >= heldLooks:
			return fmt.Errorf("%w: the cache's executor is held for %v; what is dirty stays on the flash, and the next start with it continues",
				errHangs, time.Duration(unanswered)*lookEvery)
		case now.dirty > 0:
			return fmt.Errorf("%w: %s takes no writes for %v; %d bytes of dirty data stay on the flash, and the next start with it continues",
				errHangs, now.name, silentLooks*lookEvery, now.dirty<<block.SectorShift)
		default:
			return fmt.Errorf("%w: %s, the flash or the witness does not answer for %v; nothing dirty is left on the flash", errHangs, now.name, silentLooks*lookEvery)
		}
	}
}

// progress returns a channel that says how far the stop is, once the executor is free.
func (d *daemon) progress() <-chan progress {
	said := make(chan progress, 1)
	go func() {
		d.exec.Lock()
		defer d.exec.Unlock()
		said <- progress{d.below.Info().Name, d.disk.State().DirtySectors, d.disk.Stats().DestagedSectors}
	}()
	return said
}

// letGo closes files and sessions, the last one first. One that hangs holds up an end at once only for a moment.
func (d *daemon) letGo() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := len(d.closers) - 1; i >= 0; i-- {
			d.closers[i]()
		}
	}()
	select {
	case <-ended:
		return
	case <-d.hurry:
	case <-time.After(closeTimeout):
	}
	select {
	case <-ended:
	case <-time.After(lastPatience):
		d.log.Warn("files or sessions do not close, and the process ends without that")
	}
}

// unhurried returns a context that ends after a time, or with a second signal.
func (d *daemon) unhurried(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	go func() {
		select {
		case <-d.hurry:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
