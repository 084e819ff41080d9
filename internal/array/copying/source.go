// What an array lends to another one: the runs of a reference, which do not change, and the way to its
// data.

package copying

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/block"
)

// Lender is a reference in the array that has it.
type Lender interface {
	block.Ref
	// Serve begins to read what a fetch asks for, and has its Served called, perhaps at once.
	Serve(f *Fetch)
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

// Source is a reference of one array for copies of others. All of it is constant, so any executor may
// have it.
type Source struct {
	*extent.Ref // its runs alone
	lender      Lender
	home        block.Executor
	back        func()
}

var _ block.Ref = (*Source)(nil)

// Lend makes a Source of a reference of the executor home, which is held. back is called there when it is released.
func Lend(home block.Executor, lender Lender, runs *extent.Ref, back func()) *Source {
	return &Source{Ref: runs.View(), lender: lender, home: home, back: back}
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
