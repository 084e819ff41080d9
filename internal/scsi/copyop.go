package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Values of COPY OPERATION STATUS (SPC-5 table 182).
const (
	copyDone       = 0x01
	copyError      = 0x02
	copyPartROD    = 0x03 // done; of the token's data a part was used
	copyResidual   = 0x04 // done; the token has less than what was asked for
	copyForeground = 0x11
	copyBackground = 0x12
	copyTerminated = 0x60
)

// copyResult is what the RECEIVE COPY commands tell of one copy operation. The
// 1-byte and the 4-byte list identifiers are one set of numbers (SPC-5 5.18.4.2).
type copyResult struct {
	id       uint32
	sa       byte       // service action of the command
	op       *operation // while it runs
	status   byte       // COPY OPERATION STATUS, when it is over
	segments uint16     // processed
	moved    uint64     // bytes transferred
	blocks   uint64     // the same, of a token's operation
	sam      byte       // status of the command
	sense    []byte
	token    []byte // that POPULATE TOKEN made
}

// failed tells whether the operation ended badly.
func (r *copyResult) failed() bool { return r.status == copyError || r.status == copyTerminated }

func (x *itl) copyWith(id uint32) *copyResult {
	for _, r := range x.copies {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (x *itl) forget(r *copyResult) {
	x.copies = slices.DeleteFunc(x.copies, func(q *copyResult) bool { return q == r })
}

// keep makes room for a new result: of those that are over, the oldest goes.
func (x *itl) keep(r *copyResult) {
	if len(x.copies) >= maxHeld {
		for _, q := range x.copies {
			if q.op == nil {
				x.forget(q)
				break
			}
		}
	}
	x.copies = append(x.copies, r)
}

// dropCopies terminates the operations of the I_T_L nexus that have no task any
// more, and forgets all results.
func (x *itl) dropCopies() {
	for _, r := range x.copies {
		if r.op != nil && r.op.task == nil {
			r.op.stop()
		}
	}
	x.copies = nil
}

// copier is what an operation does: it submits requests one after the other.
type copier interface {
	// next submits the next request or finishes the operation.
	next(*operation)
	// ended is called when the request has ended, whatever its status.
	ended(*operation)
	// uses returns what the operation does with a unit, and by which I_T_L nexus: in the
	// step that it is at, or in all that is left of it.
	uses(o *operation, u *Unit, what scope) (*itl, use)
	// refuse finishes the operation with what a unit that it uses says to it now.
	refuse(o *operation, u *Unit, status byte, why code)
}

// operation is a copy operation of the copy manager: an EXTENDED COPY, a POPULATE
// TOKEN or a WRITE USING TOKEN. It has a request of its own, because it can
// outlive its command (IMMED=1).
type operation struct {
	t       *Target
	x       *itl  // where the command came
	task    *Task // while the command waits for the end
	work    copier
	result  *copyResult
	kept    bool // result is in x.copies
	discard bool // result goes with the end
	req     block.Request
	where   *Unit // where req is
	stopped bool
	cut     interruption // what stopped it, if a unit did
	over    bool
	host    uint32
	start   int64
	arrived uint64 // its command
	roles   []copyRole
	waiters []*waiter // what goes on when the operation is over
}

// copyRole is a unit's part in a copy, for the counters.
type copyRole struct {
	x    *itl
	kind opKind
}

// operate starts an operation. id is 0 with named false when its result shall not
// be kept. With immed the command ends at once. When it returns false the task has
// ended and the operation has not begun.
func (t *Task) operate(work copier, id uint32, named, discard, immed bool, listIDAt int) bool {
	st := &t.state
	tg, x := st.n.t, st.itl
	if named {
		if r := x.copyWith(id); r != nil {
			if r.op != nil {
				t.fault(listInUse(listIDAt))
				return false
			}
			x.forget(r)
		}
	}
	if len(tg.operations) >= maxCopies || st.n.host.copies >= maxCopiesOfHost || x.running >= maxCopiesOfNexus {
		t.end(StatusBusy)
		return false
	}
	o := &operation{t: tg, x: x, task: t, work: work, discard: discard, host: st.n.host.id, start: st.start, arrived: st.arrived}
	o.req.Done = o.requestDone
	o.result = &copyResult{id: id, sa: t.CDB[1] & 0x1F, op: o}
	st.n.host.copies++
	x.running++
	tg.operations = append(tg.operations, o)
	if o.kept = named; named {
		x.keep(o.result)
	}
	if immed {
		o.task = nil
		st.booked = true
		t.good()
	} else {
		st.multi = o
		st.inDevice = true
	}
	work.next(o)
	return true
}

// listInUse is OPERATION IN PROGRESS with a pointer to the list identifier, which
// stands in the CDB or in the parameter list (then at is negative or 0).
func listInUse(at int) sense {
	if at > 0 {
		s := inCDB(at, 7)
		s.code = listIDInUse
		return s
	}
	return inList(listIDInUse, -at)
}

// submit hands the request to a unit.
func (o *operation) submit(u *Unit) {
	o.where = u
	o.req.Host, o.req.Located = o.host, false
	o.t.enqueue(u, &o.req)
}

func (o *operation) requestDone(*block.Request) {
	o.t.enter()
	defer o.t.leave()
	if o.stopped || o.task != nil && o.task.state.aborted {
		o.work.ended(o) // it may have got something to release
		switch c := o.cut; {
		case o.over:
		case c.u != nil && (o.task == nil || !o.task.state.aborted):
			o.work.refuse(o, c.u, c.status, c.why)
		default:
			o.finish(copyTerminated, StatusCheckCondition, sense{code: copyAborted})
		}
		return
	}
	if o.req.Status == block.OK && writesMore(o.req.Op) {
		o.where.fuller()
	}
	o.work.ended(o)
}

// stop terminates the operation: a request that waits is withdrawn, one that has
// started ends first.
func (o *operation) stop() {
	if o.over || o.stopped {
		return
	}
	o.stopped = true
	o.withdraw()
}

// withdraw is how the operation's task is aborted while the request is on its way.
func (o *operation) withdraw() {
	if o.where != nil {
		o.where.dev.Cancel(&o.req)
	}
}

// cancelled tells whether the present request's outcome matters no more.
func (o *operation) cancelled() bool {
	return o.stopped || o.task != nil && o.task.state.aborted
}

// end implements stepper: the task is gone before its operation is over only when
// the unit is.
func (o *operation) end(*Task) {
	if !o.over {
		o.task = nil
		o.stop()
	}
}

// finish ends the operation and its command. status is the COPY OPERATION STATUS,
// sam and s are those of the command.
func (o *operation) finish(status, sam byte, s sense) {
	o.over = true
	o.x.n.host.copies--
	o.x.running--
	o.t.operations = slices.DeleteFunc(o.t.operations, func(q *operation) bool { return q == o })
	if r := o.req.Ref; r != nil {
		o.req.Ref = nil
		r.Release()
	}
	r := o.result
	r.op, r.status, r.sam = nil, status, sam
	if sam == StatusCheckCondition {
		var b [64]byte
		r.sense = slices.Clone(s.encode(b[:0:len(b)], o.x.u.mode.dsense))
	}
	if o.kept && o.discard {
		o.x.forget(r)
	}
	o.book(sam)
	waiters := o.waiters
	o.waiters = nil
	if t := o.task; t != nil {
		o.task = nil
		st := &t.state
		st.inDevice = false
		st.booked = len(o.roles) > 0
		switch {
		case st.aborted:
			t.end(StatusGood)
		case sam == StatusCheckCondition:
			t.fault(s)
		default:
			t.end(sam)
		}
	}
	for _, w := range waiters {
		w.less(o.t)
	}
}

// describe notes a unit's part in the operation, and what it describes.
func (o *operation) describe(x *itl, kind opKind, bytes uint64) {
	x.u.stats.Described[kind] += bytes
	for _, r := range o.roles {
		if r.x == x && r.kind == kind {
			return
		}
	}
	o.roles = append(o.roles, copyRole{x, kind})
}

// book counts the operation once for each part that a unit had in it.
func (o *operation) book(sam byte) {
	outcome := outcomeOf(sam)
	if o.cancelled() {
		outcome = 1
	}
	now := o.t.exec.Now()
	for _, r := range o.roles {
		r.x.stats.Commands[r.kind][outcome]++
		r.x.u.stats.Duration[r.kind].Observe(now - o.start)
	}
}
