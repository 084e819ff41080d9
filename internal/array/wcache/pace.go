// When a partition destages: at the pace of the policy's ramp, because it is full, because somebody
// waits, or because it is at rest.

package wcache

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/lab/plug"
)

const (
	// Dirty data that is not pressed for room stays in the cache while its pool is written to: the
	// next write may be to the same place, and hosts want the processor and the mdisks now. It goes
	// out when nothing came for settleTime, which is its period, and after settleMost in any case.
	settleTime = 500_000_000
	settleMost = 30_000_000_000
	paceSlack  = 10_000_000 // what a paced destager may catch up when it was held up
)

// pace is when the next destage is due, where the ramp paces them: the one of bytes began at from.
type pace struct {
	by               policy.Pace
	start            int // in place of by, if above 0: the policy.Threshold, which each destage asks
	from, bytes, due int64
	wake             block.Timer
	wakeAt           int64 // 0: not set
	wakeFn           func()
}

// rest is what a partition at rest does with what is dirty.
type rest struct {
	// settle is the number of pages to destage although the partition is not full: those that were
	// dirty at the last tick, when the newest was of age upTo, and still are.
	settle  int
	upTo    uint32
	written bool  // since the last tick pages became dirty
	since   int64 // since when there is dirty data that no tick let settle
	ticking bool
	tickFn  func()
}

// maxAge is the time after which dirty data goes out however little there is, or after which it is
// looked whether the partition is at rest; 0 is never.
func (c *Cache) maxAge() int64 {
	if r := &c.policy.Ramp; !r.AtRest() {
		return r.MaxAge
	}
	return settleTime
}

// tick lets everything that is dirty now settle on the back end, unless more keeps coming.
func (p *Partition) tick() {
	c, r := p.c, &p.rest
	r.ticking = false
	now := c.exec.Now()
	busy := c.policy.Ramp.AtRest() && r.written && now-r.since < settleMost
	r.written = false
	if !busy {
		r.since, r.settle, r.upTo = now, p.dirty, p.age
	}
	if p.dirty > 0 {
		p.Kick()
	}
	c.hooks.Stepped()
}

// mayDestage reports whether another destage may start now; if only the pace forbids it,
// it sets a timer. waiting says that somebody waits for what a destage frees.
func (p *Partition) mayDestage(waiting bool) bool {
	c := p.c
	p.pace.due = 0
	if c.draining || c.unmirrored {
		return true
	}
	waiting = waiting || c.room.used+layout.PiecePages > c.room.limit
	if start := p.pace.start; start > 0 {
		return waiting || p.Room.used*100 >= p.limit*start || c.room.used*100 >= c.room.limit*start
	}
	rate := p.pace.by.Rate(plug.Fullness{Now: c.exec.Now(), Used: int64(p.Room.used) * layout.PageBytes, Limit: int64(p.limit) * layout.PageBytes,
		CacheUsed: int64(c.room.used) * layout.PageBytes, CacheLimit: int64(c.room.limit) * layout.PageBytes, Waiting: waiting})
	if rate <= 0 {
		return rate < 0
	}
	p.pace.due = p.pace.from + p.pace.bytes*1_000_000_000/rate
	if p.pace.due <= c.exec.Now() {
		return true
	}
	p.wakeAt(p.pace.due)
	return false
}

// wakeAt looks at the partition again at a time, or before.
func (p *Partition) wakeAt(at int64) {
	pc := &p.pace
	if pc.wakeAt == 0 || pc.wakeAt > at {
		if pc.wakeAt != 0 {
			pc.wake.Stop()
		}
		pc.wakeAt = at
		pc.wake = p.c.exec.At(at, pc.wakeFn)
	}
}

func (p *Partition) wakeUp() {
	p.pace.wakeAt = 0
	p.Kick()
	p.c.hooks.Stepped()
}

// paced books a destage of n pages.
func (p *Partition) paced(n int) {
	pc, now := &p.pace, p.c.exec.Now()
	pc.from, pc.bytes = now, int64(n)*layout.PageBytes
	if pc.due != 0 {
		pc.from = max(pc.due, now-paceSlack)
	}
}
