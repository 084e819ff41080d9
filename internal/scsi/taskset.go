package scsi

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

const defaultMaxTasks = 4096

// phase is where a task stands between Submit and Done.
type phase uint8

const (
	idle    phase = iota // not in a task set
	dormant              // waits for older tasks (SAM-5 8.5)
	enabled              // runs
	over                 // ended; Done is due
)

// taskState is what the device server keeps in a Task. It holds everything that a
// READ or WRITE needs, so that these allocate nothing.
type taskState struct {
	req   block.Request
	vec   [1][]byte // Data of a READ
	in    [1][]byte // DataIn
	n     *Nexus
	itl   *itl
	u     *Unit
	row   *command
	then  func(*Task) // what goes on when the request has ended well
	multi stepper     // state of a command of many steps
	start int64
	// arrived numbers the target's tasks.
	arrived uint64
	// resume is afterDelay, kept because the task is used again.
	resume func()

	prev, next *Task // the unit's task set, oldest first
	phase      phase
	blocks     bool // ORDERED or HEAD OF QUEUE: others wait for it
	member     bool // in the unit's task set
	inDevice   bool // req is with the device, or the task is delayed
	delayed    bool // waits in the front end, see Options.Delay
	aborted    bool
	booked     bool      // already counted in another way
	told       bool      // aborted by another nexus: TASK ABORTED status (TAS=1)
	waiters    []*waiter // task management functions that wait for this task
}

// stepper is a command of many steps. end is called once, when the task ends for
// whatever reason, to release what the command holds.
type stepper interface{ end(*Task) }

// taskSet is the one task set of a unit (TST=000b), in the order of arrival.
type taskSet struct {
	first, last *Task
	limit       int
	size        int
	blockers    int // tasks with state.blocks
	heads       int // those of them that are HEAD OF QUEUE
	paused      int // schedule does nothing
}

func (s *taskSet) push(t *Task) {
	t.state.prev, t.state.next = s.last, nil
	if s.last != nil {
		s.last.state.next = t
	} else {
		s.first = t
	}
	s.last = t
	s.size++
	t.state.member = true
}

func (s *taskSet) remove(t *Task) {
	st := &t.state
	if st.prev != nil {
		st.prev.state.next = st.next
	} else {
		s.first = st.next
	}
	if st.next != nil {
		st.next.state.prev = st.prev
	} else {
		s.last = st.prev
	}
	st.prev, st.next = nil, nil
	st.member = false
	s.size--
	if st.blocks {
		s.blockers--
		if t.Attr == AttrHeadOfQueue {
			s.heads--
		}
	}
}

// Submit starts tasks, in order.
func (n *Nexus) Submit(tasks []*Task) {
	t := n.t
	t.enter()
	now := t.exec.Now()
	for _, task := range tasks {
		n.arrive(task, now)
	}
	t.leave()
}

func (n *Nexus) arrive(t *Task, now int64) {
	st := &t.state
	if st.phase != idle {
		panic("scsi: internal error: task submitted twice")
	}
	t.Status, t.Sense, t.DataIn, t.InTotal, t.OutTotal, t.Aborted = StatusGood, nil, nil, 0, 0, false
	n.t.arrivals++
	st.n, st.start, st.row, st.arrived = n, now, nil, n.t.arrivals
	st.aborted, st.told, st.blocks = false, false, false
	st.itl = n.lookup(t.LUN)
	if st.itl == nil || n.closed {
		st.itl, st.u = nil, nil
		st.phase = enabled
		n.withoutUnit(t)
		return
	}
	u := st.itl.u
	st.u = u
	if u.size >= u.limit {
		st.row = lookup(t.CDB)
		st.phase = enabled
		t.end(StatusTaskSetFull)
		return
	}
	u.push(t)
	switch t.Attr {
	case AttrOrdered:
		st.blocks = true
		u.blockers++
	case AttrHeadOfQueue:
		st.blocks = true
		u.blockers++
		u.heads++
	case AttrACA:
		// NACA is refused, so no ACA condition exists that would admit it.
		st.phase = enabled
		t.check(invalidFieldInCDB)
		return
	default:
		if u.blockers == 0 {
			st.phase = enabled
			t.begin()
			return
		}
	}
	st.phase = dormant
	if t.Attr == AttrHeadOfQueue {
		st.phase = enabled
		t.begin()
		return
	}
	u.schedule()
}

