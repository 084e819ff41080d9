// How a task ends before its time: by a task management function, by another nexus's PREEMPT AND ABORT, or because
// its unit goes away. A request that has started runs to its end first.

package scsi

// abort ends the task without a response, or, when another nexus than by's asked
// for it, with TASK ABORTED (the control mode page says TAS=1). A request that
// waits for admission is withdrawn; one that has started runs to its end first.
func (t *Task) abort(w *waiter, by *Nexus) {
	st := &t.state
	if st.phase == over {
		return
	}
	w.left++
	st.waiters = append(st.waiters, w)
	if st.aborted {
		return
	}
	st.aborted = true
	st.told = by != nil && by != st.n
	if st.inDevice {
		st.withdraw()
		return
	}
	t.end(StatusGood)
}

func (st *taskState) withdraw() {
	if st.delayed {
		return // it ends when the delay is over
	}
	if o, ok := st.multi.(*operation); ok {
		o.withdraw()
		return
	}
	st.u.dev.Cancel(&st.req)
}

// abortWhere aborts the unit's tasks that match. No task is enabled before all
// of them are marked.
func (u *Unit) abortWhere(w *waiter, by *Nexus, match func(*Task) bool) {
	u.paused++
	for _, t := range u.tasks() {
		if match(t) {
			t.abort(w, by)
		}
	}
	u.paused--
	u.schedule()
}

// expel ends a task because its unit is removed.
func (u *Unit) expel(t *Task) {
	st := &t.state
	switch {
	case st.phase == over || st.aborted:
	case st.inDevice:
		st.withdraw()
	default:
		t.check(lunNotSupported)
	}
}
