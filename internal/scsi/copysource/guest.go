// Copies over I/O groups, on the side of a unit: what an operation of another group does with it. The
// unit is asked here, when each step begins, whether it would serve it; what fences it ends the guest,
// and is answered when nothing that the guest began is under way any more. It never waits for the
// operation's group.

package copymgr

import (
	"crypto/subtle"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// guest is the part that a unit has in an operation of another group.
type guest struct {
	// Constant.
	m      *Manager // of the unit
	home   *Manager // of the operation
	x      *server.ITL
	volume string
	shift  uint8 // log2 of sectors per logical block

	o *operation // of home

	// Of the unit's group.
	rest, now server.Use    // what the operation does with the unit, and what in its present step
	token     *rodToken     // that it uses
	ref       block.Ref     // that it holds
	req       block.Request // a hold, or a place
	under     *question     // while the request is under way
	answer    func(reply)   // to it
	waiters   []*server.Waiter
	left      bool
	cut       interruption // what ended it
}

// visible returns how the caller sees a unit of this target: by the initiator port that its command
// came from, or else by the first of its nexuses that may use the unit so. A nexus of a fabric names no initiator but a copy
// domain: what the administrator has put into the one of that name.
func (m *Manager) visible(who caller, uses server.Use, is func(*server.Unit) bool) (best *server.ITL) {
	rank := 0
	for _, n := range m.t.Nexuses() {
		if s := n.Group().State(); n.Initiator() != who.initiator || n.Fabric() != who.fabric || s == alua.Standby || s == alua.Unavailable {
			continue
		}
		for _, x := range n.ITLs() {
			if x == nil || !is(x.Unit()) {
				continue
			}
			r := 1
			if !x.Excluded(uses&server.UsesWrite != 0) {
				r = 2
			}
			if n.Registrant().Port == who.port {
				r = 3
			}
			if r > rank {
				best, rank = x, r
			}
		}
	}
	return best
}

// admit makes a guest.
func (m *Manager) admit(home *Manager, x *server.ITL, uses server.Use) *guest {
	g := &guest{m: m, home: home, x: x, volume: x.Unit().Volume(), shift: x.Unit().Shift(), rest: uses}
	m.guests = append(m.guests, g)
	return g
}

// invite makes guests of the units that the caller wants and sees here; nil stands for the others.
func (m *Manager) invite(home *Manager, who caller, want []*wanted) []*guest {
	out := make([]*guest, len(want))
	for i, w := range want {
		if x := m.visible(who, w.uses, w.names); x != nil {
			out[i] = m.admit(home, x, w.uses)
		}
	}
	return out
}

// borrow puts a token to use for another group, by the rules of Manager.token.
func (m *Manager) borrow(home *Manager, who caller, b []byte) farToken {
	var k *rodToken
	for _, q := range m.tokens {
		if subtle.ConstantTimeCompare(q.bytes[:], b) == 1 {
			k = q
		}
	}
	if k == nil {
		return farToken{why: sense.TokenUnknown}
	}
	x := m.visible(who, server.UsesData, func(u *server.Unit) bool { return u == k.u })
	if x == nil && !k.u.Removed() {
		return farToken{why: sense.TokenUnknown}
	}
	if k.gone == sense.NoSense && k.changed() {
		k.end(sense.TokenRevoked)
	}
	if k.gone != sense.NoSense {
		return farToken{why: k.gone}
	}
	l, ok := k.ref.(block.Lendable)
	if !ok || x == nil {
		return farToken{why: sense.TokenUnknown}
	}
	g := m.admit(home, x, server.UsesData)
	g.now, g.token = server.UsesData, k
	k.use()
	return farToken{g: g, token: k, ref: l.Lend(func() {}), sectors: k.sectors, shift: k.shift}
}

// serve carries out a step of the operation.
func (g *guest) serve(q *question, answer func(reply)) {
	refused := func(status byte, why sense.Code) {
		answer(reply{status: block.Hardware, sam: status, sense: sense.Data{Code: why}})
	}
	switch {
	case g.cut.status != sam.StatusGood:
		refused(g.cut.status, g.cut.why)
		return
	case g.left || !g.x.Attached():
		answer(reply{status: block.Gone, gone: true})
		return
	}
	if status, why := g.x.Refuses(q.span, q.kind == asksPlace || q.write); status != sam.StatusGood {
		refused(status, why)
		return
	}
	n := g.x.Nexus()
	g.req = block.Request{Origin: block.OriginXCopy, Host: n.HostID(), Port: n.PortNumber(), Done: g.returned}
	switch q.kind {
	case asksCheck:
		if q.write {
			g.now |= server.UsesWrite
		} else {
			g.now |= server.UsesRead
		}
		answer(reply{})
		return
	case asksHold:
		g.req.Op, g.req.Ranges = block.OpHold, []block.Range{q.span}
	case asksPlace:
		g.req.Op, g.req.Range, g.req.Ref, g.req.Priority = block.OpPlace, q.span, q.ref, q.priority
	}
	g.under, g.answer = q, answer
	g.m.t.Enqueue(g.x.Unit(), &g.req)
}

// returned is the Done of the guest's requests.
func (g *guest) returned(r *block.Request) {
	g.m.t.Enter()
	defer g.m.t.Leave()
	u, answer := g.x.Unit(), g.answer
	q := g.under
	g.under, g.answer = nil, nil
	out := reply{status: r.Status}
	switch {
	case r.Status != block.OK:
		out.sam, out.sense = u.Outcome(r)
	case q.kind == asksPlace:
		u.Wrote(r.Op)
		g.now &^= server.UsesWrite
	default:
		g.ref = r.Ref
		l, ok := g.ref.(block.Lendable)
		switch {
		case !ok:
			out = reply{status: block.Unsupported, gone: true}
		case g.cut.status != sam.StatusGood:
			out = reply{status: block.Hardware, sam: g.cut.status, sense: sense.Data{Code: g.cut.why}}
		case g.left:
			out = reply{status: block.Gone, gone: true}
		}
		if out.status != block.OK {
			g.release()
		} else {
			out.ref = l.Lend(g.release)
		}
	}
	g.req.Ref = nil
	answer(out)
	for _, w := range g.waiters {
		w.Less(g.m.t)
	}
	g.waiters = nil
}

// release gives back what the guest holds.
func (g *guest) release() {
	g.now &^= server.UsesRead
	if r := g.ref; r != nil {
		g.ref = nil
		r.Release()
	}
	if k := g.token; k != nil {
		g.token = nil
		k.done()
	}
}

// cancel withdraws the request of a question.
func (g *guest) cancel(q *question) {
	if g.under == q {
		g.x.Unit().Cancel(&g.req)
	}
}

// fence is Manager.Fence of a guest.
func (g *guest) fence(u *server.Unit, w *server.Waiter, what server.Scope, verdict server.Verdict) {
	how := g.rest
	if what == server.Step {
		how = g.now
	}
	if g.x.Unit() != u || how == 0 {
		return
	}
	status, why := verdict(g.x, g.x, how)
	if status == sam.StatusGood {
		return
	}
	if g.under != nil {
		if w != nil {
			w.More()
			g.waiters = append(g.waiters, w)
		}
		u.Cancel(&g.req)
	}
	if g.cut.status != sam.StatusGood {
		return
	}
	g.cut = interruption{g: g, status: status, why: why}
	g.release()
	g.home.tell(func() {
		if g.o != nil {
			g.o.interrupt(g.cut)
		}
	})
}

// leave ends the guest: its operation needs it no more.
func (g *guest) leave() {
	g.left = true
	g.release()
	g.m.guests = slices.DeleteFunc(g.m.guests, func(q *guest) bool { return q == g })
}

// What the operation's group says to it.

// dismiss has the guest leave.
func (g *guest) dismiss() { g.m.tell(g.leave) }

// describe counts what an offload describes, book its end.
func (g *guest) describe(kind counters.Op, bytes uint64) {
	g.m.tell(func() { g.x.Unit().Describe(kind, bytes) })
}

func (g *guest) book(kind counters.Op, outcome counters.Outcome, took int64) {
	g.m.tell(func() {
		g.x.Count(kind, outcome)
		g.x.Unit().Took(kind, took)
	})
}