// schedule enables the tasks that need not wait any longer: an ORDERED task when
// it is the oldest, a SIMPLE task when no ORDERED one is older; none of them
// before the HEAD OF QUEUE tasks have ended (SAM-5 8.6).
func (u *Unit) schedule() {
	if u.paused > 0 {
		return
	}
	u.paused++ // a task that ends at once must not recurse
	u.t.enter()
	defer func() { u.paused--; u.t.leave() }()
	for again := true; again; {
		again = false
		if u.heads > 0 {
			return
		}
		oldest := true
		for t := u.first; t != nil; t = t.state.next {
			st := &t.state
			if st.phase == over {
				continue
			}
			ordered := t.Attr == AttrOrdered
			if st.phase == dormant && (oldest || !ordered) {
				st.phase = enabled
				t.begin()
				// It may have ended at once and changed the list.
				again = true
				break
			}
			if ordered {
				return
			}
			oldest = false
		}
	}
}

// begin runs an enabled task, when the delay of the target's front end is over.
func (t *Task) begin() {
	st := &t.state
	tg := st.n.t
	if tg.opt.Delay != nil {
		if d := tg.opt.Delay(t); d > 0 {
			st.inDevice, st.delayed = true, true
			if st.resume == nil {
				st.resume = t.afterDelay
			}
			block.Call(tg.exec, tg.exec.Now()+d, st.resume)
			return
		}
	}
	t.run()
}

func (t *Task) afterDelay() {
	st := &t.state
	st.inDevice, st.delayed = false, false
	switch {
	case st.aborted:
		t.end(StatusGood)
	case st.u.removed:
		t.check(lunNotSupported)
	default:
		t.run()
	}
}

// run is the enabled state's beginning: the checks that SAM-5 5.3.3 orders, then
// the command itself.
func (t *Task) run() {
	st := &t.state
	u := st.u
	row := lookup(t.CDB)
	st.row = row
	if row == nil {
		// A pending unit attention condition comes before an invalid field.
		if st.itl.ua != 0 {
			t.check(st.itl.ua.take())
			return
		}
		t.badOpcode()
		return
	}
	if u.reservedFor(st.itl, t, row) {
		t.end(StatusReservationConflict)
		return
	}
	if st.itl.ua != 0 && row.flags&passUA == 0 {
		t.check(st.itl.ua.take())
		return
	}
	if c := st.n.inaccessible(row); c != noSense {
		t.check(c)
		return
	}
	if len(t.CDB) < len(row.usage) {
		t.fault(inCDB(0, 7))
		return
	}
	if row.op == opVariable && int(t.CDB[7]) != len(row.usage)-8 { // ADDITIONAL CDB LENGTH
		t.fault(inCDB(7, 7))
		return
	}
	if row.flags&strict != 0 {
		for i, used := range row.usage {
			if extra := t.CDB[i] &^ used; i > 0 && i != row.control() && extra != 0 {
				t.fault(inCDB(i, bits.Len8(extra)-1))
				return
			}
		}
	}
	if control := t.CDB[row.control()]; control&0x04 != 0 { // NACA: ACA is not supported
		t.fault(inCDB(row.control(), 2))
		return
	}
	if !row.offered(st.itl) {
		t.badOpcode()
		return
	}
	if row.flags&passBusy == 0 {
		if s, busy := u.eraseState(); busy && !u.mends(row) {
			t.fault(s)
			return
		}
	}
	if row.flags&needMedium != 0 {
		if c := u.medium.notReady(); c != noSense {
			t.check(c)
			return
		}
		if row.flags&writes != 0 && u.writeProtected() {
			t.check(writeProtected)
			return
		}
	}
	row.run(t)
}

