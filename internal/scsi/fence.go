// A copy uses units that its command did not come to, and with IMMED=1 it outlives its command.
// So what fences a unit (a reset, PREEMPT AND ABORT, a change of its reservation, an erasure)
// looks at all copy operations, ends those that concern it, and is answered when they are over:
// nothing lands on a unit after its fence or its erasure has answered.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// fence ends the operations that use the unit and for which verdict has another status than
// GOOD: they get that from the unit. w, which may be nil, waits for them.
func (u *Unit) fence(w *waiter, what scope, verdict func(o *operation, x *itl, how use) (byte, sense.Code)) {
	u.t.flush()
	for _, o := range slices.Clone(u.t.operations) {
		x, how := o.work.uses(o, u, what)
		if how == 0 {
			continue
		}
		status, why := verdict(o, x, how)
		if status == sense.StatusGood {
			continue
		}
		o.await(w)
		o.interrupt(interruption{u, status, why})
	}
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
func aborts(_ *operation, _ *itl, how use) (byte, sense.Code) {
	if how == usesData {
		return sense.StatusGood, sense.NoSense
	}
	return sense.StatusTaskAborted, sense.NoSense
}

// endOperations stops the operations that match and whose command has ended; those that have a
// task end with it. w waits for all of them.
func (t *Target) endOperations(w *waiter, match func(*operation) bool) {
	t.flush()
	for _, o := range slices.Clone(t.operations) {
		if !match(o) {
			continue
		}
		o.await(w)
		if o.task == nil {
			o.stop()
		}
	}
}

// dropCopies terminates the operations of the I_T_L nexus that have no task any
// more, and forgets all results.
func (x *itl) dropCopies() {
	for _, r := range x.copies {
		if r.op != nil && r.op.task == nil {
			r.op.stop()
		}
	}
	x.copies = nil
}
