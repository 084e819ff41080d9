// What an array lends to another one: the runs of a reference, which do not change, and the way to its
// data.

package copying

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/hold"
	"github.com/arraysim/arraysim/internal/block"
)

// Lender is a reference in the array that has it.
type Lender interface {
	block.Ref
	// Serve begins to read sectors [off, off+n) of the reference, and has Served of p called, perhaps at once.
	Serve(off, n uint64, buf []byte, origin block.Origin, p block.Piece)
	// Intact returns OK while the reference holds what it did when it was made, and else why it does
	// not. Both are called with the lender's executor held.
	Intact() block.Status
}

// Verdict is what Intact says of a reference that is gone or lost, or of an array whose log broke down.
func Verdict(gone, lost, broken bool) block.Status {
	switch {
	case gone:
		return block.Offline
	case lost:
		return block.NoSpace
	case broken:
		return block.Hardware
	}
	return block.OK
}

// RunList is the runs of a reference. They are constant.
type RunList interface {
	Sectors() uint64
	// Runs calls fn for the runs of [off, off+n), with Start counted from off, until it returns false.
	Runs(off, n uint64, fn func(extent.Run) bool)
}

// Source is a reference of one array for copies of others. All of it is constant, so any executor may
// have it.
type Source struct {
	RunList
	lender Lender
	home   block.Executor
	debtor any // block.Remote.Account; nil: the executor
	back   func()
}

var _ block.Readable = (*Source)(nil)

// Lost implements what a copy asks of its source: that one is lost is heard of with what is read.
func (s *Source) Lost() bool { return false }

// Lend makes a Source of a reference of the executor home, which is held. back is called there when it is released.
func Lend(home block.Executor, lender Lender, runs *hold.Ref, back func()) *Source {
	return &Source{RunList: offsets{runs.View()}, lender: lender, home: home, back: back}
}

// account is where fetches of the source are counted that were given up. One executor asks all arrays that are elsewhere, and a
// link leaves room beside what one initiator's copies wait for there, so those of another one do not pay for that.
func (s *Source) account() any {
	if s.debtor != nil {
		return s.debtor
	}
	return s.home
}

// Lender returns whose reference it is: its own array needs no messages. Who does not hold its
// executor may compare it, and no more.
func (s *Source) Lender() Lender { return s.lender }

// Release gives the Source back.
func (s *Source) Release() { block.Send(s.home, s.back) }

// Reader is one copy's use of a Source, in the array of its destination.
type Reader struct {
	*Source
	fetches []*Fetch // under way
}

// Read begins a fetch; see Engine.Fetch. Who wants it may want nothing else at the same time.
func (r *Reader) Read(e *Engine, here block.Executor, w Want) {
	done := w.Done
	w.Done = func(buf []byte, s block.Status) {
		r.take(w.By)
		done(buf, s)
	}
	if f := e.Fetch(here, r.Source, w); f != nil {
		r.fetches = append(r.fetches, f)
	}
}

// Forget gives up what somebody wants, and reports whether it was under way.
func (r *Reader) Forget(by any) bool {
	f := r.take(by)
	if f != nil {
		f.Forget()
	}
	return f != nil
}

func (r *Reader) take(by any) (f *Fetch) {
	i := slices.IndexFunc(r.fetches, func(f *Fetch) bool { return f.By == by })
	if i >= 0 {
		f = r.fetches[i]
		r.fetches = slices.Delete(r.fetches, i, i+1)
	}
	return f
}

// offsets are the runs of a reference. What is data is at its own offset there, which is all that others have to know.
type offsets struct{ *hold.Ref }

func (r offsets) Runs(off, n uint64, fn func(extent.Run) bool) {
	r.Ref.Runs(off, n, func(x extent.Run) bool {
		x.Phys = off + x.Start
		return fn(x)
	})
}

// States implements block.Readable.
func (s *Source) States(off, n uint64, fn func(block.Extent) bool) {
	s.Runs(off, n, func(x extent.Run) bool {
		return fn(block.Extent{Range: block.Range{Start: off + x.Start, Count: x.Count}, State: x.State})
	})
}

// Read implements block.Readable. Preconditions: the executor of the lender is held.
func (s *Source) Read(off, n uint64, buf []byte, origin block.Origin, p block.Piece) {
	r := block.Range{Start: off, Count: n}
	if !r.Within(s.Sectors()) || uint64(len(buf)) != r.Bytes() {
		p.Served(block.OutOfRange)
		return
	}
	clear(buf) // nobody learns what the memory had before
	s.lender.Serve(off, n, buf, origin, intact{p, s.lender})
}

// intact is a piece of which nothing is data that was read while the reference was lost.
type intact struct {
	block.Piece
	lender Lender
}

func (c intact) Served(s block.Status) {
	if s == block.OK {
		s = c.lender.Intact()
	}
	c.Piece.Served(s)
}

// FromRemote makes a Source of a reference of another array, which stays the caller's.
func FromRemote(r block.Remote) *Source {
	return &Source{RunList: remoteRuns{r}, lender: remoteLender{r}, home: r.Home(), debtor: r.Account(), back: r.Release}
}

// remoteRuns are offsets of a reference of another array.
type remoteRuns struct{ block.Remote }

func (r remoteRuns) Runs(off, n uint64, fn func(extent.Run) bool) {
	r.States(off, n, func(x block.Extent) bool {
		return fn(extent.Run{Range: block.Range{Start: x.Start - off, Count: x.Count}, State: x.State, Phys: x.Start})
	})
}

// remoteLender asks another array for what a fetch wants.
type remoteLender struct{ block.Remote }

func (r remoteLender) Serve(off, n uint64, buf []byte, origin block.Origin, p block.Piece) {
	switch {
	case p.Unwanted():
		p.Served(block.Cancelled)
	case buf == nil: // an array without payload has no other one
		p.Served(block.Unsupported)
	default:
		r.Read(off, n, buf, origin, p)
	}
}

// Intact implements Lender: the array that has the reference has said so with what was read.
func (r remoteLender) Intact() block.Status { return block.OK }
