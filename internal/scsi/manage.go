// Task management functions (SAM-5 clause 7), and the fence that a front end asks for. Each is
// answered when all that it ends has ended; the waiter counts what is left.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Manage carries out a task management function. done is called, never from
// inside Manage, when all tasks that it affects have ended. Tasks of this nexus
// that it aborted end with Aborted set, those of other nexuses with TASK ABORTED.
func (n *Nexus) Manage(fn TMF, lun, tag uint64, done func(TMFResponse)) {
	t := n.t
	t.enter()
	defer t.leave()
	t.flush()
	if fn == TargetWarmReset || fn == TargetColdReset {
		t.resetAll(n, fn, done)
		return
	}
	x := n.lookup(lun)
	if x == nil {
		t.call(func() { done(TMFNoLUN) })
		return
	}
	u := x.u
	answer := TMFComplete
	w := newWaiter(func() { done(answer) })
	switch fn {
	case AbortTask:
		answer = TMFNoTask
		u.abortWhere(w, n, func(k *Task) bool {
			if k.Tag != tag || k.state.itl != x {
				return false
			}
			answer = TMFComplete
			return true
		})
	case AbortTaskSet:
		u.abortWhere(w, n, func(k *Task) bool { return k.state.itl == x })
	case ClearTaskSet:
		u.clearTasks(w, n, sense.UACommandsCleared)
	case LogicalUnitReset:
		u.reset(w, n)
	case ClearACA:
		answer = TMFNotSupported
	default:
		answer = TMFRejected
	}
	w.less(t)
}

// clearTasks aborts every task of the unit and tells the other nexuses that lost
// one.
func (u *Unit) clearTasks(w *waiter, by *Nexus, ua sense.Attentions) {
	u.abortWhere(w, by, func(k *Task) bool {
		if x := k.state.itl; x.n != by {
			x.ua |= ua
		}
		return true
	})
}

// reset is a logical unit reset (SAM-5 6.3.3): tasks and the copies that use the unit, wherever
// their commands came, are aborted; SPC-2 reservations, removal prevention and mode pages go
// back; persistent reservations stay.
func (u *Unit) reset(w *waiter, by *Nexus) {
	u.abortWhere(w, by, func(*Task) bool { return true })
	u.shut(func(*Nexus) bool { return true })
	u.fence(w, rest, aborts)
	u.t.stopCopies(w, func(x *itl) bool { return x.u == u })
	u.spc2Holder = nil
	u.mode = u.savedMode
	for _, x := range u.itls {
		x.prevent = false
		u.t.copies.drop(x)
		x.ua |= sense.UAReset
	}
}

// OnReset registers what the front end does when a TARGET COLD RESET of units that the nexus sees
// has been answered: it ends the nexus, as a target does that comes up again. It is called on the
// executor.
func (n *Nexus) OnReset(fn func()) { n.onReset = fn }

// resetAll resets every unit that the nexus can see: a reset by one initiator must not reach what
// is hidden from it. A cold one then ends the nexuses that see one of these units, and no others,
// though RFC 7143 11.5.1 speaks of all sessions: who shares nothing with the initiator has
// another target, as far as it can tell.
func (t *Target) resetAll(n *Nexus, fn TMF, done func(TMFResponse)) {
	w := newWaiter(func() {
		done(TMFComplete)
		if fn == TargetColdReset {
			t.comeUp(n)
		}
	})
	for _, x := range n.luns {
		if x == nil {
			continue
		}
		x.u.reset(w, n)
		if fn == TargetColdReset {
			x.u.establish(sense.UAPowerOn, nil)
		}
	}
	w.less(t)
}

// comeUp tells the front ends of the nexuses that see a unit of by's to end them.
func (t *Target) comeUp(by *Nexus) {
	for _, m := range slices.Clone(t.nexuses) {
		shares := func(x *itl) bool { return x != nil && by.sees(x.u) }
		if m.onReset != nil && (m == by || slices.ContainsFunc(m.luns, shares)) {
			m.onReset()
		}
	}
}

// EndCopies ends the copies that use the unit of this LUN, those too that have arrived and are
// yet to begin: for a front end that keeps reservations itself, and knows that one fenced the
// unit, but not whose copies they are.
func (n *Nexus) EndCopies(lun uint64) {
	t := n.t
	t.enter()
	defer t.leave()
	if x := n.lookup(lun); x != nil {
		x.u.shut(func(*Nexus) bool { return true })
		x.u.fence(nil, rest, aborts)
	}
}
