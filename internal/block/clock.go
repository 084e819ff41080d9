package block

import (
	"math"
	"sync"
	"time"
)

// ticker is a clock that asks the kernel for the time. Where that is a system call (User Mode Linux,
// clock sources that the kernel does not let processes read), it asks rarely, and counts the
// processor's ticks in between. It never goes back, and may be used from any goroutine.
//
// What the counter says counts for lookEvery at a time. One that was set, as when a machine moves, or processors
// whose counters differ, cause another look at the kernel's clock, or a few ms that the clock goes too
// fast or too slowly.
type ticker struct {
	start time.Time
	dear  bool // ticks are counted; constant

	kernel  func() int64  // ns since start
	counter func() uint64 // ticks

	mu   sync.Mutex
	last int64 // guarded by mu: what read has returned

	// The last look, and for how many ticks they are counted from there.
	at    int64  // guarded by mu; ns
	tick  uint64 // guarded by mu
	limit uint64 // guarded by mu

	// The rate is that of the looks since from, and sure if it was the same, nearly, before.
	fromAt   int64   // guarded by mu; ns
	fromTick uint64  // guarded by mu
	rate     float64 // guarded by mu; ns a tick
	sure     bool    // guarded by mu
}

const (
	// lookEvery is how often the kernel's clock is looked at, in ns.
	lookEvery = 1_000_000
	// The rate is that of an interval between two looks of at least rateLeast, in ns; a new one
	// begins after rateMost. Two rates are the same if they differ by less than a part of rateSlack.
	rateLeast = 2_000_000
	rateMost  = 1_000_000_000
	rateSlack = 64
	// A rate of less than fastest, or more than slowest, in ns a tick, is none: the counter was set.
	fastest, slowest = 0.1, 10
	// lookMost is how long a look may take. Who was interrupted in one does not know when it was.
	lookMost = lookEvery / 8
	// dearClock is from how many ns on to read the kernel's clock is dear.
	dearClock = 500
)

func newTicker() *ticker {
	t := &ticker{start: time.Now(), counter: ticks}
	t.kernel = func() int64 { return int64(time.Since(t.start)) }
	t.dear = ticksSteady() && clockCost() >= dearClock
	return t
}

// clockCost returns how many ns it takes to read the kernel's clock.
func clockCost() int64 {
	least := int64(1 << 62)
	before := time.Now()
	for range 8 {
		now := time.Now()
		least = min(least, int64(now.Sub(before)))
		before = now
	}
	return least
}

// read returns the ns since the ticker was made.
func (t *ticker) read() int64 {
	if !t.dear {
		return t.kernel()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if past := t.counter() - t.tick; past < t.limit { // of a counter that went back it is far above
		t.last = max(t.last, t.at+int64(float64(past)*t.rate))
		return t.last
	}
	t.look()
	return t.last
}

// look reads the kernel's clock. Preconditions: mu is held.
func (t *ticker) look() {
	before := t.counter()
	t.at, t.tick, t.limit = t.kernel(), t.counter(), 0
	t.last = max(t.last, t.at)
	t.measure()
	if t.sure && float64(t.tick-before)*t.rate < lookMost {
		t.limit = uint64(lookEvery / t.rate)
	}
}

// measure compares the two clocks since an earlier look. Preconditions: mu is held.
func (t *ticker) measure() {
	ns, n := t.at-t.fromAt, int64(t.tick-t.fromTick)
	switch {
	case t.fromTick == 0 || n <= 0:
		t.rate, t.sure = 0, false
	case ns < rateLeast:
		return
	default:
		was := t.rate
		t.rate = float64(ns) / float64(n)
		t.sure = math.Abs(t.rate-was) < was/rateSlack && t.rate > fastest && t.rate < slowest
		if t.sure && ns < rateMost {
			return
		}
	}
	t.fromAt, t.fromTick = t.at, t.tick
}
