package scsi

import "slices"

// A copy uses units that its command did not come to, and with IMMED=1 it outlives its command. So
// what fences a unit (a reset, PREEMPT AND ABORT, a change of its reservation, an erasure)
// looks at all copy operations, ends those that concern it, and is answered when they are over: nothing lands on
// a unit after its fence or its erasure has answered.

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

// interruption is why a unit ended an operation: what it would answer to the next request.
type interruption struct {
	u      *Unit // nil: none did
	status byte
	why    code
}

// interrupt ends the operation as soon as its present request has ended or can be withdrawn.
func (o *operation) interrupt(c interruption) {
	if o.over || o.cancelled() {
		return
	}
	o.cut, o.stopped = c, true
	o.withdraw()
}

// fence ends the operations that use the unit and for which verdict has another status than
// GOOD: they get that from the unit. w, which may be nil, waits for them.
func (u *Unit) fence(w *waiter, what scope, verdict func(o *operation, x *itl, how use) (byte, code)) {
	u.t.flush()
	for _, o := range slices.Clone(u.t.operations) {
		x, how := o.work.uses(o, u, what)
		if how == 0 {
			continue
		}
		status, why := verdict(o, x, how)
		if status == StatusGood {
			continue
		}
		o.await(w)
		o.interrupt(interruption{u, status, why})
	}
}

// EndCopies ends the copies that use the unit of this LUN, those too that have arrived and are yet to begin: for a front end that keeps reservations
// itself, and knows that one fenced the unit, but not whose copies they are.
func (n *Nexus) EndCopies(lun uint64) {
	t := n.t
	t.enter()
	defer t.leave()
	if x := n.lookup(lun); x != nil {
		x.u.shut(func(*Nexus) bool { return true })
		x.u.fence(nil, rest, aborts)
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
func aborts(_ *operation, _ *itl, how use) (byte, code) {
	if how == usesData {
		return StatusGood, noSense
	}
	return StatusTaskAborted, noSense
}

// await makes w, which may be nil, wait for the operation.
func (o *operation) await(w *waiter) {
	if w == nil || o.over {
		return
	}
	w.left++
	o.waiters = append(o.waiters, w)
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

// changing is the state of a command that has changed a reservation and waits for what that ends.
type changing struct{ _ byte }

func (*changing) end(*Task) {}

// settleChange ends a command that has changed the unit's reservations: when the copies that
// they exclude now are over, when the tasks and copies of preempted are (PREEMPT AND ABORT), and, of persistent
// reservations with APTPL=1, when they survive power loss. What is saved is saved at once, so that
// a command that is aborted while it waits leaves the same behind as one that is not.
func (u *Unit) settleChange(t *Task, persistent bool, preempted []*registration) {
	tg, p := u.t, &u.pr
	tg.enter()
	defer tg.leave()
	tg.flush()
	self, failed := &changing{}, false
	t.state.multi = self
	end := func() {
		switch {
		case t.state.multi != self: // the command was aborted meanwhile
		case failed:
			t.check(internalFailure)
		default:
			t.good()
		}
	}
	w := newWaiter(end)
	if persistent && (p.aptpl || p.kept) {
		p.kept = p.aptpl
		w.left++
		u.save(func(err error) {
			failed = err != nil
			w.less(tg)
		})
	}
	if len(preempted) > 0 {
		u.abortPreempted(w, t, preempted)
	}
	u.fence(w, step, func(_ *operation, x *itl, how use) (byte, code) {
		if how&(usesRead|usesWrite) != 0 && x.excluded(how&usesWrite != 0) {
			return StatusReservationConflict, noSense
		}
		return StatusGood, noSense
	})
	if w.left == 1 { // nothing to wait for
		end()
		return
	}
	w.less(tg)
}

// abortPreempted aborts what the nexuses that lost their registration have under way on the
// unit, except the command itself; w waits for it.
func (u *Unit) abortPreempted(w *waiter, by *Task, preempted []*registration) {
	lost := func(n *Nexus) bool {
		return slices.ContainsFunc(preempted, func(r *registration) bool { return r.is(n) })
	}
	u.abortWhere(w, by.state.n, func(k *Task) bool { return k != by && lost(k.state.n) })
	u.shut(lost)
	u.fence(w, rest, func(o *operation, x *itl, how use) (byte, code) {
		if lost(o.x.n) {
			return aborts(o, x, how)
		}
		return StatusGood, noSense
	})
	u.t.endOperations(w, func(o *operation) bool { return o.x.u == u && lost(o.x.n) })
}

// uses and refuse of the three kinds of operations.

func (c *copying) uses(_ *operation, u *Unit, what scope) (found *itl, how use) {
	segments := c.list.segments[c.at:]
	if what == step {
		segments = segments[:min(1, len(segments))]
	}
	for i := range segments {
		if x := c.unitOf(segments[i].src, u); x != nil {
			found, how = x, how|usesRead
		}
		if x := c.unitOf(segments[i].dst, u); x != nil {
			found, how = x, how|usesWrite
		}
	}
	return found, how
}

// cscdOf returns the CSCD of a CSCD descriptor ID, nil if there is none.
func (c *copying) cscdOf(id int) *cscd {
	switch {
	case id < len(c.list.cscds):
		return &c.list.cscds[id]
	case id == cscdSelf:
		return &c.list.self
	}
	return nil
}

// unitOf returns the I_T_L nexus of a CSCD descriptor ID if that is the unit u.
func (c *copying) unitOf(id int, u *Unit) *itl {
	if d := c.cscdOf(id); d != nil && d.x != nil && d.x.u == u {
		return d.x
	}
	return nil
}

func (c *copying) refuse(o *operation, u *Unit, status byte, why code) {
	for i := range c.list.segments[c.at:] {
		g := &c.list.segments[c.at+i]
		if c.unitOf(g.dst, u) != nil {
			c.forward(o, fromTarget, c.cscdOf(g.dst), status, why)
			return
		}
		if c.unitOf(g.src, u) != nil {
			c.forward(o, fromSource, c.cscdOf(g.src), status, why)
			return
		}
	}
	c.abort(o, sense{code: copyAborted})
}

func (p *populating) uses(o *operation, u *Unit, _ scope) (*itl, use) {
	if o.x.u == u {
		return o.x, usesRead
	}
	return nil, 0
}

func (p *populating) refuse(o *operation, _ *Unit, status byte, why code) {
	o.finish(copyError, status, sense{code: why})
}

func (w *writing) uses(o *operation, u *Unit, _ scope) (x *itl, how use) {
	if o.x.u == u {
		x, how = o.x, usesWrite
	}
	if w.token != nil && w.token.u == u {
		how |= usesData
	}
	return x, how
}

func (w *writing) refuse(o *operation, _ *Unit, status byte, why code) {
	w.end()
	s := sense{code: why}
	if why == tokenRevoked {
		s = inList(why, writeToken)
	}
	o.finish(copyError, status, s)
}
