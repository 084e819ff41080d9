// Handlers of RESERVE and RELEASE (SPC-2), and how every command ends that has changed a
// reservation of either kind: the change holds at once, the answer comes when what it excludes is
// over and what it has to save is durable.

package spc

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Reserve serves RESERVE(6) and (10) of the whole unit. Persistent
// registrations exclude it (CRH=0, SPC-5 5.14.3).
func Reserve(t *server.Task) {
	if len(t.Unit().Reservation().Registrations()) > 0 {
		t.End(sam.StatusReservationConflict)
		return
	}
	if t.CDB[1]&0x1F != 0 { // third-party and extent reservations are obsolete
		t.Fault(sense.InCDB(1, 4))
		return
	}
	t.Unit().SetSPC2Holder(t.ITL())
	settleChange(t, false, nil)
}

// Release serves RELEASE(6) and (10): releasing what one does not hold is no
// error.
func Release(t *server.Task) {
	if len(t.Unit().Reservation().Registrations()) > 0 {
		t.End(sam.StatusReservationConflict)
		return
	}
	if t.CDB[1]&0x1F != 0 {
		t.Fault(sense.InCDB(1, 4))
		return
	}
	if t.Unit().SPC2Holder() == t.ITL() {
		t.Unit().SetSPC2Holder(nil)
	}
	t.Good()
}

// settleChange ends a command that has changed the unit's reservations: when the copies that they
// exclude now are over, when the tasks and copies of preempted are (PREEMPT AND ABORT), and, of
// persistent reservations, when they are saved. APTPL=0 is saved, too: another process that takes
// the unit over is no loss of power, and a host that is fenced stays so. What is saved is saved at
// once, so that a command that is aborted while it waits leaves the same behind as one that is
// not.
func settleChange(t *server.Task, persistent bool, preempted []reservation.Nexus) {
	u := t.Unit()
	tg := u.Target()
	tg.Enter()
	defer tg.Leave()
	tg.Flush()
	pause, failed := t.Pause(), false
	end := func() {
		switch {
		case pause.Over(t):
		case failed:
			t.Check(sense.InternalFailure)
		default:
			t.Good()
		}
	}
	w := server.NewWaiter(end)
	if persistent {
		w.More()
		u.Save(func(err error) {
			failed = err != nil
			w.Less(tg)
		})
	}
	if len(preempted) > 0 {
		abortPreempted(u, w, t, preempted)
	}
	u.Fence(w, server.Step, func(_, x *server.ITL, how server.Use) (byte, sense.Code) {
		if how&(server.UsesRead|server.UsesWrite) != 0 && x.Excluded(how&server.UsesWrite != 0) {
			return sam.StatusReservationConflict, sense.NoSense
		}
		return sam.StatusGood, sense.NoSense
	})
	if w.Idle() { // nothing to wait for
		end()
		return
	}
	w.Less(tg)
}

// abortPreempted aborts what the nexuses that lost their registration have under way on the
// unit, except the command itself; w waits for it. What they prevent of the medium they allow (SPC-4
// 5.12.11.5): a host that is fenced will not.
func abortPreempted(u *server.Unit, w *server.Waiter, by *server.Task, preempted []reservation.Nexus) {
	lost := func(n *server.Nexus) bool {
		return slices.Contains(preempted, n.Registrant())
	}
	for _, n := range u.Target().Nexuses() {
		for _, x := range n.ITLs() {
			if x != nil && x.Unit() == u && lost(n) {
				x.SetPrevent(false)
			}
		}
	}
	u.AbortOf(w, by.Nexus(), by, func(x *server.ITL) bool { return lost(x.Nexus()) })
	u.Shut(lost)
	u.Fence(w, server.Rest, func(from, x *server.ITL, how server.Use) (byte, sense.Code) {
		if lost(from.Nexus()) {
			return server.Aborts(from, x, how)
		}
		return sam.StatusGood, sense.NoSense
	})
	u.Target().StopCopies(w, func(x *server.ITL) bool { return x.Unit() == u && lost(x.Nexus()) })
}
