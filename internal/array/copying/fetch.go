// A piece of a copy whose source is another array's.

package copying

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

const (
	// patience is after how long a fetch looks whether the source's executor still takes messages, in ns. One that has
	// not taken a message for that long, and not in grace behind that, is given up: when all stood still for a while,
	// both begin anew. Reads themselves may take longer: how long, the source's array knows.
	patience = 10_000_000_000
	grace    = 1_000_000_000
	// maxSilent bounds the fetches of an account that were given up and have not come back, where none has for patience,
	// maxStale those of any account: their buffers wait there. More are refused until some are back.
	maxSilent = 64
	maxStale  = 1024
)

// Want is what a Fetch is to read.
type Want struct {
	By           any    // who wants it
	Off, Sectors uint64 // in what the source holds
	Buf          []byte // where it goes, of an Engine; nil where there is no payload
	Origin       block.Origin
	// Done is called with the executor of the destination held. It gets the buffer back, or nil
	// when that is still with the source.
	Done func(buf []byte, s block.Status)
}

// Fetch is the read of a piece's source on its way. It belongs to the engine of the destination; the
// source's array has it between the two messages.
type Fetch struct {
	Want
	e      *Engine
	here   block.Executor
	src    *Source
	timer  block.Timer
	letter block.Letter // that asks for it, then those that ask whether somebody is there
	round  uint32       // counts the uses of this memory
	opened bool         // the letter that asks for it, as far as is known here
	stale  bool         // it was given up
	fns    fetchFns
	next   *Fetch // that is free

	// Of the source.
	status   block.Status
	unwanted bool
}

// fetchFns are methods of a fetch as values, made once.
type fetchFns struct{ serve, late, back, overdue, again, unwant, nothing func() }

// arrears are the fetches of one account that were given up and have not come back.
type arrears struct {
	of    any   // Source.account
	n     int   // above 0
	heard int64 // when the first was given up, or the last came back
}

// arrears returns what is owed of an account; nil: nothing.
func (e *Engine) arrears(of any) *arrears {
	for i := range e.owing {
		if e.owing[i].of == of {
			return &e.owing[i]
		}
	}
	return nil
}

// charge notes that a fetch was given up, settle that it has come back.
func (e *Engine) charge(of any, now int64) {
	if a := e.arrears(of); a != nil {
		a.n++
	} else {
		e.owing = append(e.owing, arrears{of, 1, now})
	}
}

func (e *Engine) settle(of any, now int64) {
	a := e.arrears(of)
	if a.n, a.heard = a.n-1, now; a.n == 0 { // initiators come and go
		e.owing = slices.DeleteFunc(e.owing, func(a arrears) bool { return a.n == 0 })
	}
}

// Fetch reads sectors of a source. Done is called perhaps at once, when the source has long not
// answered; then there is no fetch.
func (e *Engine) Fetch(here block.Executor, s *Source, w Want) *Fetch {
	if a := e.arrears(s.account()); a != nil && (a.n >= maxStale || a.n >= maxSilent && here.Now()-a.heard >= patience) {
		w.Done(w.Buf, block.Offline)
		return nil
	}
	f := e.fetches
	if f == nil {
		f = &Fetch{}
		f.fns = fetchFns{serve: f.serve, late: f.late, back: f.back, overdue: f.overdue, again: f.again, unwant: f.unwant, nothing: func() {}}
	} else {
		e.fetches, f.next = f.next, nil
	}
	f.e, f.here, f.src, f.Want = e, here, s, w
	f.round, f.opened = f.round+1, false
	f.timer = here.At(here.Now()+patience, f.fns.overdue)
	f.letter.Send(s.home, f.fns.serve, f.fns.late)
	return f
}

// serve is called at the source.
func (f *Fetch) serve() {
	f.unwanted = false
	f.src.lender.Serve(f.Off, f.Sectors, f.Buf, f.Origin, f)
}

// late is called at the source when the fetch was given up before.
func (f *Fetch) late() { f.Served(block.Cancelled) }

// Unwanted reports, at the source, whether nobody waits for what is read any more.
func (f *Fetch) Unwanted() bool { return f.unwanted }

func (f *Fetch) unwant() { f.unwanted = true }

// Served ends the read at the source. What was read while the reference was lost may be newer than what that held.
func (f *Fetch) Served(s block.Status) {
	if s == block.OK {
		s = f.src.lender.Intact()
	}
	f.status = s
	block.Send(f.here, f.fns.back)
}

// back ends the fetch where it began.
func (f *Fetch) back() {
	e, done, buf := f.e, f.Done, f.Buf
	if f.stale { // a message to it may still be on its way, so it is not used again
		e.settle(f.src.account(), f.here.Now())
		e.PutBuf(buf)
		return
	}
	f.timer.Stop()
	done(buf, f.status)
	f.src, f.timer, f.Want = nil, nil, Want{}
	if f.letter.Opened() {
		f.next, e.fetches = e.fetches, f
	}
}

// overdue looks whether the source's executor still takes messages.
func (f *Fetch) overdue() {
	if !f.letter.Opened() {
		f.timer = f.here.At(f.here.Now()+grace, f.fns.again)
		return
	}
	f.opened = true
	f.letter.Send(f.src.home, f.fns.nothing, nil)
	f.timer = f.here.At(f.here.Now()+patience, f.fns.overdue)
}

// again looks once more, behind the messages that are here already: this executor may have been held itself.
func (f *Fetch) again() {
	round := f.round
	f.here.Post(func() {
		switch done := f.Done; {
		case done == nil || f.round != round: // it has ended
		case f.letter.Opened():
			f.overdue()
		default:
			f.giveUp()
			done(nil, block.Offline)
		}
	})
}

// Forget gives up a fetch that has not ended: its Done is not called.
func (f *Fetch) Forget() {
	f.timer.Stop()
	f.giveUp()
}

// giveUp leaves the fetch and its buffer to the message. A read that has not begun does not begin.
func (f *Fetch) giveUp() {
	f.stale = true
	f.e.charge(f.src.account(), f.here.Now())
	f.Done = nil
	if withdrawn := f.letter.Withdraw(); f.opened || !withdrawn {
		block.Send(f.src.home, f.fns.unwant)
	}
}
