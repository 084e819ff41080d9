package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
)

// Limits of a stop. A thread that waits for a disk in the kernel cannot be ended, and a handler that is stuck holds its executor:
// without limits a daemon that is told to end would wait for them for ever, and say nothing.
const (
	// stopLimit is how long a stop may take in all. Systemd kills the process after TimeoutStopSec=300s.
	stopLimit = 270 * time.Second
	// stepLimit is how long a step of it may be without progress: more than the minute after which a store gives up a disk, and
	// says which one.
	stepLimit = 75 * time.Second
	// destageLimit is how long a stop destages, even with progress. The rest stays in NVRAM, which loses nothing.
	destageLimit = 150 * time.Second
	// hurryLimit is how long the process lives after a second signal.
	hurryLimit = 5 * time.Second
	// askLimit is how long who asks for names waits for an executor.
	askLimit = time.Second
)

// ErrHangs is the error of a daemon that has ended without all of its stop, because something hangs.
var ErrHangs = errors.New("the stop did not end")

// ending is how far a daemon is that ends. Safe for concurrent use.
type ending struct {
	stop, step, destage, hurry time.Duration // the limits

	begun chan struct{}
	once  sync.Once // of begun

	mu    sync.Mutex
	what  string    // it is at; guarded by mu
	since time.Time // of its last progress; guarded by mu
}

func newEnding() *ending {
	return &ending{stop: stopLimit, step: stepLimit, destage: destageLimit, hurry: hurryLimit, begun: make(chan struct{}), what: "the start", since: time.Now()}
}

// begin says that the daemon ends, whoever has told it to.
func (e *ending) begin() { e.once.Do(func() { close(e.begun) }) }

// at says what the daemon is at, or that this makes progress.
func (e *ending) at(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.what, e.since = what, time.Now()
}

// now returns what the daemon is at, and since when without progress.
func (e *ending) now() (what string, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.what, e.since
}

// run is work that ends in time once ctx does, or the daemon by itself, whatever hangs: then the error is ErrHangs, and the
// process has to end, too.
func (d *daemon) run(ctx context.Context) error {
	end := make(chan error, 1)
	go func() { end <- d.work(ctx) }()
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
	case <-d.ending.begun:
	}
	return d.await(end)
}

// await waits for the end of a stop, which begins, as long as its limits are.
func (d *daemon) await(end <-chan error) error {
	e := d.ending
	what, _ := e.now()
	e.at(what) // however long it has been at this: it knows only now
	begun, hurry, hurried := time.Now(), d.env.Hurry, time.Time{}
	t := time.NewTicker(min(time.Second, e.step/4))
	defer t.Stop()
	for {
		select {
		case err := <-end:
			return err
		case <-hurry:
			hurry, hurried = nil, time.Now()
		case now := <-t.C:
			what, since := e.now()
			still := now.Sub(since)
			switch {
			case !hurried.IsZero() && now.Sub(hurried) >= e.hurry:
				return d.hangs(what, fmt.Sprintf("%v after the second signal it is still at %s", e.hurry, what), still)
			case still >= e.step:
				return d.hangs(what, fmt.Sprintf("no progress of %s for %v", what, still.Round(time.Second)), still)
			case now.Sub(begun) >= e.stop:
				return d.hangs(what, fmt.Sprintf("after its limit of %v it is still at %s", e.stop, what), still)
			}
		}
	}
}

// hangs says in one line what the end of a daemon waits for, and returns the error with the reason. It waits for nothing, not
// even for the log's reader.
func (d *daemon) hangs(what, why string, since time.Duration) error {
	names := strings.Join(d.waitsFor(), "; ")
	if names == "" {
		names = "the kernel, or a disk of the data folder"
	}
	said := make(chan struct{})
	go func() {
		d.log.Error("the stop does not end, and the process ends without it", "at", what, "after", since.Round(time.Second), "waits_for", names)
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(linesPatience):
	}
	return fmt.Errorf("%w: %s; it waits for: %s; what was acknowledged is in NVRAM or on the mdisks, but not all of it was flushed to the disks",
		ErrHangs, why, names)
}

// waitsFor names what has commands in progress, or does not answer: sessions, volumes, mdisks, executors. It waits for none of
// them.
func (d *daemon) waitsFor() (names []string) {
	if f := d.front.Load(); f != nil {
		names = append(names, f.busy()...)
	}
	if !d.opened.Load() {
		return names
	}
	lines := make([][]string, len(d.groups))
	_ = d.beside(func(g *ioGroup) error { // no error comes of it
		var ok bool
		if lines[g.number], ok = soon(g.waitsFor); !ok {
			lines[g.number] = []string{fmt.Sprintf("I/O group %d, whose executor is held", g.number)}
		}
		return nil
	})
	return slices.Concat(names, slices.Concat(lines...))
}

