package array

// opQueue is a FIFO of ops. Where count is set, it is kept at the number of ops in
// this queue and others of its kind.
type opQueue struct {
	head, tail *op
	count      *int
}

func (q *opQueue) empty() bool { return q.head == nil }

func (q *opQueue) push(o *op) {
	o.in, o.prev, o.next = q, q.tail, nil
	q.add(1)
	if q.tail == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
}

// pushByPriority queues o behind those of its priority and before those that come after it.
func (q *opQueue) pushByPriority(o *op) {
	after := q.tail
	for after != nil && after.prio > o.prio {
		after = after.prev
	}
	if after == q.tail {
		q.push(o)
		return
	}
	if after == nil {
		q.pushFront(o)
		return
	}
	o.in, o.prev, o.next = q, after, after.next
	after.next.prev, after.next = o, o
	q.add(1)
}

func (q *opQueue) pushFront(o *op) {
	o.in, o.prev, o.next = q, nil, q.head
	q.add(1)
	if q.head == nil {
		q.tail = o
	} else {
		q.head.prev = o
	}
	q.head = o
}

func (q *opQueue) add(n int) {
	if q.count != nil {
		*q.count += n
	}
}

// queued tells whether the op waits for something that it does not need if it ends now.
func (o *op) queued() bool { return o.in != nil && o.parked == 0 }

func (o *op) unqueue() {
	q := o.in
	if o.prev == nil {
		q.head = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		q.tail = o.prev
	} else {
		o.next.prev = o.prev
	}
	o.in, o.prev, o.next = nil, nil, nil
	q.add(-1)
}
