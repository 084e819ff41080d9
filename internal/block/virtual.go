package block

import "container/heap"

// Virtual is an executor in virtual time: an event queue driven by Run. It is
// not safe for concurrent use; Lock and Unlock do nothing. The zero value is
// ready and stands at time 0.
type Virtual struct {
	now    int64
	seq    uint64
	q      eventHeap
	posted []func()
}

type event struct {
	at    int64
	seq   uint64
	fn    func()
	index int
	q     *Virtual
}

// Stop withdraws the event.
func (e *event) Stop() bool {
	if e.index < 0 {
		return false
	}
	heap.Remove(&e.q.q, e.index)
	return true
}

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

// Now returns the virtual time in nanoseconds.
func (v *Virtual) Now() int64 { return v.now }

// At sets fn to run at time t; a time in the past means now.
func (v *Virtual) At(t int64, fn func()) Timer {
	v.seq++
	e := &event{at: max(t, v.now), seq: v.seq, fn: fn, q: v}
	heap.Push(&v.q, e)
	return e
}

// Lock does nothing: virtual time has one thread.
func (v *Virtual) Lock() {}

// Unlock does nothing.
func (v *Virtual) Unlock() {}

// Post queues fn behind what is already posted, ahead of every timer.
func (v *Virtual) Post(fn func()) { v.posted = append(v.posted, fn) }

// Step runs one posted function or the next timer; false means that nothing is left.
func (v *Virtual) Step() bool {
	if len(v.posted) > 0 {
		fn := v.posted[0]
		v.posted[0] = nil
		if v.posted = v.posted[1:]; len(v.posted) == 0 {
			v.posted = nil
		}
		fn()
		return true
	}
	if len(v.q) == 0 {
		return false
	}
	e := heap.Pop(&v.q).(*event)
	v.now = e.at
	e.fn()
	return true
}

// Run steps until nothing is left.
func (v *Virtual) Run() {
	for v.Step() {
	}
}

// RunUntil steps until the time t has come, and leaves the clock there.
func (v *Virtual) RunUntil(t int64) {
	for len(v.posted) > 0 || len(v.q) > 0 && v.q[0].at <= t {
		v.Step()
	}
	v.now = max(v.now, t)
}
