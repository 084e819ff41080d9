package block

import (
	"math"
	"math/bits"
)

// Virtual is an executor in virtual time: an event queue driven by Run. It is
// not safe for concurrent use; Lock and Unlock do nothing. The zero value is
// ready and stands at time 0.
//
// Events live in slots that are reused, ordered by a 4-ary heap of plain numbers, and in lanes (see
// Lane): setting and running one allocates nothing in the steady state.
type Virtual struct {
	now   int64
	seq   uint64
	heap  []entry
	lanes lanes
	slots []slot
	free  []uint32 // slots without an event
	dead  int      // entries of the heap whose event was stopped
	// hole: the top of the heap is the event that runs now. The first one that it sets takes its place,
	// which spares the heap to be put in order twice.
	hole  bool
	spare []timer // timers that At has not handed out yet

	// Late, unless it is nil, says after how many nanoseconds work beside the executor (Aside) begins, and
	// after how many more the executor hears of its end.
	Late func() int64

	posted    []func() // a ring of a power of two
	postHead  int
	postCount int
}

// entry is an event's place in the order: seq makes equal times first in, first out.
type entry struct {
	at   int64
	seq  uint64
	slot uint32
}

// before is 1 if e comes before o, 0 otherwise. Times are not negative. It has no branches: the
// processor could only guess which of two events is earlier.
func (e *entry) before(o *entry) int {
	_, less := bits.Sub64(e.seq, o.seq, 0)
	_, less = bits.Sub64(uint64(e.at), uint64(o.at), less)
	return int(less)
}

type slot struct {
	seq uint64 // of the event, 0 if the slot is free
	fn  func()
}

// timer is what At returns. Its slot may serve another event by the time that
// Stop is called: the sequence number tells.
type timer struct {
	v    *Virtual
	seq  uint64
	slot uint32
}

// Stop withdraws the event.
func (t *timer) Stop() bool {
	v := t.v
	if v.slots[t.slot].seq != t.seq {
		return false
	}
	// The entry stays in the heap until it comes up or there are too many like it.
	v.release(t.slot)
	if v.dead++; v.dead > 1024 && v.dead > len(v.heap)/2 {
		v.compact()
	}
	return true
}

// Aside has work called, and then done, each some time later. Preconditions: Late is not nil.
func (v *Virtual) Aside(_ uint64, work, done func()) {
	v.Call(v.now+v.Late(), func() {
		work()
		v.Call(v.now+v.Late(), done)
	})
}

// Long and Crowded report whether Late is there: then all that may be done beside the executor is.
func (v *Virtual) Long(uint64) bool { return v.Late != nil }

// Crowded is Long.
func (v *Virtual) Crowded() bool { return v.Late != nil }

// Now returns the virtual time in nanoseconds.
func (v *Virtual) Now() int64 { return v.now }

// At sets fn to run at time t; a time in the past means now.
func (v *Virtual) At(t int64, fn func()) Timer {
	if len(v.spare) == 0 {
		v.spare = make([]timer, 128)
	}
	h := &v.spare[0]
	v.spare = v.spare[1:]
	*h = timer{v: v, slot: v.set(t, fn), seq: v.seq}
	return h
}

// Call is At for a call that is never withdrawn; it allocates nothing.
func (v *Virtual) Call(t int64, fn func()) { v.set(t, fn) }

// CallIn is Call of one of those that belong to a lane.
func (v *Virtual) CallIn(lane Lane, t int64, fn func()) {
	t = max(t, v.now)
	if t-v.now < laneSpan && v.lanes.put(lane, keyOf(t, v.seq+1), fn) {
		v.seq++
		return
	}
	v.set(t, fn)
}

// Call sets fn to run at time t on a clock, without a timer where the clock can.
func Call(c Clock, t int64, fn func()) {
	if v, ok := c.(*Virtual); ok {
		v.set(t, fn)
		return
	}
	c.At(t, fn)
}

// CallIn is Call of one of those that belong to a lane, where the clock has lanes.
func CallIn(c Clock, lane Lane, t int64, fn func()) {
	if v, ok := c.(*Virtual); ok {
		v.CallIn(lane, t, fn)
		return
	}
	c.At(t, fn)
}

func (v *Virtual) set(t int64, fn func()) uint32 {
	v.seq++
	var i uint32
	if n := len(v.free); n > 0 {
		i = v.free[n-1]
		v.free = v.free[:n-1]
	} else {
		i = uint32(len(v.slots))
		v.slots = append(v.slots, slot{})
	}
	v.slots[i] = slot{seq: v.seq, fn: fn}
	e := entry{at: max(t, v.now), seq: v.seq, slot: i}
	if v.hole {
		v.hole = false
		v.down(0, e)
	} else {
		v.push(e)
	}
	return i
}

