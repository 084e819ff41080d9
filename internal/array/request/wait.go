// How a request waits for room in a partition, for an offload budget, for the log and for its turn,
// and what is booked of that.

package request

import (
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// wait queues the op in its partition; front says that it stood at the head there.
func (o *op) wait(front bool) {
	p := o.v.Pool()
	o.lack(ticket.Room)
	p.Part.Wait(&o.claim, &o.Ticket, front)
	now := max(1, o.e.exec.Now())
	if o.Since == 0 {
		o.Since = now
	}
	if o.since == 0 {
		o.since = now
		p.Waiting(o.origin, int64(o.stop-o.cur)*block.SectorSize)
	}
	o.e.watchFn() // what should make room may be stuck
	p.Part.Kick()
}

// stopWaiting books what the op has waited, if it has.
func (o *op) stopWaiting() {
	p := o.v.Pool()
	o.claim.Unbook()
	if o.since != 0 {
		if waited := o.e.exec.Now() - o.since; waited > 0 { // else it was only queued for its turn
			p.Waited(o.origin, waited)
		}
		p.Waiting(o.origin, -int64(o.stop-o.cur)*block.SectorSize)
		o.since = 0
	}
	if o.throttled != 0 {
		p.WaitedForBudget(o.origin, o.e.exec.Now()-o.throttled)
		o.throttled = 0
	}
}

// waitForLog queues the op until the log has room for so many edits.
func (o *op) waitForLog(edits int) {
	o.logEdits = edits
	o.await(&o.e.wakes.log)
	o.e.watchFn()
}

// throttle queues an offload behind the budget of its pool or host.
func (o *op) throttle() {
	o.stopWaiting()
	now := max(1, o.e.exec.Now())
	if o.throttled == 0 {
		o.throttled = now
	}
	if o.Since == 0 {
		o.Since = now
	}
	o.await(o.v.Pool().Part.BudgetQueue(o.host))
	o.v.Pool().Part.Relieved()
	o.e.watchFn() // what should make room may be stuck
	o.v.Pool().Part.Kick()
}

// StepPieces is the number of pieces that long writes and copies commit, all of them together, before
// they let others into the executor.
const StepPieces = 16

// yield lets an op go on after others had their turn.
func (e *Engine) yield(o *op) {
	o.await(&e.wakes.turns.Queue)
	e.nextTurn()
}

func (e *Engine) nextTurn() {
	if e.wakes.turns.Due() {
		e.exec.At(e.exec.Now(), e.wakes.turnFn)
	}
}

// turn lets those who yielded go on.
func (e *Engine) turn() {
	e.wakes.turns.Go(e.exec.Now())
	e.nextTurn()
	e.EndStep()
}

// again has the op try once more what more garbage may make room for: when others had their turn, or when
// the garbage is there that has to be collected next.
func (o *op) again() { o.hope(o.e.arena.GarbageReads(o.v.Pool().Alloc)) }

// letCollect lets others have their turn, who make less of what the op would have more collected of.
func (o *op) letCollect() { o.hope(o.e.arena.GarbageRead()) }

// hope has the op wait for a leaf of the garbage, or for its turn if it is nil.
func (o *op) hope(q *ticket.Queue) {
	if q == nil {
		o.e.yield(o)
		return
	}
	o.needs.hopes = true
	o.await(q)
}
