// Handlers of RESERVE and RELEASE (SPC-2), and how every command ends that has changed a
// reservation of either kind: the change holds at once, the answer comes when what it excludes is
// over and what it has to save is durable.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// doReserve serves RESERVE(6) and (10) of the whole unit. Persistent
// registrations exclude it (CRH=0, SPC-5 5.14.3).
func doReserve(t *Task) {
	st := &t.state
	if len(st.u.pr.Registrations()) > 0 {
		t.end(sense.StatusReservationConflict)
		return
	}
	if t.CDB[1]&0x1F != 0 { // third-party and extent reservations are obsolete
		t.fault(sense.InCDB(1, 4))
		return
	}
	st.u.spc2Holder = st.itl
	t.settleChange(false, nil)
}

// doRelease serves RELEASE(6) and (10): releasing what one does not hold is no
// error.
func doRelease(t *Task) {
	st := &t.state
	if len(st.u.pr.Registrations()) > 0 {
		t.end(sense.StatusReservationConflict)
		return
	}
	if t.CDB[1]&0x1F != 0 {
		t.fault(sense.InCDB(1, 4))
		return
	}
	if st.u.spc2Holder == st.itl {
		st.u.spc2Holder = nil
	}
	t.good()
}

// settleChange ends a command that has changed the unit's reservations: when the copies that they
// exclude now are over, when the tasks and copies of preempted are (PREEMPT AND ABORT), and, of
// persistent reservations with APTPL=1, when they survive power loss. What is saved is saved at
// once, so that a command that is aborted while it waits leaves the same behind as one that is
// not.
func (t *Task) settleChange(persistent bool, preempted []reservation.Nexus) {
	u := t.state.u
	tg := u.t
	tg.enter()
	defer tg.leave()
	tg.flush()
	pause, failed := t.pause(), false
	end := func() {
		switch {
		case pause.over(t):
		case failed:
			t.check(sense.InternalFailure)
		default:
			t.good()
		}
	}
	w := newWaiter(end)
	if persistent && u.pr.ToSave() {
		w.left++
		u.save(func(err error) {
			failed = err != nil
			w.less(tg)
		})
	}
	if len(preempted) > 0 {
		u.abortPreempted(w, t, preempted)
	}
	u.fence(w, step, func(_, x *itl, how use) (byte, sense.Code) {
		if how&(usesRead|usesWrite) != 0 && x.excluded(how&usesWrite != 0) {
			return sense.StatusReservationConflict, sense.NoSense
		}
		return sense.StatusGood, sense.NoSense
	})
	if w.left == 1 { // nothing to wait for
		end()
		return
	}
	w.less(tg)
}

// abortPreempted aborts what the nexuses that lost their registration have under way on the
// unit, except the command itself; w waits for it.
func (u *Unit) abortPreempted(w *waiter, by *Task, preempted []reservation.Nexus) {
	lost := func(n *Nexus) bool {
		return slices.Contains(preempted, n.it())
	}
	u.abortWhere(w, by.state.n, func(k *Task) bool { return k != by && lost(k.state.n) })
	u.shut(lost)
	u.fence(w, rest, func(from, x *itl, how use) (byte, sense.Code) {
		if lost(from.n) {
			return aborts(from, x, how)
		}
		return sense.StatusGood, sense.NoSense
	})
	u.t.stopCopies(w, func(x *itl) bool { return x.u == u && lost(x.n) })
}
