// The last stage of a copy: a request of the operation has ended, or somebody ends the operation:
// its own command's abort, a fence of a unit that it uses, COPY OPERATION ABORT. A request that
// the device has begun always ends first, and what it holds is released. finish is the only way
// out: it stands in the result, is counted, and ends the command if there still is one.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// requestDone goes on after a request, whatever its status.
func (o *operation) requestDone() {
	if o.cancelled() {
		o.work.ended(o) // it may have got something to release
		switch c := o.cut; {
		case o.state == over:
		case c.u != nil && !o.aborted():
			o.work.refuse(o, c.u, c.status, c.why)
		default:
			o.finish(copyTerminated, sense.StatusCheckCondition, sense.Data{Code: sense.CopyAborted})
		}
		return
	}
	if o.req.Status == block.OK {
		o.where.wrote(o.req.Op)
	}
	o.work.ended(o)
}

// stop terminates the operation: a request that waits is withdrawn, one that has
// started ends first.
func (o *operation) stop() {
	if o.state == running {
		o.state = stopping
		o.withdraw()
	}
}

// withdraw is how the operation's task is aborted while the request is on its way.
func (o *operation) withdraw() {
	if o.where != nil {
		o.where.cancel(&o.req)
	}
}

// interrupt ends the operation as soon as its present request has ended or can be withdrawn.
func (o *operation) interrupt(c interruption) {
	if o.state == running && !o.aborted() {
		o.cut, o.state = c, stopping
		o.withdraw()
	}
}

// await makes w, which may be nil, wait for the operation.
func (o *operation) await(w *waiter) {
	if w == nil || o.state == over {
		return
	}
	w.left++
	o.waiters = append(o.waiters, w)
}

// release implements continuation: the task is gone before its operation is over only when
// the unit is.
func (o *operation) release(*Task) {
	if o.state != over {
		o.task = nil
		o.stop()
	}
}

// describe notes a unit's part in the operation, and what it describes.
func (o *operation) describe(x *itl, kind counters.Op, bytes uint64) {
	x.u.describe(kind, bytes)
	for _, r := range o.roles {
		if r.x == x && r.kind == kind {
			return
		}
	}
	o.roles = append(o.roles, copyRole{x, kind})
}

// finish ends the operation and its command. status is the COPY OPERATION STATUS,
// sam and s are those of the command.
func (o *operation) finish(status, sam byte, data sense.Data) {
	cancelled := o.cancelled()
	o.state = over
	m, s := o.m, o.source
	m.host(o.host).operations--
	s.running--
	m.operations = slices.DeleteFunc(m.operations, func(q *operation) bool { return q == o })
	if r := o.req.Ref; r != nil {
		o.req.Ref = nil
		r.Release()
	}
	r := o.result
	r.op, r.status, r.sam = nil, status, sam
	if sam == sense.StatusCheckCondition {
		var b [64]byte
		r.sense = slices.Clone(data.Encode(b[:0:len(b)], o.x.u.mode.DSense))
	}
	if o.kept && o.discard {
		s.forget(r)
	}
	m.left(o.x, s)
	o.book(sam, cancelled)
	waiters := o.waiters
	o.waiters = nil
	if t := o.task; t != nil {
		o.task = nil
		t.afterCopy(sam, data, len(o.roles) > 0)
	}
	for _, w := range waiters {
		w.less(m.t)
	}
}

// book counts the operation once for each part that a unit had in it.
func (o *operation) book(sam byte, cancelled bool) {
	outcome := counters.OutcomeOf(sam)
	if cancelled {
		outcome = counters.Check
	}
	now := o.m.t.exec.Now()
	for _, r := range o.roles {
		r.x.count(r.kind, outcome)
		r.x.u.took(r.kind, now-o.start)
	}
}
