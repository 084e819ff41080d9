// Copies over I/O groups and over arrays, on the side of a unit: what an operation of another group, or of
// another array, does with it. The unit is asked here, when each step begins, whether it would serve
// it; what fences it ends the guest, and is answered when nothing that the guest began is under way any
// more. It never waits for the operation.

package copysource

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Guest is the part that a unit has in an operation elsewhere. Its methods are called with the unit's executor held.
type Guest struct {
	// Constant.
	s     *Store // of the unit
	x     *server.ITL
	ended func(Ending)
	lent  bool // to another array

	rest, now server.Use    // what the operation does with the unit, and what in its present step
	token     *Token        // that it uses
	ref       block.Ref     // that it holds
	req       block.Request // a hold, or a place
	under     *Step         // while the request is under way
	answer    func(Reply)   // to it
	waiters   []*server.Waiter
	left      bool
	cut       Ending // what ended it
}

// visible returns how the caller sees a unit of this target: by the initiator port that its command
// came from, or else by the first of its nexuses that may use the unit so. A nexus of a fabric names no initiator but a copy
// domain: what the administrator has put into the one of that name.
func (m *Store) visible(who Caller, uses server.Use, is func(*server.Unit) bool) (best *server.ITL) {
	rank := 0
	for _, n := range m.t.Nexuses() {
		if s := n.Group().State(); n.Initiator() != who.Initiator || n.Fabric() != who.Fabric || s == alua.Standby || s == alua.Unavailable {
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
			if n.Registrant().Port == who.Port {
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
func (m *Store) admit(x *server.ITL, uses server.Use, ended func(Ending)) *Guest {
	g := &Guest{s: m, x: x, rest: uses, ended: ended}
	m.guests = append(m.guests, g)
	return g
}

// Invite makes a guest of a unit that the caller wants and sees here; nil: there is none. ended hears, with the executor
// held, what ended its part.
func (m *Store) Invite(who Caller, w *Wanted, ended func(Ending)) *Guest {
	if x := m.visible(who, w.Uses, w.Names); x != nil {
		return m.admit(x, w.Uses, ended)
	}
	return nil
}

// Redeem puts a token to use in a guest; is tells whether it is the one. Without a guest, why says so.
func (m *Store) Redeem(who Caller, is func(*Token) bool, ended func(Ending)) (g *Guest, ref block.Ref, why sense.Code) {
	k, x, why := m.unlocked(who, is)
	if why != sense.NoSense {
		return nil, nil, why
	}
	l, ok := k.Ref.(block.Lendable)
	if !ok {
		return nil, nil, sense.TokenUnknown
	}
	g = m.admit(x, server.UsesData, ended)
	g.now, g.token = server.UsesData, k
	k.Use()
	return g, l.Lend(func() {}), sense.NoSense
}

// unlocked finds a token that the caller may use, by the rules of Store.Token; is tells whether it is the one. Without
// one, why says so.
func (m *Store) unlocked(who Caller, is func(*Token) bool) (k *Token, x *server.ITL, why sense.Code) {
	for _, q := range m.tokens {
		if is(q) {
			k = q
		}
	}
	if k == nil {
		return nil, nil, sense.TokenUnknown
	}
	x = m.visible(who, server.UsesData, func(u *server.Unit) bool { return u == k.Unit })
	if x == nil && !k.Unit.Removed() {
		return nil, nil, sense.TokenUnknown
	}
	if k.gone == sense.NoSense && k.Changed() {
		k.End(sense.TokenRevoked)
	}
	switch {
	case k.gone != sense.NoSense:
		return nil, nil, k.gone
	case x == nil:
		return nil, nil, sense.TokenUnknown
	}
	return k, x, sense.NoSense
}

// Serve carries out a step of the operation.
func (g *Guest) Serve(q *Step, answer func(Reply)) {
	refused := func(status byte, why sense.Code) {
		answer(Reply{Status: block.Hardware, Gone: g.cut.Gone, SAM: status, Sense: sense.Data{Code: why}})
	}
	switch {
	case g.cut.Status != sam.StatusGood:
		refused(g.cut.Status, g.cut.Why)
		return
	case g.left || !g.x.Attached():
		answer(Reply{Status: block.Gone, Gone: true})
		return
	}
	if status, why := g.x.Refuses(q.Span, q.Kind == Place || q.Write); status != sam.StatusGood {
		refused(status, why)
		return
	}
	if q.Kind == Check { // another array may ask that beside a hold, whose request stays as it is
		if q.Write {
			g.now |= server.UsesWrite
		} else {
			g.now |= server.UsesRead
		}
		answer(Reply{})
		return
	}
	n := g.x.Nexus()
	g.req = block.Request{Origin: block.OriginXCopy, Host: n.HostID(), Port: n.PortNumber(), Lent: g.lent, Done: g.returned}
	if q.Kind == Hold {
		g.req.Op, g.req.Ranges = block.OpHold, []block.Range{q.Span}
	} else {
		g.req.Op, g.req.Range, g.req.Ref, g.req.Priority = block.OpPlace, q.Span, q.Ref, q.Priority
	}
	g.under, g.answer = q, answer
	g.s.t.Enqueue(g.x.Unit(), &g.req)
}

// returned is the Done of the guest's requests.
func (g *Guest) returned(r *block.Request) {
	g.s.t.Enter()
	defer g.s.t.Leave()
	u, answer := g.x.Unit(), g.answer
	q := g.under
	if r.Status == block.OK && r.Op == block.OpPlace && u.Medium().WriteThrough {
		u.Wrote(r.Op)
		g.req = block.Request{Op: block.OpFlush, Origin: r.Origin, Host: r.Host, Port: r.Port, Lent: r.Lent, Done: r.Done}
		g.s.t.Enqueue(u, &g.req)
		return
	}
	g.under, g.answer = nil, nil
	out := Reply{Status: r.Status}
	switch {
	case r.Status != block.OK:
		out.SAM, out.Sense = u.Outcome(r)
	case q.Kind == Place:
		u.Wrote(r.Op)
		g.now &^= server.UsesWrite
	default:
		g.ref = r.Ref
		switch l, ok := g.ref.(block.Lendable); {
		case !ok:
			out = Reply{Status: block.Unsupported, Gone: true}
		case g.cut.Status != sam.StatusGood:
			out = Reply{Status: block.Hardware, Gone: g.cut.Gone, SAM: g.cut.Status, Sense: sense.Data{Code: g.cut.Why}}
		case g.left:
			out = Reply{Status: block.Gone, Gone: true}
		default:
			out.Ref = l.Lend(g.release)
		}
		if out.Status != block.OK {
			g.release()
		}
	}
	g.req.Ref = nil
	answer(out)
	for _, w := range g.waiters {
		w.Less(g.s.t)
	}
	g.waiters = nil
}

// release gives back what the guest holds.
func (g *Guest) release() {
	g.now &^= server.UsesRead
	if r := g.ref; r != nil {
		g.ref = nil
		r.Release()
	}
	if k := g.token; k != nil {
		g.token = nil
		k.Done()
	}
}

// Withdraw withdraws the request of a step.
func (g *Guest) Withdraw(q *Step) {
	if g.under == q {
		g.x.Unit().Device().Cancel(&g.req)
	}
}

// fence is Store.Fence of a guest.
func (g *Guest) fence(u *server.Unit, w *server.Waiter, what server.Scope, verdict server.Verdict) {
	how := g.rest
	if what == server.Step {
		how = g.now
	}
	if g.x.Unit() != u || how == 0 {
		return
	}
	status, why := verdict(g.x, g.x, how)
	if status != sam.StatusGood {
		g.end(w, Ending{Status: status, Why: why})
	}
}

// unmapped is Store.Unmap, and UnmapLeft, of a guest.
func (g *Guest) unmapped(w *server.Waiter) {
	why := sense.LUNNotSupported
	if g.rest&server.UsesData != 0 { // who does not see its unit does not know a token
		why = sense.TokenUnknown
	}
	g.end(w, Ending{Status: sam.StatusCheckCondition, Why: why, Gone: true})
}

// end ends the guest's part, and tells so. w, which may be nil, waits for a request that is under way.
func (g *Guest) end(w *server.Waiter, why Ending) {
	if g.under != nil {
		if w != nil {
			w.More()
			g.waiters = append(g.waiters, w)
		}
		g.x.Unit().Device().Cancel(&g.req)
	}
	if g.cut.Status != sam.StatusGood {
		return
	}
	g.cut = why
	g.release()
	g.ended(g.cut)
}

// Leave ends the guest: its operation needs it no more.
func (g *Guest) Leave() {
	if g.left {
		return
	}
	g.left = true
	g.release()
	// Links end with thousands of guests at once, so those that have left are taken out half of all at a time.
	if m := g.s; 2*(m.gone+1) > len(m.guests) {
		m.guests, m.gone = slices.DeleteFunc(m.guests, func(q *Guest) bool { return q.left }), 0
	} else {
		m.gone++
	}
}

// Unit is the guest's unit.
func (g *Guest) Unit() *server.Unit { return g.x.Unit() }

// Count counts the unit's part in an operation that has ended.
func (g *Guest) Count(kind counters.Op, status byte, took int64) {
	g.x.Count(kind, counters.OutcomeOf(status))
	g.x.Unit().Took(kind, took)
}

// EndToken ends the token that the guest uses.
func (g *Guest) EndToken(why sense.Code) {
	if g.token != nil {
		g.token.End(why)
	}
}
