// Copies over I/O groups and over arrays, on the side of the operation: it asks the copy managers of
// other groups of the same array (group.go), and those of linked arrays (linked.go), for units and tokens
// that its own target does not have, and has them carry out its steps there. All of that is messages:
// nobody waits for an executor, and who has no answer in time goes on without.

package copymgr

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

const (
	// patience is how long an operation waits for a group that does not take its messages, in ns, and grace how much
	// longer: when all stood still for a while, both groups begin anew.
	patience = 10 * nsPerSecond
	grace    = nsPerSecond
	// maxUnanswered bounds what a peer is asked that it has not answered, maxSearchesOfHost what may be before one more is asked in a
	// search for one initiator: one that is over leaves its questions behind at peers that are slow, and the next ones wait. That
	// leaves room for a step of each operation that the initiator may have.
	maxUnanswered     = 1024
	maxSearchesOfHost = maxCopiesOfHost
	maxStepsOfHost    = maxSearchesOfHost + maxCopiesOfHost
)

// peer is another copy manager that a Manager may ask.
type peer struct {
	partner
	unanswered block.Shares[uint32] // questions, by number of the initiator
	waiting    []*wish              // of searches, for room; oldest first
}

// wish is what a search is to ask a peer as soon as there is room for that.
type wish struct {
	host uint32
	ask  func() // counts it
}

// open counts a question on behalf of an initiator, which answered takes back; false: it has most of them, or there is no room for
// it.
func (p *peer) open(host uint32, most int) bool {
	if p.unanswered.Of(host) >= most || p.unanswered.Left(host, maxUnanswered) < 1 {
		return false
	}
	p.unanswered.Add(host, 1)
	return true
}

// answered takes a question back, and asks the next one that there is room for.
func (p *peer) answered(host uint32) {
	p.unanswered.Add(host, -1)
	for i, w := range p.waiting {
		if p.open(w.host, maxSearchesOfHost) {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			w.ask()
			return
		}
	}
}

// seek asks something that a search wants to know, now or when there is room for it.
func (p *peer) seek(w *wish) {
	if p.open(w.host, maxSearchesOfHost) {
		w.ask()
		return
	}
	p.waiting = append(p.waiting, w)
}

// forget takes back what a search that is over has not asked yet.
func (p *peer) forget(w *wish) {
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}

// partner is the way to another copy manager. Its methods are called with the executor held of the Manager that asks, and
// return at once. What they are given to call is called later, never from inside, and with that executor held.
type partner interface {
	// find looks for units that the caller sees there, and answers with one for each that is wanted, nil for those that it
	// does not have.
	find(who copysource.Caller, want []*copysource.Wanted, answer func([]farUnit))
	// borrow puts a token to use.
	borrow(who copysource.Caller, token []byte, answer func(farToken))
}

// farUnit is a unit of a peer, as an operation has it. Its methods are called with the operation's executor held.
type farUnit interface {
	// far is what the operation knows of it. It is the operation's.
	far() *far
	partner() partner
	// ask has a step carried out, and calls answer with its end, or late when it was withdrawn before it began.
	ask(q *question, answer func(copysource.Reply), late func())
	// cancel withdraws the request of a step that has begun.
	cancel(q *question)
	// part lets the unit go that no further step uses, dismiss that of an operation that is over.
	part()
	dismiss()
	// describe counts what an offload describes, book its end with a SAM status.
	describe(kind counters.Op, bytes uint64)
	book(kind counters.Op, status byte, took int64)
	// endToken makes the token invalid that was borrowed with it.
	endToken(why sense.Code)
}

// far is the operation's part of a farUnit.
type far struct {
	volume string
	shift  uint8 // log2 of sectors per logical block
	o      *operation
}

// interrupt ends the operation, if the unit has a part in one that runs.
func (f *far) interrupt(c interruption) {
	if f.o != nil {
		f.o.interrupt(c)
	}
}

