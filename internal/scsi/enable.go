// Stage 2 of a command, enable: which tasks of a set may run (SAM-5 8.6), and the delay of the front
// end before one does.

package scsi

import "github.com/arraysim/arraysim/internal/block"

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
