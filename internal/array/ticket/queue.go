// A queue of tickets, for one resource: who waits, in which order, and how many in all queues of a
// kind. A ticket is in one queue at the most.

package ticket

// Queue is who waits for a resource, in order. Its zero value is an empty queue for nothing.
type Queue struct {
	Of Resource
	// Sum, where it is set, counts those who wait here, and in other queues that have the same.
	Sum *Sum

	head, tail *Ticket
}

// Sum is a number of tickets. What it counts, Up counts too, where that is set.
type Sum struct {
	N  int
	Up *Sum
}

// Empty reports whether nobody waits.
func (q *Queue) Empty() bool { return q.head == nil }

// Head returns the ticket that is next, nil if nobody waits.
func (q *Queue) Head() *Ticket { return q.head }

func (q *Queue) count(n int) {
	for s := q.Sum; s != nil; s = s.Up {
		s.N += n
	}
}

// insert queues t behind a ticket of the queue, or first where that is nil.
func (q *Queue) insert(t, after *Ticket) {
	t.in, t.of, t.prev = q, q.Of, after
	if after == nil {
		t.next, q.head = q.head, t
	} else {
		t.next, after.next = after.next, t
	}
	if t.next == nil {
		q.tail = t
	} else {
		t.next.prev = t
	}
	q.count(1)
}

// Push queues a ticket. Precondition, of all three: it stands in no queue.
func (q *Queue) Push(t *Ticket) { q.insert(t, q.tail) }

// PushFront queues a ticket before all others: it stood at the head, and what it got was too
// little.
func (q *Queue) PushFront(t *Ticket) { q.insert(t, nil) }

// PushRanked queues a ticket behind those of its rank and before those of a higher one.
func (q *Queue) PushRanked(t *Ticket) {
	after := q.tail
	for after != nil && after.Rank > t.Rank {
		after = after.prev
	}
	q.insert(t, after)
}

// WakeAll wakes all who wait now, one after the other. Who comes meanwhile, or comes back, waits
// for the next time. Those whose turn has not come yet stand in no queue any more, and no other
// call can find them.
func (q *Queue) WakeAll() {
	t := q.head
	for x := t; x != nil; x = x.next {
		x.in = nil
		q.count(-1)
	}
	q.head, q.tail = nil, nil
	for t != nil {
		next := t.next
		t.prev, t.next = nil, nil
		t.waiter.Resume()
		t = next
	}
}

// Leave takes the ticket out of its queue. Precondition: it stands in one.
func (t *Ticket) Leave() {
	q := t.in
	if t.prev == nil {
		q.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.in, t.prev, t.next = nil, nil, nil
	q.count(-1)
}

// Wake takes the ticket out of its queue and resumes its waiter.
func (t *Ticket) Wake() {
	t.Leave()
	t.waiter.Resume()
}
