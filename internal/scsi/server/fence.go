// A copy uses units that its command did not come to, and with IMMED=1 it outlives its command.
// So what fences a unit (a reset, PREEMPT AND ABORT, a change of its reservation, an erasure)
// has the copy manager end those operations that concern it, and is answered when they are over:
// nothing lands on a unit after its fence or its erasure has answered.

package server

import (
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// CopyManager is the copy manager as the rest of the target knows it: it has operations that use
// units, results that I_T_L nexuses can ask for, and tokens that hold what units held. Fence, Stop, Unmap and
// UnmapLeft are called when all requests are with their devices, so that each can be withdrawn there.
type CopyManager interface {
	// Fence ends the operations that use the unit and get another status than GOOD from verdict. w, which may be nil, waits for them.
	Fence(u *Unit, w *Waiter, what Scope, verdict Verdict)
	// Stop stops the operations that came on an I_T_L nexus that matches and whose command has
	// ended; those that have a task end with it. w waits for all of them.
	Stop(w *Waiter, match func(*ITL) bool)
	// Unmap ends the operations that came on an I_T_L nexus that its nexus sees no longer, or that use
	// its unit by it. w, which may be nil, waits for them.
	Unmap(x *ITL, w *Waiter)
	// UnmapLeft ends the unit's parts in operations elsewhere by I_T_L nexuses that match, and that their nexuses see no
	// longer, or whose nexuses have ended. w waits for what these parts have under way.
	UnmapLeft(u *Unit, w *Waiter, match func(*ITL) bool)
	// Drop stops the operations of the I_T_L nexus that have no task any more, and forgets all its results.
	Drop(x *ITL)
	// Revoke makes the tokens of a unit, or with nil of all, invalid, so that no reference to its
	// device is left but by operations that run.
	Revoke(u *Unit)
	// Offloads appends those operations whose command has ended.
	Offloads(out []Offload) []Offload
}

// Verdict is what a unit says to an operation that came on from and uses it by x.
type Verdict func(from, x *ITL, how Use) (status byte, why sense.Code)

// Use is what a copy operation does with a unit.
type Use uint8

const (
	UsesRead  Use = 1 << iota // reads it
	UsesWrite                 // writes it
	UsesData                  // has a token's reference to what it held
)

// Scope is which part of an operation is looked at.
type Scope uint8

const (
	Step Scope = iota // what it does now
	Rest              // what is left of it
)

// Outsourced is the continuation of a task that others carry out, by requests of their own: an
// operation of the copy manager.
type Outsourced interface {
	Continuation
	// Withdraw ends it as soon as its present request has ended or can be withdrawn.
	Withdraw()
	// Offload describes it to those who watch.
	Offload() Offload
}

// Piecewise is the continuation of a command that may wait for memory, enabled, and then has its device do more.
type Piecewise interface{ Piecewise() }

// Fence ends the copies that use the unit as verdict says.
func (u *Unit) Fence(w *Waiter, what Scope, verdict Verdict) {
	u.t.Flush()
	u.t.copies.Fence(u, w, what, verdict)
}

// Quiet has w wait for what has begun: the unit's commands but one, and its copies, which end as verdict says.
func (u *Unit) Quiet(w *Waiter, except *Task, what Scope, verdict Verdict) {
	u.Fence(w, what, verdict)
	for x := u.first; x != nil; x = x.state.next {
		_, copies := x.state.continuation.(Outsourced)
		_, pieces := x.state.continuation.(Piecewise)
		if !copies && x != except && (pieces || x.state.phase.elsewhere()) {
			w.Await(x)
		}
	}
}

// StopCopies stops the copies that came on an I_T_L nexus that matches.
func (t *Target) StopCopies(w *Waiter, match func(*ITL) bool) {
	t.Flush()
	t.copies.Stop(w, match)
}

// Shut keeps from the unit what copies of these nexuses that have arrived are yet to begin.
func (u *Unit) Shut(against func(*Nexus) bool) {
	for _, x := range u.itls {
		if against(x.n) {
			x.fenced = u.t.arrivals
		}
	}
}

// Aborts is the verdict of a reset: whoever reads or writes the unit is told that it was aborted.
func Aborts(_, _ *ITL, how Use) (byte, sense.Code) {
	if how == UsesData {
		return sam.StatusGood, sense.NoSense
	}
	return sam.StatusTaskAborted, sense.NoSense
}

// revokes is the verdict of what takes the unit's data away: who only has a token of it hears that this is revoked, others why.
func revokes(why sense.Code) Verdict {
	return func(_, _ *ITL, how Use) (byte, sense.Code) {
		if how == UsesData {
			return sam.StatusCheckCondition, sense.TokenRevoked
		}
		return sam.StatusCheckCondition, why
	}
}

// RevokeTokens makes all ROD tokens invalid: no reference to a device is left by them.
func (t *Target) RevokeTokens() { t.copies.Revoke(nil) }