func (v *Virtual) release(i uint32) {
	v.slots[i] = slot{}
	v.free = append(v.free, i)
}

func (v *Virtual) push(e entry) {
	h := append(v.heap, e)
	v.heap = h
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if e.before(&h[up]) == 0 {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
}

// pop drops the top of the heap.
func (v *Virtual) pop() {
	h := v.heap
	n := len(h) - 1
	e := h[n]
	v.heap = h[:n]
	if n > 0 {
		v.down(0, e)
	}
}

// fill ends that the top of the heap is a hole.
func (v *Virtual) fill() {
	if v.hole {
		v.hole = false
		v.pop()
	}
}

// down puts e at i or below, where its place is.
func (v *Virtual) down(i int, e entry) {
	h := v.heap
	n := len(h)
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		if c := h[first:]; len(c) >= 4 {
			a, b := c[1].before(&c[0]), 2+c[3].before(&c[2])
			least += a + (b-a)*c[b&3].before(&c[a&3])
		} else {
			for i := 1; i < len(c); i++ {
				if c[i].before(&h[least]) != 0 {
					least = first + i
				}
			}
		}
		if h[least].before(&e) == 0 {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}

// compact drops the entries of stopped events.
func (v *Virtual) compact() {
	v.fill()
	kept := v.heap[:0]
	for _, e := range v.heap {
		if v.slots[e.slot].seq == e.seq {
			kept = append(kept, e)
		}
	}
	v.heap, v.dead = kept, 0
	for i := (len(kept) - 2) / 4; i >= 0 && len(kept) > 1; i-- {
		v.down(i, kept[i])
	}
}

// top puts the first event of the heap into the lanes' heads, behind those that were stopped.
func (v *Virtual) top() {
	v.fill()
	h := &v.lanes.heads[ofHeap]
	for len(v.heap) > 0 {
		e := &v.heap[0]
		if v.slots[e.slot].seq == e.seq {
			*h = keyOf(e.at, e.seq)
			return
		}
		v.pop()
		v.dead--
	}
	*h = key{}
}

// Next returns the time of the next timer; false means that there is none.
func (v *Virtual) Next() (int64, bool) {
	v.top()
	k := &v.lanes.heads[v.lanes.first()]
	if k.left == 0 {
		return 0, false
	}
	return k.at(), true
}

// Due tells whether anything is left to run until the time t: a posted function or a timer.
func (v *Virtual) Due(t int64) bool {
	if v.postCount > 0 {
		return true
	}
	at, ok := v.Next()
	return ok && at <= t
}

// Lock does nothing: virtual time has one thread.
func (v *Virtual) Lock() {}

// Unlock does nothing.
func (v *Virtual) Unlock() {}

// Post queues fn behind what is already posted, ahead of every timer.
func (v *Virtual) Post(fn func()) {
	if v.postCount == len(v.posted) {
		ring := make([]func(), max(16, 2*len(v.posted)))
		n := copy(ring, v.posted[v.postHead:])
		copy(ring[n:], v.posted[:v.postHead])
		v.posted, v.postHead = ring, 0
	}
	v.posted[(v.postHead+v.postCount)&(len(v.posted)-1)] = fn
	v.postCount++
}

// Step runs one posted function or the next timer; false means that nothing is left.
func (v *Virtual) Step() bool { return v.StepUntil(math.MaxInt64) }

// StepUntil runs one posted function, or the next timer if it is due at the time t; false means that
// nothing is left to run until then.
func (v *Virtual) StepUntil(t int64) bool {
	if v.postCount > 0 {
		fn := v.posted[v.postHead]
		v.posted[v.postHead] = nil
		v.postHead = (v.postHead + 1) & (len(v.posted) - 1)
		v.postCount--
		fn()
		return true
	}
	v.top()
	first := v.lanes.first()
	k := &v.lanes.heads[first]
	if k.left == 0 || k.at() > t {
		return false
	}
	v.now = k.at()
	if first != ofHeap {
		v.lanes.take(first)()
		return true
	}
	e := v.heap[0]
	v.hole = true
	fn := v.slots[e.slot].fn
	v.release(e.slot)
	fn()
	return true
}

// Run steps until nothing is left.
func (v *Virtual) Run() {
	for v.Step() {
	}
}

// RunUntil steps until the time t has come, and leaves the clock there.
func (v *Virtual) RunUntil(t int64) {
	for v.StepUntil(t) {
	}
	v.now = max(v.now, t)
}
