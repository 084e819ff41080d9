// Stage 6 of a command, complete: its request has come back from the device, or a check or its
// handler has ended it. The task gets its status and its sense data, gives back what it holds, is
// counted, and leaves the task set. end is the only way into the state completed.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// requestDone is every request's Done.
func requestDone(req *block.Request) {
	t := req.Ctx.(*Task)
	st := &t.state
	if st.phase == aborting {
		t.end(sense.StatusGood)
		return
	}
	st.to(enabled)
	if req.Status != block.OK {
		status, s := st.u.outcome(req)
		if status == sense.StatusCheckCondition {
			t.fault(s)
		} else {
			t.end(status)
		}
		return
	}
	st.u.wrote(req.Op)
	st.then(t)
}

// check ends the task with CHECK CONDITION.
func (t *Task) check(c sense.Code) { t.fault(sense.Data{Code: c}) }

// fault ends the task with CHECK CONDITION and this sense data.
func (t *Task) fault(s sense.Data) {
	descriptor := t.state.u != nil && t.state.u.mode.DSense
	t.Sense = s.Encode(t.senseBuf[:0:len(t.senseBuf)][:len(t.senseBuf)], descriptor)
	t.end(sense.StatusCheckCondition)
}

// good ends the task well.
func (t *Task) good() { t.end(sense.StatusGood) }

// reply is Data-In that a handler builds; a command answers at most what its
// allocation length allows.
func (t *Task) reply(data []byte, allocation int) {
	data = data[:min(len(data), allocation)]
	t.InTotal = len(data)
	if n := min(len(data), max(t.MaxIn, 0)); n > 0 {
		buf := t.Bufs.Get(n)[:n]
		copy(buf, data)
		t.state.in[0] = buf
		t.DataIn = t.state.in[:]
	}
	t.good()
}

// finish sends parameter data that begins with AVAILABLE DATA.
func (t *Task) finish(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	t.reply(b, allocation16(t.CDB))
}

// allocation16 is the ALLOCATION LENGTH of the 16-byte IN commands.
func allocation16(cdb []byte) int { return int(min(binary.BigEndian.Uint32(cdb[10:]), 1<<30)) }

// end completes the task: it leaves the task set, is counted, and Done is due. status is GOOD
// when the task was aborted.
func (t *Task) end(status byte) {
	st := &t.state
	was := st.phase
	st.to(completed)
	t.Status = status
	if status != sense.StatusGood && status != sense.StatusConditionMet {
		t.DataIn, t.InTotal = nil, 0
	}
	if c := st.continuation; c != nil {
		st.continuation = nil
		c.release(t)
	}
	if was == aborting {
		t.DataIn, t.InTotal, t.Sense = nil, 0, nil
		if st.reportTaskAborted {
			t.Status = sense.StatusTaskAborted
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

// count counts a task that ends. Aborted tasks count as failed.
func (u *Unit) count(t *Task, aborted bool, now int64) {
	st := &t.state
	op := counters.Other
	if st.row != nil {
		op = st.row.kind
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

// describe counts the bytes that an offload describes.
func (u *Unit) describe(op counters.Op, bytes uint64) { u.stats.Describe(op, bytes) }

// took counts how long a unit's part in a copy lasted, in nanoseconds; count counts it as a command.
func (u *Unit) took(op counters.Op, ns int64) { u.stats.Took(op, ns) }

func (x *itl) count(op counters.Op, o counters.Outcome) { x.stats.Count(op, o) }

// volume returns the name by which the unit is counted.
func (u *Unit) volume() string { return u.stats.Name() }

// afterCopy ends a task whose operation is over.
func (t *Task) afterCopy(sam byte, s sense.Data, counted bool) {
	st := &t.state
	st.countedByCopy = counted
	if st.phase == aborting {
		t.end(sense.StatusGood)
		return
	}
	st.to(enabled)
	if sam == sense.StatusCheckCondition {
		t.fault(s)
		return
	}
	t.end(sam)
}

// outsource says that others carry out the task, which then end it by afterCopy.
func (t *Task) outsource(o outsourced) {
	t.state.continuation = o
	t.state.to(atDevice)
}

// countedElsewhere says that the task's command is counted by its operation, for each unit that
// took part.
func (t *Task) countedElsewhere() { t.state.countedByCopy = true }