// lookUp asks all peers at once, on behalf of an initiator; one that has too much to answer yet is asked later. heard is called
// for each answer: with late true when the search is over. It is over when heard has enough, when all have answered, or when that
// lasts too long; all tells done that everybody was heard.
func lookUp[T any](m *Manager, host uint32, ask func(p partner, answer func(T)), heard func(found T, late bool) (enough bool), done func(all bool)) {
	left, over := len(m.peers), false
	wishes := make([]*wish, len(m.peers))
	var timer block.Timer
	end := func() {
		over = true
		if timer != nil {
			timer.Stop()
		}
		for i, p := range m.peers {
			p.forget(wishes[i])
		}
		done(left == 0)
	}
	for i, p := range m.peers {
		wishes[i] = &wish{host, func() {
			ask(p.partner, func(found T) {
				p.answered(host)
				left--
				if enough := heard(found, over); !over && (enough || left == 0) {
					end()
				}
			})
		}}
		p.seek(wishes[i])
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

func callerOf(n *server.Nexus) copysource.Caller {
	return copysource.Caller{Initiator: n.Initiator(), Port: n.Registrant().Port, Fabric: n.Fabric()}
}

// findUnits looks elsewhere for what a list wants, and calls done when it is found or nobody
// has it.
func (m *Manager) findUnits(n *server.Nexus, l *copyList, done func()) {
	who := callerOf(n)
	var want []*copysource.Wanted // constant from here on: others read it
	var at []int
	for i := range l.cscds {
		if c := &l.cscds[i]; c.want != nil {
			c.want.Uses = l.usesOf(i)
			want, at = append(want, c.want), append(at, i)
		}
	}
	missing := len(want)
	lookUp(m, n.HostID(), func(p partner, answer func([]farUnit)) { p.find(who, want, answer) }, func(found []farUnit, late bool) bool {
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

// farUnits are the CSCDs of a list that others have.
func (l *copyList) farUnits() (out []farUnit) {
	for i := range l.cscds {
		if g := l.cscds[i].far; g != nil {
			out = append(out, g)
		}
	}
	return out
}

// farToken is a token of a peer, in use.
type farToken struct {
	why     sense.Code // that there is none
	g       farUnit
	ref     block.Ref
	sectors uint64
}

// giveBack lets the token go; end makes it invalid.
func (k *farToken) giveBack() {
	if k.g != nil {
		k.g.dismiss()
	}
}

func (k *farToken) end(why sense.Code) {
	if k.g != nil {
		k.g.endToken(why)
	}
}

// asksPeers reports whether there is anybody to be asked for what a nexus names.
func (m *Manager) asksPeers() bool { return len(m.peers) > 0 }

// findToken looks elsewhere for a token, and puts it to use.
func (m *Manager) findToken(n *server.Nexus, b []byte, done func(farToken)) {
	who := callerOf(n)
	b = slices.Clone(b)
	best := farToken{why: sense.TokenUnknown}
	lookUp(m, n.HostID(), func(p partner, answer func(farToken)) { p.borrow(who, b, answer) }, func(k farToken, late bool) bool {
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

// question is a step that an operation has a peer carry out.
type question struct {
	copysource.Step
	g    farUnit
	then func(copysource.Reply)

	o      *operation
	letter block.Letter
	timer  block.Timer
}

// ask sends a question; its then is called when it is answered, or nobody answers.
func (o *operation) ask(q *question) {
	m, with := o.m, q.g.partner()
	p := m.peers[slices.IndexFunc(m.peers, func(p *peer) bool { return p.partner == with })]
	q.o, o.asked, o.where = o, q, nil
	lost := func() { q.heard(copysource.Reply{Status: block.Offline, Gone: true}) }
	if !p.open(o.host, maxStepsOfHost) {
		m.tell(lost)
		return
	}
	q.g.ask(q, func(r copysource.Reply) {
		p.answered(o.host)
		q.heard(r)
	}, func() { p.answered(o.host) })
	m.losePatience(&q.timer, func() {
		if q.o.asked == q && q.mayLeave() {
			lost()
		}
	})
}

// mayLeave reports whether nobody has to wait for the answer: nothing is or will be written by it.
func (q *question) mayLeave() bool { return q.letter.Withdraw() || q.Kind != copysource.Place }

// heard takes the answer, unless the operation has gone on without it.
func (q *question) heard(r copysource.Reply) {
	if q.o.asked != q {
		if r.Ref != nil {
			r.Ref.Release()
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
		q.o.m.tell(func() { q.heard(copysource.Reply{Status: block.Cancelled, SAM: sam.StatusTaskAborted}) })
		return
	}
	q.g.cancel(q)
}

// answered goes on with the answer in the place of a request's end.
func (o *operation) answered(r copysource.Reply) {
	o.said, o.req.Status = r, r.Status
	if r.Ref != nil {
		o.req.Ref = r.Ref
	}
	o.requestDone()
}

// outcome is what the unit of the present request says of its end.
func (o *operation) outcome() (byte, sense.Data) {
	if o.where == nil {
		return o.said.SAM, o.said.Sense
	}
	return o.where.Outcome(&o.req)
}
