package block

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// Live is the daemon's executor: a lock around the core, the wall clock, and one
// goroutine that runs timers and posted functions.
//
// A front end enters with Lock, submits all that it has ready, and leaves with
// Unlock; functions posted meanwhile are run by whoever leaves, so that a
// completion costs no change of goroutine.
type Live struct {
	mu sync.Mutex // serialises the core

	postMu sync.Mutex // guards posted; never held while the core runs
	posted []func()
	spare  []func()
	npost  atomic.Int32

	start  time.Time
	timers eventHeap // guarded by mu
	seq    uint64
	wake   chan struct{}
	quit   chan struct{}
	done   chan struct{}
}

// NewLive starts an executor; Stop ends it.
func NewLive() *Live {
	l := &Live{start: time.Now(), wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go l.loop()
	return l
}

// Now returns nanoseconds since the executor started (monotonic).
func (l *Live) Now() int64 { return int64(time.Since(l.start)) }

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

// Lock enters the core.
func (l *Live) Lock() { l.mu.Lock() }

// Unlock runs what was posted and leaves the core.
func (l *Live) Unlock() {
	l.drain()
	l.mu.Unlock()
	// A function posted by another goroutine between drain and Unlock found the
	// lock taken; whoever leaves must look once more.
	if l.npost.Load() > 0 {
		l.kick()
	}
}

// Post queues fn; see [Executor].
func (l *Live) Post(fn func()) {
	l.postMu.Lock()
	l.posted = append(l.posted, fn)
	l.npost.Store(int32(len(l.posted)))
	l.postMu.Unlock()
	if l.mu.TryLock() {
		l.Unlock()
	}
}

func (l *Live) drain() {
	for l.npost.Load() > 0 {
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
		l.mu.Lock()
		now := l.Now()
		for len(l.timers) > 0 && l.timers[0].at <= now {
			heap.Pop(&l.timers).(*event).fn()
		}
		l.drain()
		wait := time.Hour
		if len(l.timers) > 0 {
			wait = time.Duration(l.timers[0].at - l.Now())
		}
		l.mu.Unlock()
		if l.npost.Load() > 0 {
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

// Stop ends the executor's goroutine; timers that are pending never fire.
// Preconditions: the executor is not held.
func (l *Live) Stop() {
	close(l.quit)
	<-l.done
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
