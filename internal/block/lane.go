package block

import (
	"math"
	"math/bits"
)

// Lane names a queue of a Virtual for calls of one kind whose times mostly do not go back: each is set
// for no earlier than the one before it, as what travels over a link is. Such a call needs no heap.
// Those that do go back are as welcome, only slower. Whatever its lane, a call runs at its time, and of
// those of equal times the first that was set is the first that runs.
type Lane uint8

// Lanes. Different kinds may share one where they take equal times.
const (
	LaneFrontEnd Lane = 1 + iota // delays of front ends
	LaneOut                      // of links from hosts to arrays
	LaneIn                       // and back

	numLanes
)

// laneSpan bounds how far ahead the events of a lane lie, in nanoseconds: behind one that lies further
// ahead, all others of its lane would have to go to the heap.
const laneSpan = 1_000_000

// ofHeap is the place of the heap among the lanes.
const ofHeap = 0

// lanes are the events that need no heap.
type lanes struct {
	// heads are those of the first event of each lane, and of the heap where Virtual.top has looked.
	heads  [numLanes]key
	queues [numLanes]laneQueue
}

// key is what an event's place in the order depends on. The zero value is that of no event: behind all.
type key struct {
	left uint64 // nanoseconds from its time to the end of time, MaxInt64, that one included
	seq  uint64
}

func keyOf(at int64, seq uint64) key { return key{uint64(math.MaxInt64-at) + 1, seq} }

// at returns the time. Preconditions: there is an event.
func (k *key) at() int64 { return math.MaxInt64 - int64(k.left-1) }

// laneQueue is the events of a lane in their order, a ring of a power of two.
type laneQueue struct {
	ring       []laneEvent
	head, tail uint // of which the low bits count
	last       key  // that of the last event
}

type laneEvent struct {
	key
	fn func()
}

// before is entry.before of keys.
func (k *key) before(o *key) uint {
	_, less := bits.Sub64(k.seq, o.seq, 0)
	_, less = bits.Sub64(o.left, k.left, less)
	return uint(less)
}

// first returns the lane of the next event, ofHeap if it is the heap's, without branches that nobody can
// foresee.
func (l *lanes) first() uint {
	h := &l.heads
	a, b := h[1].before(&h[0]), 2+h[3].before(&h[2])
	return a + (b-a)*h[b&3].before(&h[a&3])
}

// put queues an event behind the others of a lane; false says that one of these is later.
func (l *lanes) put(lane Lane, k key, fn func()) bool {
	q := &l.queues[lane&3]
	if q.head == q.tail {
		l.heads[lane&3] = k
	} else if k.left > q.last.left {
		return false
	}
	if q.tail-q.head == uint(len(q.ring)) {
		q.grow()
	}
	q.last = k
	e := &q.ring[q.tail&uint(len(q.ring)-1)]
	e.key, e.fn = k, fn
	q.tail++
	return true
}

// take takes the first event of a lane.
func (l *lanes) take(lane uint) func() {
	q := &l.queues[lane&3]
	mask := uint(len(q.ring) - 1)
	e := &q.ring[q.head&mask]
	fn := e.fn
	e.fn = nil
	if q.head++; q.head == q.tail {
		l.heads[lane&3] = key{}
	} else {
		l.heads[lane&3] = q.ring[q.head&mask].key
	}
	return fn
}

func (q *laneQueue) grow() {
	ring := make([]laneEvent, max(16, 2*len(q.ring)))
	n := uint(0)
	for ; q.head != q.tail; q.head++ {
		ring[n] = q.ring[q.head&uint(len(q.ring)-1)]
		n++
	}
	q.ring, q.head, q.tail = ring, 0, n
}
