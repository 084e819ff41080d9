// The last stage of a copy: a request of the operation has ended, or somebody ends the operation:
// its own command's abort, a fence of a unit that it uses, COPY OPERATION ABORT. A request that
// the device has begun always ends first, and what it holds is released. finish is the only way
// out: it stands in the result, is counted, and ends the command if there still is one.

package copymgr

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// requestDone goes on after a request, whatever its status.
func (o *operation) requestDone() {
	if o.cancelled() {
		o.work.ended(o) // it may have got something to release
		switch c := o.cut; {
		case o.state == over:
		case (c.u != nil || c.g != nil) && !o.aborted():
			o.work.refuse(o, c)
		default:
			o.finish(copyTerminated, sam.StatusCheckCondition, sense.Data{Code: sense.CopyAborted})
		}
		return
	}
	if o.req.Status == block.OK && o.where != nil {
		o.where.Wrote(o.req.Op)
	}
	o.work.ended(o)
}

// stop terminates the operation: a request that waits is withdrawn, one that has
// started ends first.
func (o *operation) stop() {
	if o.state == running {
		o.state = stopping
		o.Withdraw()
	}
}

// Withdraw is how the operation's task is aborted while the request is on its way.
func (o *operation) Withdraw() {
	switch {
	case o.asked != nil:
		o.asked.withdraw()
	case o.where != nil:
		o.where.Device().Cancel(&o.req)
	}
}

// interrupt ends the operation as soon as its present request has ended or can be withdrawn.
func (o *operation) interrupt(c interruption) {
	if o.state == running && !o.aborted() {
		o.cut, o.state = c, stopping
		o.Withdraw()
	}
}

// await makes w, which may be nil, wait for the operation.
func (o *operation) await(w *server.Waiter) {
	if w == nil || o.state == over {
		return
	}
	w.More()
	o.waiters = append(o.waiters, w)
}

// Release implements server.Continuation: the task is gone before its operation is over only when
// the unit is.
func (o *operation) Release(*server.Task) {
	if o.state != over {
		o.task = nil
		o.stop()
	}
}

// describe notes a unit's part in the operation, and what it describes.
func (o *operation) describe(d *cscd, kind counters.Op, bytes uint64) {
	if d.far != nil {
		d.far.describe(kind, bytes)
	} else {
		d.x.Unit().Describe(kind, bytes)
	}
	r := copyRole{d.x, d.far, kind}
	if !slices.Contains(o.roles, r) {
		o.roles = append(o.roles, r)
	}
}

// finish ends the operation and its command. status is the COPY OPERATION STATUS,
// samStatus and s are those of the command.
func (o *operation) finish(status, samStatus byte, data sense.Data) {
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
	r.op, r.status, r.samStatus = nil, status, samStatus
	if samStatus == sam.StatusCheckCondition {
		var b [64]byte
		r.sense = slices.Clone(data.Encode(b[:0:len(b)], o.x.Unit().DescriptorSense()))
	}
	if o.kept && o.discard {
		s.forget(r)
	}
	m.left(o.x, s)
	o.book(samStatus, cancelled)
	for _, g := range o.far {
		g.dismiss()
	}
	waiters := o.waiters
	o.waiters = nil
	if t := o.task; t != nil {
		o.task = nil
		t.EndOutsourced(samStatus, data, len(o.roles) > 0)
	}
	for _, w := range waiters {
		w.Less(m.t)
	}
}

// book counts the operation once for each part that a unit had in it. Without any, nothing but its command counts: that of a token,
// or of a copy that fails before its first segment.
func (o *operation) book(samStatus byte, cancelled bool) {
	if cancelled {
		samStatus = sam.StatusTaskAborted
	}
	if o.early != nil && len(o.roles) == 0 { // how long it took is counted: it has ended
		o.x.Count(o.early.Kind, counters.OutcomeOf(samStatus))
	}
	now := o.m.t.Exec().Now()
	for _, r := range o.roles {
		if r.g != nil {
			r.g.book(r.kind, samStatus, now-o.start)
			continue
		}
		r.x.Count(r.kind, counters.OutcomeOf(samStatus))
		r.x.Unit().Took(r.kind, now-o.start)
	}
}
