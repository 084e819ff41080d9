// Task management functions (SAM-5 clause 7), and the fence that a front end asks for. Each is
// answered when all that it ends has ended; the waiter counts what is left.

package server

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Manage carries out a task management function. done is called, never from
// inside Manage, when all tasks that it affects have ended. Tasks of this nexus
// that it aborted end with Aborted set, those of other nexuses with TASK ABORTED.
func (n *Nexus) Manage(fn sam.TMF, lun, tag uint64, done func(sam.TMFResponse)) {
	t := n.t
	t.Enter()
	defer t.Leave()
	t.Flush()
	if fn == sam.TargetWarmReset || fn == sam.TargetColdReset {
		t.resetAll(n, fn, done)
		return
	}
	x := n.lookup(lun)
	answer := sam.TMFComplete
	w := NewWaiter(func() { done(answer) })
	left := false // what came by the LUN before another unit, or none, was there, and still runs
	switch i, ok := names.ParseLUN(lun); fn {
	case sam.AbortTask, sam.AbortTaskSet, sam.ClearTaskSet, sam.LogicalUnitReset:
		left = ok && n.abortLeft(w, func(k *Task) bool { return int(k.state.itl.lun) == i && (fn != sam.AbortTask || k.Tag == tag) })
	}
	if x == nil { // so no more of the unit is reset than that
		if !left || fn != sam.AbortTask && fn != sam.AbortTaskSet {
			answer = sam.TMFNoLUN
		}
		w.Less(t)
		return
	}
	u := x.u
	switch fn {
	case sam.AbortTask:
		if !left {
			answer = sam.TMFNoTask
		}
		u.abortWhere(w, n, func(k *Task) bool {
			if k.Tag != tag || k.state.itl != x {
				return false
			}
			answer = sam.TMFComplete
			return true
		})
	case sam.AbortTaskSet:
		u.abortWhere(w, n, func(k *Task) bool { return k.state.itl == x })
	case sam.ClearTaskSet:
		u.AbortOf(w, n, nil, func(*ITL) bool { return true })
	case sam.LogicalUnitReset:
		u.reset(w, n, nil)
	case sam.ResetBehind:
		u.reset(w, n, x)
	case sam.ClearACA:
		answer = sam.TMFNotSupported
	default:
		answer = sam.TMFRejected
	}
	w.Less(t)
}

// reset is a logical unit reset (SAM-5 6.3.3): tasks and the copies that use the unit, wherever
// their commands came, but by behind, are aborted; SPC-2 reservations, removal prevention and mode
// pages go back; persistent reservations stay.
func (u *Unit) reset(w *Waiter, by *Nexus, behind *ITL) {
	u.AbortOf(w, by, nil, func(x *ITL) bool { return x != behind })
	u.Shut(func(n *Nexus) bool { return behind == nil || n != behind.n })
	u.Fence(w, Rest, func(from, x *ITL, how Use) (byte, sense.Code) {
		if behind != nil && from == behind {
			return sam.StatusGood, sense.NoSense
		}
		return Aborts(from, x, how)
	})
	u.t.StopCopies(w, func(x *ITL) bool { return x.u == u })
	u.spc2Holder = nil
	u.mode = u.savedMode
	for _, x := range u.itls {
		x.prevent = false
		u.t.copies.Drop(x)
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
func (t *Target) resetAll(n *Nexus, fn sam.TMF, done func(sam.TMFResponse)) {
	w := NewWaiter(func() {
		done(sam.TMFComplete)
		if fn == sam.TargetColdReset {
			t.comeUp(n)
		}
	})
	n.abortLeft(w, func(*Task) bool { return true })
	for _, x := range n.luns {
		if x == nil {
			continue
		}
		x.u.reset(w, n, nil)
		if fn == sam.TargetColdReset {
			x.u.Establish(sense.UAPowerOn, nil)
		}
	}
	w.Less(t)
}

// comeUp tells the front ends of the nexuses that see a unit of by's to end them.
func (t *Target) comeUp(by *Nexus) {
	for _, m := range slices.Clone(t.nexuses) {
		shares := func(x *ITL) bool { return x != nil && by.Sees(x.u) }
		if m.onReset != nil && (m == by || slices.ContainsFunc(m.luns, shares)) {
			m.onReset()
		}
	}
}
