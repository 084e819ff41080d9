package block

import (
	"container/heap"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Live is the daemon's executor: a lock around the core, the wall clock, and one
// goroutine that runs timers and posted functions.
//
// A front end enters with Lock, submits all that it has ready, and leaves with
// Unlock; functions posted meanwhile are run by whoever leaves, so that a
// completion costs no change of goroutine. So is what is to be done beside the core (Aside), in which
// goroutines of the executor take part where it is much.
//
// Time stands still for who holds it: the clock is read once after the executor was entered, and
// once more in each round of functions that were posted. Where that is a system call (User Mode
// Linux, clock sources that the kernel does not let processes read) it is most of what a short
// command costs.
type Live struct {
	mu sync.Mutex // serialises the core
	// now is 0 while nobody holds mu. Else it is what Now says, or below 0, another number each time: it
	// is to be read. It becomes 0, and below 0, by the holder alone.
	now    atomic.Int64
	unread int64 // guarded by mu: the last number below 0

	postMu sync.Mutex // guards posted; never held while the core runs
	posted []func()
	spare  []func()
	npost  atomic.Int32

	beside beside
	crowd  atomic.Int32 // how often the core is left until nobody else is expected to want it

	clock  *ticker
	timers eventHeap // guarded by mu
	seq    uint64
	wake   chan struct{}
	quit   chan struct{}
	done   chan struct{}

	helpers sync.WaitGroup
}

// NewLive starts an executor; Stop ends it.
func NewLive() *Live {
	l := &Live{clock: newTicker(), wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	l.beside.wake = make(chan struct{}, max(runtime.GOMAXPROCS(0)-2, 0))
	for range cap(l.beside.wake) {
		l.helpers.Go(l.help)
	}
	go l.loop()
	return l
}

// Now returns nanoseconds since the executor started (monotonic). To the holder it is the same until
// what was posted runs. Others, who may be told what the holder is, get a time that may lie as far
// back as the executor has been held.
func (l *Live) Now() int64 {
	at := l.now.Load()
	if at > 0 {
		return at
	}
	now := max(1, l.clock.read())
	if at < 0 && !l.now.CompareAndSwap(at, now) {
		// Somebody else has read it, or the hold is over: what that one says counts.
		if at = l.now.Load(); at > 0 {
			return at
		}
	}
	return now
}

// tick has the next Now read the clock. Preconditions: the executor is held.
func (l *Live) tick() {
	l.unread--
	l.now.Store(l.unread)
}

// Tick has a clock whose time stands still during a hold go on: for who has worked for long in one.
// Preconditions: the executor is held, else it panics: whoever works for long without it races with the executor.
func Tick(c Clock) {
	l, ok := c.(*Live)
	if !ok {
		return
	}
	if l.now.Load() == 0 {
		panic("block: internal error: Tick by somebody who does not hold the executor")
	}
	l.tick()
}

// At sets a timer. Preconditions: the executor is held.
func (l *Live) At(t int64, fn func()) Timer {
	l.seq++
	e := &event{at: t, seq: l.seq, fn: fn}
	heap.Push(&l.timers, e)
	if e.index == 0 {
		l.kick()
	}
	return liveTimer{l, e}
}

type liveTimer struct {
	l *Live
	e *event
}

// Stop withdraws the call. Preconditions: the executor is held.
func (t liveTimer) Stop() bool {
	if t.e.index < 0 {
		return false
	}
	heap.Remove(&t.l.timers, t.e.index)
	return true
}

// crowdSteps is how often the core is left, after somebody found it taken, before nobody is expected
// any more to want it at the same time.
const crowdSteps = 64

// Lock enters the core.
func (l *Live) Lock() {
	if !l.mu.TryLock() {
		l.crowd.Store(crowdSteps)
		l.mu.Lock()
	}
	l.tick()
}

// Crowded reports whether somebody found the core taken lately.
func (l *Live) Crowded() bool { return l.crowd.Load() > 0 }

// Whoever leaves has answers to send: he goes back into the core unlockRounds times for what was done
// beside it, and does extraPieces more there than he left. The rest the executor's goroutine does, which
// looks at its timers behind loopPieces of them.
const (
	unlockRounds = 4
	extraPieces  = 2
	loopPieces   = 16
)

// Unlock runs what was posted, leaves the core, and does what is to be done beside it.
func (l *Live) Unlock() {
	for round := 0; ; round++ {
		l.beside.work(l, l.leave()+extraPieces)
		// What another goroutine has posted between drain and Unlock found the lock taken: whoever leaves
		// must look once more. Where it is taken now that is somebody else.
		if l.npost.Load() == 0 || round < unlockRounds && !l.mu.TryLock() {
			break
		}
		if round == unlockRounds {
			l.kick()
			return
		}
	}
	if l.beside.left.Load() > 0 {
		l.kick()
	}
}

// leave runs what was posted and leaves the core; what is to be done beside it may be begun then. It
// returns how many pieces these are.
func (l *Live) leave() (pieces int) {
	l.drain()
	pieces = l.beside.publish()
	if l.crowd.Load() > 0 {
		l.crowd.Add(-1)
	}
	l.now.Store(0)
	l.mu.Unlock()
	return pieces
}

// Post queues fn; see [Executor].
func (l *Live) Post(fn func()) {
	l.queue(fn)
	if l.mu.TryLock() {
		l.Unlock()
	}
}

func (l *Live) queue(fn func()) {
	l.postMu.Lock()
	l.posted = append(l.posted, fn)
	l.npost.Store(int32(len(l.posted)))
	l.postMu.Unlock()
}

// drain runs what was posted, which for the most part tells others of an end.
func (l *Live) drain() {
	for l.npost.Load() > 0 {
		l.tick()
		l.postMu.Lock()
		run := l.posted
		l.posted = l.spare[:0]
		l.npost.Store(0)
		l.postMu.Unlock()
		for i, fn := range run {
			fn()
			run[i] = nil
		}
		l.spare = run[:0]
	}
}

func (l *Live) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Live) loop() {
	defer close(l.done)
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		l.mu.Lock() // timers are no crowd
		l.tick()
		l.runTimers()
		l.drain()
		wait := time.Hour
		if len(l.timers) > 0 {
			l.tick() // all that was run may have taken its time
			wait = time.Duration(l.timers[0].at - l.Now())
		}
		l.leave()
		l.beside.work(l, loopPieces)
		if l.npost.Load() > 0 || l.beside.left.Load() > 0 {
			continue
		}
		t.Reset(max(wait, 0))
		select {
		case <-t.C:
		case <-l.wake:
		case <-l.quit:
			return
		}
	}
}

// runTimers runs what is due. What a timer sets for now is left for the next look, so that others get
// the executor in between. Preconditions: it is held.
func (l *Live) runTimers() {
	now, last := l.Now(), l.seq
	for len(l.timers) > 0 && l.timers[0].at <= now && l.timers[0].seq <= last {
		heap.Pop(&l.timers).(*event).fn()
	}
}

// Stop ends the executor's goroutine; timers that are pending never fire.
// Preconditions: the executor is not held.
func (l *Live) Stop() {
	close(l.quit)
	<-l.done
	l.helpers.Wait()
}

type event struct {
	at    int64
	seq   uint64
	fn    func()
	index int
}

// eventHeap orders events by time, and equal times by when they were set.
type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index = i; h[j].index = j }
func (h *eventHeap) Push(x any)   { e := x.(*event); e.index = len(*h); *h = append(*h, e) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
