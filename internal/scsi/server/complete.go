// Stage 6 of a command, complete: its request has come back from the device, or a check or its
// handler has ended it. The task gets its status and its sense data, gives back what it holds, is
// counted, and leaves the task set. End is the only way into the state completed.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// requestDone is every request's Done.
func requestDone(req *block.Request) {
	t := req.Ctx.(*Task)
	st := &t.state
	if st.phase == aborting {
		t.End(sam.StatusGood)
		return
	}
	st.to(enabled)
	if req.Status == block.Cancelled && st.itl.gone {
		t.Check(sense.LUNNotSupported)
		return
	}
	if req.Status != block.OK {
		status, s := st.u.Outcome(req)
		if status == sam.StatusCheckCondition {
			t.Fault(s)
		} else {
			t.End(status)
		}
		return
	}
	st.u.Wrote(req.Op)
	st.then(t)
}

// Wrote is called when a request of this kind has ended well: hosts are notified when the pool has
// become fuller than the soft threshold. What gives space back changes nothing, the next write sees it.
func (u *Unit) Wrote(op block.Op) {
	if op.TakesSpace() && u.pool.Crossed() {
		u.Establish(sense.UAThreshold, nil)
	}
}

// Outcome turns the status of a request into a SAM status and sense data.
func (u *Unit) Outcome(req *block.Request) (byte, sense.Data) {
	if req.Status == block.Cancelled && u.removed {
		return sam.StatusCheckCondition, sense.Data{Code: sense.LUNNotSupported}
	}
	return sense.Outcome(req, u.shift)
}

// Check ends the task with CHECK CONDITION.
func (t *Task) Check(c sense.Code) { t.Fault(sense.Data{Code: c}) }

// Fault ends the task with CHECK CONDITION and this sense data.
func (t *Task) Fault(s sense.Data) {
	descriptor := t.state.u != nil && t.state.u.mode.DSense
	t.Sense = s.Encode(t.senseBuf[:0:len(t.senseBuf)][:len(t.senseBuf)], descriptor)
	t.End(sam.StatusCheckCondition)
}

// Good ends the task well.
func (t *Task) Good() { t.End(sam.StatusGood) }

// End completes the task: it leaves the task set, is counted, and Done is due. status is GOOD
// when the task was aborted.
func (t *Task) End(status byte) {
	st := &t.state
	was := st.phase
	st.to(completed)
	t.Status = status
	if status != sam.StatusGood && status != sam.StatusConditionMet {
		t.DataIn, t.InTotal = nil, 0
	}
	if c := st.continuation; c != nil {
		st.continuation = nil
		c.Release(t)
	}
	if was == aborting {
		t.DataIn, t.InTotal, t.Sense = nil, 0, nil
		if st.reportTaskAborted {
			t.Status = sam.StatusTaskAborted
		} else {
			t.Aborted = true
		}
	}
	if u := st.u; u != nil {
		u.count(t, was == aborting, u.t.exec.Now())
		if was != received { // it is in the task set
			blocked := u.blockers != 0
			u.remove(t)
			if blocked && u.first != nil {
				u.schedule()
			}
		}
	}
	t.deliver()
}

// EndOutsourced ends a task whose operation is over.
func (t *Task) EndOutsourced(samStatus byte, s sense.Data, counted bool) {
	st := &t.state
	st.countedByCopy = counted
	if st.phase == aborting {
		t.End(sam.StatusGood)
		return
	}
	st.to(enabled)
	if samStatus != sam.StatusGood && st.itl.gone {
		t.Check(sense.LUNNotSupported)
		return
	}
	if samStatus == sam.StatusCheckCondition {
		t.Fault(s)
		return
	}
	t.End(samStatus)
}

// Outsource says that others carry out the task, which then end it by EndOutsourced.
func (t *Task) Outsource(o Outsourced) {
	t.state.continuation = o
	t.state.to(atDevice)
}

// CountedElsewhere says that the task's command is counted by its operation.
func (t *Task) CountedElsewhere() { t.state.countedByCopy = true }

// count counts a task that ends. Aborted tasks count as failed.
func (u *Unit) count(t *Task, aborted bool, now int64) {
	st := &t.state
	op := counters.Other
	if st.row != nil {
		op = st.row.Kind
	}
	o := counters.OutcomeOf(t.Status)
	if aborted {
		o = counters.Check
	}
	u.stats.Took(op, now-st.start)
	if op.Carries() {
		var written uint64
		if t.OutTotal > 0 {
			written = uint64(min(block.VecLen(t.DataOut), t.OutTotal))
		}
		u.stats.Transfer(uint64(block.VecLen(t.DataIn)), written)
	}
	if !st.countedByCopy {
		st.itl.stats.Count(op, o)
	}
}

// Describe counts the bytes that an offload describes.
func (u *Unit) Describe(op counters.Op, bytes uint64) { u.stats.Describe(op, bytes) }

// Took counts how long a unit's part in a copy lasted, in nanoseconds; count counts it as a
// command.
func (u *Unit) Took(op counters.Op, ns int64) { u.stats.Took(op, ns) }

// Count counts a unit's part in a copy as a command of the nexus.
func (x *ITL) Count(op counters.Op, o counters.Outcome) { x.stats.Count(op, o) }

// Volume returns the name by which the unit is counted.
func (u *Unit) Volume() string { return u.stats.Name() }
