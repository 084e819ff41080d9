// A piece of a copy whose source is another array's.

package copying

import "github.com/arraysim/arraysim/internal/block"

const (
	// patience is after how long a fetch looks whether the source's executor still takes messages, in ns. One that has
	// not taken a message for that long is given up. Reads themselves may take longer: how long, the source's array knows.
	patience = 10_000_000_000
	// maxStale bounds the fetches that were given up and have not come back, and with them the
	// buffers that wait for an array that does not answer. More are refused until some are back.
	maxStale = 64
)

// Want is what a Fetch is to read.
type Want struct {
	By            any    // who wants it
	Phys, Sectors uint64 // in the pool of the source
	Buf           []byte // where it goes, of an Engine; nil where there is no payload
	Origin        block.Origin
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
	stale  bool         // it was given up
	fns    fetchFns
	next   *Fetch // that is free

	// Of the source.
	status   block.Status
	unwanted bool
}

// fetchFns are methods of a fetch as values, made once.
type fetchFns struct{ serve, late, back, overdue, unwant, nothing func() }

// Fetch reads sectors of a source. Done is called perhaps at once, when the source has long not
// answered; then there is no fetch.
func (e *Engine) Fetch(here block.Executor, s *Source, w Want) *Fetch {
	if e.stale >= maxStale {
		w.Done(w.Buf, block.Offline)
		return nil
	}
	f := e.fetches
	if f == nil {
		f = &Fetch{}
		f.fns = fetchFns{serve: f.serve, late: f.late, back: f.back, overdue: f.overdue, unwant: f.unwant, nothing: func() {}}
	} else {
		e.fetches, f.next = f.next, nil
	}
	f.e, f.here, f.src, f.Want = e, here, s, w
	f.timer = here.At(here.Now()+patience, f.fns.overdue)
	f.letter.Send(s.home, f.fns.serve, f.fns.late)
	return f
}

// serve is called at the source.
func (f *Fetch) serve() {
	f.unwanted = false
	f.src.lender.Serve(f)
}

// late is called at the source when the fetch was given up before.
func (f *Fetch) late() { f.Served(block.Cancelled) }

// Unwanted reports, at the source, whether nobody waits for what is read any more.
func (f *Fetch) Unwanted() bool { return f.unwanted }

func (f *Fetch) unwant() { f.unwanted = true }

// Served ends the read at the source.
func (f *Fetch) Served(s block.Status) {
	f.status = s
	block.Send(f.here, f.fns.back)
}

// back ends the fetch where it began.
func (f *Fetch) back() {
	e, done, buf := f.e, f.Done, f.Buf
	if f.stale { // a message to it may still be on its way, so it is not used again
		e.stale--
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
	if done := f.Done; !f.letter.Opened() {
		f.giveUp()
		done(nil, block.Offline)
		return
	}
	f.letter.Send(f.src.home, f.fns.nothing, nil)
	f.timer = f.here.At(f.here.Now()+patience, f.fns.overdue)
}

// Forget gives up a fetch that has not ended: its Done is not called.
func (f *Fetch) Forget() {
	f.timer.Stop()
	f.giveUp()
}

// giveUp leaves the fetch and its buffer to the message. A read that has not begun does not begin.
func (f *Fetch) giveUp() {
	f.stale = true
	f.e.stale++
	f.Done = nil
	if !f.letter.Withdraw() {
		block.Send(f.src.home, f.fns.unwant)
	}
}
