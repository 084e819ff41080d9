package link

import (
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// handClock is an executor whose clock the test moves: how long a machine takes for what happens in between says nothing.
type handClock struct {
	*block.Live
	time int64        // guarded by the executor, as all here
	set  []*handTimer // all timers that were ever set
}

// handTimer is a timer of a handClock.
type handTimer struct {
	at int64
	fn func() // nil: it is over
}

// Now is the time that has passed by the test's word.
func (c *handClock) Now() int64 { return c.time }

// At sets a timer.
func (c *handClock) At(at int64, fn func()) block.Timer {
	t := &handTimer{at, fn}
	c.set = append(c.set, t)
	return t
}

// Stop implements block.Timer.
func (t *handTimer) Stop() bool {
	pending := t.fn != nil
	t.fn = nil
	return pending
}

// timers is how many timers were set so far.
func (c *handClock) timers() int {
	c.Lock()
	defer c.Unlock()
	return len(c.set)
}

// pass lets time pass, and runs what is due then.
func (c *handClock) pass(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.time += int64(d)
	for _, t := range c.set {
		if fn := t.fn; fn != nil && t.at <= c.time {
			t.fn = nil
			fn()
		}
	}
}

// handTime is the time of an owner's clock of stamps, which the test moves.
type handTime struct{ at atomic.Int64 }

func (h *handTime) clock() *clock { return newClockOf(h.at.Load, h.at.Load) }

// pass moves the clock, by less than what it takes for a jump.
func (h *handTime) pass(d time.Duration) { h.at.Add(int64(d)) }
