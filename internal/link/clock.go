package link

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// clock is the owner's clock of stamps. It goes on while the machine sleeps (CLOCK_BOOTTIME), so that what waited in a socket
// meanwhile is found old. While a hypervisor pauses a guest, that clock stands still as well: the time of the day tells, once
// somebody has set it. So a jump of one against the other makes all stamps before it old. Its methods may be called from any
// goroutine.
type clock struct {
	boot, wall func() int64 // in nanoseconds
	began      int64
	apart      atomic.Int64  // wall less boot, at the last look
	floor      atomic.Uint64 // stamps before that are old
}

// jumpTime is by how much both clocks may move apart between two looks, which are a ping apart at most.
const jumpTime = int64(time.Second)

func newClock() *clock {
	return newClockOf(sinceBoot, func() int64 { return time.Now().UnixNano() })
}

func newClockOf(boot, wall func() int64) *clock {
	at := boot()
	c := &clock{boot: boot, wall: wall, began: at - 1}
	c.apart.Store(wall() - at)
	return c
}

// now returns nanoseconds since shortly before the clock was made: no stamp is 0 (revoked).
func (c *clock) now() uint64 {
	at := c.boot()
	now, apart := uint64(at-c.began), c.wall()-at
	if d := apart - c.apart.Swap(apart); d > jumpTime || d < -jumpTime {
		for old := c.floor.Load(); old < now && !c.floor.CompareAndSwap(old, now); old = c.floor.Load() {
		}
	}
	return now
}

// old reports whether a stamp is older than limit, or from before a jump; ahead that it is yet to come.
func (c *clock) old(stamp uint64, limit time.Duration) (old, ahead bool) {
	now := c.now()
	if stamp > now {
		return true, true
	}
	return now-stamp > uint64(limit) || stamp < c.floor.Load(), false
}

// sinceBoot is nanoseconds since the machine has started, those that it has slept as well.
func sinceBoot() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return time.Now().UnixNano() // no kernel of today is without it
	}
	return t.Nano()
}
