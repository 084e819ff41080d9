// How a task ends before its time: by a task management function, by another nexus's PREEMPT AND
// ABORT, or because its LUN goes away. What a device or the front end has is withdrawn where
// that is possible, and else runs to its end first; everything else ends at once.

package server

import (
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// abort ends the task without a response, or, when another nexus than by's asked
// for it, with TASK ABORTED (the control mode page says TAS=1). w waits for its end.
func (t *Task) abort(w *Waiter, by *Nexus) {
	st := &t.state
	was := st.phase
	if w.Await(t); was == completed || was == aborting {
		return
	}
	st.reportTaskAborted = by != nil && by != st.n
	st.to(aborting)
	switch was {
	case atDevice:
		st.Withdraw()
	case delayed: // it ends when the delay is over
	default:
		t.End(sam.StatusGood)
	}
}

// Withdraw asks for the request, or the copy operation, of a task whose state is or was atDevice.
func (st *taskState) Withdraw() {
	if o, ok := st.continuation.(Outsourced); ok {
		o.Withdraw()
		return
	}
	st.u.dev.Cancel(&st.req)
}

// expel ends a task because its LUN has gone. w, which may be nil, waits for its end.
func (t *Task) expel(w *Waiter) {
	st := &t.state
	w.Await(t)
	switch st.phase {
	case delayed, aborting, completed: // it ends, or has ended, without help
	case atDevice:
		st.Withdraw()
	default:
		t.Check(sense.LUNNotSupported)
	}
}

// abortWhere aborts the unit's tasks that match. No task is enabled before all of them are marked.
func (u *Unit) abortWhere(w *Waiter, by *Nexus, match func(*Task) bool) {
	u.paused++
	for _, t := range u.tasks() {
		if match(t) {
			t.abort(w, by)
		}
	}
	u.paused--
	u.schedule()
}

// AbortOf aborts the unit's tasks of the I_T_L nexuses that match, but one, and what nexuses other than by have begun to send of
// further ones: those end when they are here.
func (u *Unit) AbortOf(w *Waiter, by *Nexus, except *Task, match func(*ITL) bool) {
	for _, x := range u.itls {
		if x.n != by && x.n.countRemap != nil && match(x) {
			x.cut = x.n.countRemap()
		}
	}
	u.abortWhere(w, by, func(t *Task) bool { return t != except && match(t.state.itl) })
}
