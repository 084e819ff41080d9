// Copies over I/O groups, on the side of the operation: it asks the copy managers of other groups of
// the same array for units and tokens that its own target does not have, and has them carry out
// its steps there (guest.go). All of that is messages: nobody waits for an executor, and who
// has no answer in time goes on without.

package copymgr

import (
	"bytes"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

const (
	// patience is how long an operation waits for a group that does not take its messages, in ns, and grace how much
	// longer: when all stood still for a while, both groups begin anew.
	patience = 10 * nsPerSecond
	grace    = nsPerSecond
	// maxUnanswered bounds what a group is asked that it has not answered.
	maxUnanswered = 1024
)

// peer is the copy manager of another I/O group.
type peer struct {
	m          *Manager
	unanswered int
}

// Join makes the copy managers of the targets of one array know each other. It is called once, before
// any of them has a command.
func Join(all ...*Manager) {
	for _, m := range all {
		for _, p := range all {
			if p != m {
				m.peers = append(m.peers, peer{m: p})
			}
		}
	}
}

// tell has fn called with the manager's executor held, behind what was told it before. Whoever calls holds another one,
// or this one.
func (m *Manager) tell(fn func()) {
	block.Send(m.t.Exec(), func() {
		m.t.Enter()
		fn()
		m.t.Leave()
	})
}

// lookUp asks all peers at once. ask is called there, heard here for each answer: with late true when
// the search is over. It is over when heard has enough, when all have answered, or when that lasts too
// long; all tells done that everybody was heard.
func lookUp[T any](m *Manager, ask func(p *Manager) T, heard func(found T, late bool) (enough bool), done func(all bool)) {
	left, over, all := 0, false, true
	var timer block.Timer
	end := func() {
		over = true
		if timer != nil {
			timer.Stop()
		}
		done(all && left == 0)
	}
	for i := range m.peers {
		p := &m.peers[i]
		if p.unanswered >= maxUnanswered {
			all = false
			continue
		}
		p.unanswered++
		left++
		p.m.tell(func() {
			found := ask(p.m)
			m.tell(func() {
				p.unanswered--
				left--
				if enough := heard(found, over); !over && (enough || left == 0) {
					end()
				}
			})
		})
	}
	if left == 0 {
		end()
		return
	}
	m.losePatience(&timer, func() {
		if !over {
			end()
		}
	})
}

// losePatience calls fn behind patience and grace, and behind the answers that are here by then: the group's own executor
// may have been held. It keeps the timer that is to be stopped.
func (m *Manager) losePatience(timer *block.Timer, fn func()) {
	clock := m.t.Exec()
	*timer = clock.At(clock.Now()+patience, func() {
		*timer = clock.At(clock.Now()+grace, func() { m.tell(fn) })
	})
}

// caller is who asks another group: its units show themselves to the same initiator alone.
type caller struct {
	initiator, port string
	fabric          bool // no initiator, but a copy domain of a front end, which has the same name in all groups
}

func callerOf(n *server.Nexus) caller { return caller{n.Initiator(), n.Registrant().Port, n.Fabric()} }

// wanted is a unit that the target of the command does not show to the nexus.
type wanted struct {
	codeSet, kind byte
	id            []byte
	length        uint64 // of its blocks; 0: any
	uses          server.Use
}

func (w *wanted) names(u *server.Unit) bool {
	for i := range u.Names() {
		d := &u.Names()[i]
		if d.CodeSet == w.codeSet && d.Type == w.kind && bytes.Equal(d.ID, w.id) {
			return true
		}
	}
	return false
}

// findUnits looks in other groups for what a list wants, and calls done when it is found or nobody
// has it.
func (m *Manager) findUnits(n *server.Nexus, l *copyList, done func()) {
	who := callerOf(n)
	var want []*wanted // constant from here on: others read it
	var at []int
	for i := range l.cscds {
		if c := &l.cscds[i]; c.want != nil {
			c.want.uses = l.usesOf(i)
			want, at = append(want, c.want), append(at, i)
		}
	}
	missing := len(want)
	lookUp(m, func(p *Manager) []*guest { return p.invite(m, who, want) }, func(found []*guest, late bool) bool {
		for i, g := range found {
			switch {
			case g == nil:
			case late || l.cscds[at[i]].far != nil:
				g.dismiss()
			default:
				l.cscds[at[i]].far, l.cscds[at[i]].why = g, sense.NoSense
				missing--
			}
		}
		return missing == 0
	}, func(bool) { done() })
}

// usesOf returns what the segments of a list do with a CSCD.
func (l *copyList) usesOf(i int) (how server.Use) {
	for _, g := range l.Segments {
		if g.Src == i {
			how |= server.UsesRead
		}
		if g.Dst == i {
			how |= server.UsesWrite
		}
	}
	return how
}

// guests are the CSCDs of a list that other groups have.
func (l *copyList) guests() (out []*guest) {
	for i := range l.cscds {
		if g := l.cscds[i].far; g != nil {
			out = append(out, g)
		}
	}
	return out
}

// farToken is a token of another group, in use.
type farToken struct {
	why     sense.Code // that there is none
	g       *guest
	token   *rodToken // its own group's
	ref     block.Ref
	sectors uint64
	shift   uint8
}

// giveBack lets the token go; end makes it invalid.
func (k *farToken) giveBack() {
	if k.g != nil {
		k.g.dismiss()
	}
}

func (k *farToken) end(why sense.Code) {
	if token := k.token; token != nil {
		token.m.tell(func() { token.end(why) })
	}
}

// asksPeers reports whether there is another group to be asked for what a nexus names.
func (m *Manager) asksPeers() bool { return len(m.peers) > 0 }

// findToken looks in other groups for a token, and puts it to use.
func (m *Manager) findToken(n *server.Nexus, b []byte, done func(farToken)) {
	who := callerOf(n)
	b = slices.Clone(b)
	best := farToken{why: sense.TokenUnknown}
	lookUp(m, func(p *Manager) farToken { return p.borrow(m, who, b) }, func(k farToken, late bool) bool {
		switch {
		case k.g != nil && late:
			k.g.dismiss()
		case k.why != sense.TokenUnknown:
			best = k
			return true
		}
		return false
	}, func(all bool) {
		if best.why == sense.TokenUnknown && !all {
			best.why = sense.CopyNotReachable
		}
		done(best)
	})
}

// The questions of an operation.
const (
	asksCheck = iota
	asksHold
	asksPlace
)

// question is a step that an operation has another group carry out.
type question struct {
	kind     int
	g        *guest
	span     block.Range
	write    bool      // of a check: whether it is to be written
	ref      block.Ref // of a place
	priority uint8
	then     func(reply)

	o      *operation
	letter block.Letter
	timer  block.Timer
}

// reply is how it has ended there.
type reply struct {
	status block.Status
	gone   bool // the unit cannot be reached
	sam    byte
	sense  sense.Data
	ref    block.Ref // of a hold
}

// ask sends a question; its then is called when it is answered, or nobody answers.
func (o *operation) ask(q *question) {
	m := o.m
	i := slices.IndexFunc(m.peers, func(p peer) bool { return p.m == q.g.m })
	p := &m.peers[i]
	q.o, o.asked, o.where = o, q, nil
	lost := func() { q.heard(reply{status: block.Offline, gone: true}) }
	if p.unanswered >= maxUnanswered {
		m.tell(lost)
		return
	}
	p.unanswered++
	there := q.g.m.t
	q.letter.Send(there.Exec(), func() {
		there.Enter()
		q.g.serve(q, func(r reply) {
			m.tell(func() {
				p.unanswered--
				q.heard(r)
			})
		})
		there.Leave()
	}, func() { m.tell(func() { p.unanswered-- }) })
	m.losePatience(&q.timer, func() {
		if q.o.asked == q && q.mayLeave() {
			lost()
		}
	})
}

// mayLeave reports whether nobody has to wait for the answer: nothing is or will be written by it.
func (q *question) mayLeave() bool { return q.letter.Withdraw() || q.kind != asksPlace }

// heard takes the answer, unless the operation has gone on without it.
func (q *question) heard(r reply) {
	if q.o.asked != q {
		if r.ref != nil {
			r.ref.Release()
		}
		return
	}
	q.o.asked = nil
	if q.timer != nil {
		q.timer.Stop()
	}
	q.then(r)
}

// withdraw has the operation go on as soon as it may.
func (q *question) withdraw() {
	if q.mayLeave() {
		q.o.m.tell(func() { q.heard(reply{status: block.Cancelled, sam: sam.StatusTaskAborted}) })
		return
	}
	q.g.m.tell(func() { q.g.cancel(q) })
}

// answered goes on with the answer in the place of a request's end.
func (o *operation) answered(r reply) {
	o.said, o.req.Status = r, r.status
	if r.ref != nil {
		o.req.Ref = r.ref
	}
	o.requestDone()
}

// outcome is what the unit of the present request says of its end.
func (o *operation) outcome() (byte, sense.Data) {
	if o.where == nil {
		return o.said.sam, o.said.sense
	}
	return o.where.Outcome(&o.req)
}