// submit hands the task's request to the unit's device; then is called when it
// has ended with OK. Any other outcome ends the task.
func (t *Task) submit(then func(*Task)) {
	st := &t.state
	st.then = then
	st.inDevice = true
	st.req.Ctx = t
	st.req.Done = requestDone
	st.req.Host = st.n.host.id
	st.req.Located = false
	st.n.t.enqueue(st.u, &st.req)
}

// requestDone is every request's Done.
func requestDone(req *block.Request) {
	t := req.Ctx.(*Task)
	st := &t.state
	st.inDevice = false
	if st.aborted {
		t.end(StatusGood)
		return
	}
	if req.Status != block.OK {
		status, s := st.u.outcome(req)
		if status == StatusCheckCondition {
			t.fault(s)
		} else {
			t.end(status)
		}
		return
	}
	if writesMore(req.Op) {
		st.u.fuller()
	}
	st.then(t)
}

// check ends the task with CHECK CONDITION.
func (t *Task) check(c code) { t.fault(sense{code: c}) }

// fault ends the task with CHECK CONDITION and this sense data.
func (t *Task) fault(s sense) {
	descriptor := t.state.u != nil && t.state.u.mode.dsense
	t.Sense = s.encode(t.senseBuf[:0:len(t.senseBuf)][:len(t.senseBuf)], descriptor)
	t.end(StatusCheckCondition)
}

// good ends the task well.
func (t *Task) good() { t.end(StatusGood) }

// end ends the task: it leaves the task set, is counted, and Done is due.
func (t *Task) end(status byte) {
	st := &t.state
	if st.phase == over || st.phase == idle {
		panic("scsi: internal error: task ended twice")
	}
	st.phase = over
	t.Status = status
	if status != StatusGood && status != StatusConditionMet {
		t.DataIn, t.InTotal = nil, 0
	}
	if m := st.multi; m != nil {
		st.multi = nil
		m.end(t)
	}
	if st.aborted {
		t.DataIn, t.InTotal, t.Sense = nil, 0, nil
		if st.told {
			t.Status = StatusTaskAborted
		} else {
			t.Aborted = true
		}
	}
	tg := st.n.t
	u := st.u
	if u != nil {
		u.count(t, tg.exec.Now())
		if st.member {
			blocked := u.blockers != 0
			u.remove(t)
			if blocked && u.first != nil {
				u.schedule()
			}
		}
	}
	waiters := st.waiters
	st.waiters = nil
	st.req.Data, st.req.Compare, st.req.Ref, st.vec[0] = nil, nil, nil, nil
	st.itl, st.u, st.then = nil, nil, nil
	if tg.depth > 0 {
		tg.ended = append(tg.ended, t)
		tg.post()
	} else {
		st.phase = idle
		st.n = nil
		t.Done(t)
	}
	for _, w := range waiters {
		w.less(tg)
	}
}

// call queues fn for the executor: for completions that must not come from inside
// the call that caused them.
func (t *Target) call(fn func()) {
	t.calls = append(t.calls, fn)
	t.post()
}

func (t *Target) post() {
	if !t.posted {
		t.posted = true
		t.exec.Post(t.drain)
	}
}

// runEnded delivers the completions that are due, tasks before task management
// functions.
func (t *Target) runEnded() {
	t.posted = false
	run := t.ended
	t.ended = t.spare[:0]
	for i, task := range run {
		run[i] = nil
		task.state.phase = idle
		task.state.n = nil
		task.Done(task)
	}
	t.spare = run[:0]
	calls := t.calls
	t.calls = nil
	for _, fn := range calls {
		fn()
	}
}

var _ metrics.Source = (*Target)(nil)
