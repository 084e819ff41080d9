// Stage 2 of a command, enable: which tasks of a set may run (SAM-5 8.6), and the front end's delay
// before one does. Later stages come back here alone: a task that ends or is aborted lets others run.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sam"
)

// schedule enables the tasks that need not wait any longer: an ORDERED task when
// it is the oldest, a SIMPLE task when no ORDERED one is older; none of them
// before the HEAD OF QUEUE tasks have ended (SAM-5 8.6).
func (u *Unit) schedule() {
	if u.paused > 0 {
		return
	}
	u.paused++ // a task that ends at once must not recurse
	u.t.Enter()
	defer func() { u.paused--; u.t.Leave() }()
	// Whoever is enabled may have ended at once and changed the list: look anew.
	for t := u.nextDormant(); t != nil; t = u.nextDormant() {
		t.enable()
	}
}

// nextDormant returns the oldest task that waits and need not.
func (s *taskSet) nextDormant() *Task {
	if s.heads > 0 {
		return nil
	}
	oldest := true
	for t := s.first; t != nil; t = t.state.next {
		if t.state.phase == completed {
			continue // it is about to leave
		}
		ordered := t.Attr == sam.AttrOrdered
		if t.state.phase == dormant && (oldest || !ordered) {
			return t
		}
		if ordered {
			return nil
		}
		oldest = false
	}
	return nil
}

// enable runs a dormant task, when the delay of the target's front end is over.
func (t *Task) enable() {
	st := &t.state
	tg := st.n.t
	if tg.opt.Delay != nil {
		if d := tg.opt.Delay(t); d > 0 {
			st.to(delayed)
			if st.resume == nil {
				st.resume = t.afterDelay
			}
			block.CallIn(tg.exec, block.LaneFrontEnd, tg.exec.Now()+d, st.resume)
			return
		}
	}
	st.to(enabled)
	t.run()
}

func (t *Task) afterDelay() {
	st := &t.state
	if st.phase == aborting {
		t.End(sam.StatusGood)
		return
	}
	st.to(enabled)
	t.run()
}
