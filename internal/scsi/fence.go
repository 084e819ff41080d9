// A copy uses units that its command did not come to, and with IMMED=1 it outlives its command.
// So what fences a unit (a reset, PREEMPT AND ABORT, a change of its reservation, an erasure)
// has the copy manager end those operations that concern it, and is answered when they are over:
// nothing lands on a unit after its fence or its erasure has answered.

package scsi

import "github.com/arraysim/arraysim/internal/scsi/sense"

// copyManager is the copy manager as the rest of the target knows it: it has operations that use
// units, results that I_T_L nexuses can ask for, and tokens that hold what units held. None of its
// methods is called while requests wait to be submitted.
type copyManager interface {
	// fence ends the operations that use the unit and for which verdict has another status than
	// GOOD: they get that from the unit. w, which may be nil, waits for them.
	fence(u *Unit, w *waiter, what scope, verdict verdict)
	// stop stops the operations that came on an I_T_L nexus that matches and whose command has
	// ended; those that have a task end with it. w waits for all of them.
	stop(w *waiter, match func(*itl) bool)
	// drop stops the operations of the I_T_L nexus that have no task any more, and forgets all its
	// results.
	drop(x *itl)
	// revoke makes the tokens of a unit, or with nil of all, invalid, so that no reference to its
	// device is left but by operations that run.
	revoke(u *Unit)
	// offloads appends those operations whose command has ended.
	offloads(out []Offload) []Offload
}

// verdict is what a unit says to an operation that came on from and uses it by x.
type verdict func(from, x *itl, how use) (status byte, why sense.Code)

// use is what a copy operation does with a unit.
type use uint8

const (
	usesRead  use = 1 << iota // reads it
	usesWrite                 // writes it
	usesData                  // has a token's reference to what it held
)

// scope is which part of an operation is looked at.
type scope uint8

const (
	step scope = iota // what it does now
	rest              // what is left of it
)

// outsourced is the continuation of a task that others carry out, by requests of their own: an
// operation of the copy manager.
type outsourced interface {
	continuation
	// withdraw ends it as soon as its present request has ended or can be withdrawn.
	withdraw()
	offload() Offload
}

// noCopies is the copy manager of a target without one.
type noCopies struct{}

func (noCopies) fence(*Unit, *waiter, scope, verdict) {}
func (noCopies) stop(*waiter, func(*itl) bool)        {}
func (noCopies) drop(*itl)                            {}
func (noCopies) revoke(*Unit)                         {}
func (noCopies) offloads(out []Offload) []Offload     { return out }

// fence ends the copies that use the unit as verdict says.
func (u *Unit) fence(w *waiter, what scope, verdict verdict) {
	u.t.flush()
	u.t.copies.fence(u, w, what, verdict)
}

// stopCopies stops the copies that came on an I_T_L nexus that matches.
func (t *Target) stopCopies(w *waiter, match func(*itl) bool) {
	t.flush()
	t.copies.stop(w, match)
}

// shut keeps from the unit what copies of these nexuses that have arrived are yet to begin.
func (u *Unit) shut(against func(*Nexus) bool) {
	for _, x := range u.itls {
		if against(x.n) {
			x.fenced = u.t.arrivals
		}
	}
}

// aborts is the verdict of a reset: whoever reads or writes the unit is told that it was aborted.
func aborts(_, _ *itl, how use) (byte, sense.Code) {
	if how == usesData {
		return sense.StatusGood, sense.NoSense
	}
	return sense.StatusTaskAborted, sense.NoSense
}

// RevokeTokens makes all ROD tokens invalid, so that no reference to a device is
// left; for the end of the target's life.
func (t *Target) RevokeTokens() { t.copies.revoke(nil) }
