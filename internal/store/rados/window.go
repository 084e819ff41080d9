package rados

import "slices"

// librados blocks the caller of a submission beyond 1,024 operations or 100 MiB under way. The store
// stays below that, so that Submit never blocks the executor, in two lanes: what the log waits for is
// not behind what is destaged. Within a lane operations begin in their order.
const (
	dataOps, dataBytes = 512, 48 << 20
	logOps, logBytes   = 128, 32 << 20
	leaseOps           = 8 // they wait for nothing else
)

// lane is a part of the window. It is guarded by Store.mu.
type lane struct {
	maxOps, maxBytes int
	ops, bytes       int // under way
	queue            []*Op
	waited           uint64 // operations that had to wait for room
	figures          figures
}

func (l *lane) room(size int) bool {
	return l.ops == 0 || l.ops < l.maxOps && l.bytes+size <= l.maxBytes
}

// submit starts an operation, now or when its lane has room, and has then called, with mu held, when it
// has ended. Preconditions: mu is held.
func (s *Store) submit(l *lane, op *Op, then func(*Op)) {
	op.lane, op.then, op.size, op.Err = l, then, op.Bytes(), nil
	if s.lost != nil {
		op.lane = nil
		s.cluster.After(0, func() { s.refuse(op) })
		return
	}
	if len(l.queue) > 0 || !l.room(op.size) {
		l.waited++
		l.queue = append(l.queue, op)
		return
	}
	s.start(op)
}

func (s *Store) start(op *Op) {
	op.lane.ops++
	op.lane.bytes += op.size
	op.Done, op.began = s.endedFn, s.now()
	if s.opt.Cancel != nil && !s.started {
		s.flights = append(s.flights, op)
	}
	s.cluster.Submit(op)
}

// refuse ends an operation of a store that has lost its objects.
func (s *Store) refuse(op *Op) {
	s.enter()
	defer s.leave()
	op.Err = s.lost
	op.then(op)
}

// ended is called by the cluster for each operation.
func (s *Store) ended(op *Op) {
	if s.cut.Load() { // it has ended for who waits
		return
	}
	if op.first != nil {
		op.first(op)
	}
	s.enter()
	defer s.leave()
	if len(s.flights) > 0 {
		s.flights = slices.DeleteFunc(s.flights, func(o *Op) bool { return o == op })
	}
	if op.lane != &s.leaseLane {
		s.endings++
	}
	l := op.lane
	l.figures.note(op, s.now())
	l.ops--
	l.bytes -= op.size
	if op.awaited {
		s.answers.ended++
	}
	s.judge(op)
	op.then(op)
	for len(l.queue) > 0 && l.room(l.queue[0].size) {
		next := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if s.lost != nil {
			s.cluster.After(0, func() { s.refuse(next) })
			continue
		}
		s.start(next)
	}
}

// interrupt ends a start that was canceled: whatever it waits for, on the executor as well, ends with ErrCanceled, and
// nothing begins any more. What is under way goes on in the cluster, and who opens the array next has it refused.
// Preconditions: mu is held; it is called by the cluster, as Done is.
func (s *Store) interrupt() {
	s.interrupted = true
	s.cut.Store(true)
	if s.lost == nil {
		s.lost = ErrCanceled
	}
	list := s.flights
	s.flights = nil
	for _, op := range list {
		op.lane.ops--
		op.lane.bytes -= op.size
	}
	for _, l := range []*lane{&s.dataLane, &s.logLane, &s.leaseLane} {
		list = append(list, l.queue...)
		l.queue = nil
	}
	for _, op := range list {
		op.Err = s.lost
		op.then(op)
	}
}

// doAll runs n operations, some at a time, and waits for them; it returns the first error. op returns the
// i-th, and check, unless it is nil, says what its end is worth.
func (s *Store) doAll(n int, op func(i int) *Op, check func(i int, op *Op) error) error {
	var first error
	over := false
	s.enter()
	s.sweep(&s.logLane, n, func(i int) *Op {
		o := op(i)
		s.answers.what, o.awaited = "the object "+o.Object, true
		return o
	}, check, func(err error) { first, over = err, true })
	s.leave()
	if err := s.waitFor("", func() bool { return over }); err != nil {
		return err
	}
	return first
}

// do runs an operation and waits for it.
func (s *Store) do(op *Op) error {
	return s.doAll(1, func(int) *Op { return op }, nil)
}

// sweepDepth is how many operations of one sweep are under way at a time.
const sweepDepth = 16

// sweep runs n operations, some at a time, and calls done, with mu held, when they have ended. It begins
// no more behind an error. Preconditions: mu is held.
func (s *Store) sweep(l *lane, n int, op func(i int) *Op, check func(i int, op *Op) error, done func(error)) {
	next, out := 0, 0
	var first error
	var more func()
	more = func() {
		for next < n && out < sweepDepth && first == nil {
			i := next
			next, out = next+1, out+1
			s.submit(l, op(i), func(o *Op) {
				out--
				err := o.Err
				if check != nil {
					err = check(i, o)
				}
				if first == nil {
					first = err
				}
				if more(); out == 0 && (next == n || first != nil) && done != nil {
					d := done
					done = nil
					d(first)
				}
			})
		}
	}
	if n == 0 {
		s.cluster.After(0, func() { s.enter(); done(nil); s.leave() })
		return
	}
	more()
}

// absent takes it for no error that an object is not there.
func absent(_ int, op *Op) error {
	if op.Err == ErrNotFound {
		return nil
	}
	return op.Err
}

// present takes it for no error that an object is there already.
func present(_ int, op *Op) error {
	if op.Err == ErrExists {
		return nil
	}
	return op.Err
}

// wait waits until something is true that only changes with mu held.
func (s *Store) wait(until func() bool) {
	s.cluster.Wait(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return until()
	})
}