// soon returns what a function that needs an executor returns, if that comes soon.
func soon[T any](fn func() T) (answer T, ok bool) {
	got := make(chan T, 1)
	go func() { got <- fn() }()
	select {
	case answer = <-got:
		return answer, true
	case <-time.After(askLimit):
		return answer, false
	}
}

// waitsFor names the group's volumes with commands in progress, and what fails below.
func (g *ioGroup) waitsFor() (lines []string) {
	g.exec.Lock()
	defer g.exec.Unlock()
	var shot metrics.Snapshot
	shot.Take(0, &sync.Mutex{}, g.target) // the executor is held
	shot.Each(func(f *metrics.Family, labels []string, n float64, _ *metrics.Histogram) {
		if f != metrics.HostQueueDepth || n == 0 {
			return
		}
		name, luns := labels[0], ""
		if v := g.array.Volume(name); v != nil {
			for _, e := range g.exports.list(v) {
				luns += fmt.Sprintf(", LUN %d", e.LUN)
			}
		}
		lines = append(lines, fmt.Sprintf("volume %s%s: %.0f commands in progress", name, luns, n))
	})
	return append(lines, g.array.Health()...)
}

// busy names the sessions with commands in progress.
func (f *front) busy() (names []string) {
	for _, s := range f.portal.Sessions() {
		if s.Busy > 0 {
			names = append(names, fmt.Sprintf("session of %s from %s: %d commands in progress", s.Initiator, s.Address, s.Busy))
		}
	}
	return names
}

// stopArrays has all arrays write their last checkpoints.
func (d *daemon) stopArrays() error {
	end := make(chan error, 1)
	go func() { end <- d.beside(func(g *ioGroup) error { return g.await(g.array.Stop) }) }()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	return d.ending.goesOn("the array's last checkpoint, and the flush of NVRAM", end, look.C, func() (n uint64) {
		for _, g := range d.groups {
			g.exec.Lock()
			n += g.array.Ended()
			g.exec.Unlock()
		}
		return n
	})
}

// goesOn waits for the end of a step. Where a look finds another number of what has ended, the step makes progress, however
// long it takes. While a look is held up by an executor no other one begins: they would pile up.
func (e *ending) goesOn(what string, end <-chan error, look <-chan time.Time, ended func() uint64) error {
	e.at(what)
	var last uint64
	var looked chan uint64 // of a look that has not ended
	for {
		select {
		case err := <-end:
			return err
		case <-look:
			if looked == nil {
				looked = make(chan uint64, 1)
				go func() { looked <- ended() }()
			}
			select {
			case n := <-looked:
				if looked = nil; n != last {
					last = n
					e.at(what)
				}
			case <-time.After(askLimit):
			}
		}
	}
}

// drainPatience is for how long a stop waits while nothing can be destaged, as in a pool that is full.
const drainPatience = time.Minute

// drain destages what is dirty, and says how far it is. When nothing gets there any more, or it takes too long, the rest
// stays in NVRAM.
func (d *daemon) drain() {
	begun := time.Now()
	d.ending.at("destaging")
	drained := make(chan error, 1)
	go func() {
		drained <- d.beside(func(g *ioGroup) error {
			return g.await(func(done func(error)) { g.array.Drain(func() { done(nil) }) })
		})
	}()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	var least Size
	var since time.Time
	for {
		select {
		case <-drained:
			return
		case <-t.C:
			left := d.dirty()
			d.notify("STATUS=Destaging, " + left.Human() + " left")
			if since.IsZero() || left < least {
				least, since = left, time.Now()
				d.ending.at("destaging")
			}
			switch {
			case time.Since(since) >= drainPatience:
				d.log.Warn("nothing can be destaged; dirty data stays in NVRAM, where the next start finds it", "left", left.Human(),
					"waits_for", strings.Join(d.waitsFor(), "; "))
				return
			case time.Since(begun) >= d.ending.destage:
				d.log.Warn("the stop destages no longer; dirty data stays in NVRAM, where the next start finds it", "left", left.Human())
				return
			}
			d.log.Info("destaging; a second signal stops at once and keeps the rest in NVRAM", "left", left.Human())
		}
	}
}
