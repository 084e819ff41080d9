// Who gives something back that others may wait for says so here, and the end of the step wakes
// those at the head of its queue. Nobody looks for who could go on.
//
// What pools have for themselves is noted with the pool. What everybody shares, room in the log,
// the copy engine and the line for the write cache, has an order of its own.
//
// Invariant: when a step has ended, nobody waits who could go on; see TestNobodyIsForgotten.

package request

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/ticket"
)

// wakes is what was given back since those who wait for it were woken last.
type wakes struct {
	given  ticket.Set
	spaces []*pool.Pool // those that have grains again, which transfers kept
	log    ticket.Queue

	turns  ticket.Turns // of ops that let others go first
	turnFn func()       // the event that lets them go on
}

// gave says that there is more of what everybody shares, or that somebody else is next in line for
// it.
func (e *Engine) gave(r ticket.Resource) { e.wakes.given.Add(r) }

// GaveRoom says that a write may find room in the cache that it did not find before: there are more
// pages, or it may take over more of those that are dirty.
func (e *Engine) GaveRoom() { e.link.Freed() }

// GaveSpace says that a grain was freed that only transfers kept.
func (e *Engine) GaveSpace(p *pool.Pool) {
	w := &e.wakes
	if !p.SpaceWait.Empty() && !slices.Contains(w.spaces, p) {
		w.given.Add(ticket.Space)
		w.spaces = append(w.spaces, p)
	}
}

// gavePlace says that a request has left a queue, and that another one may be at its head. Who
// waits for a lock, for space or for its turn is woken with all others.
func (o *op) gavePlace() {
	switch r := o.For(); r {
	case ticket.Budget:
		o.v.Pool().Part.Relieved()
	case ticket.Room:
		o.e.GaveRoom()
	case ticket.Log, ticket.CopyRead, ticket.CopyEngine:
		o.e.gave(r)
	}
}

// GaveAll says that other rules hold, under which anybody may go on.
func (e *Engine) GaveAll() {
	e.wakes.given |= ticket.SetOf(ticket.Log, ticket.CopyRead, ticket.CopyEngine)
	e.link.RulesChanged()
	for _, p := range e.set.Pools() {
		p.Part.Relieved()
	}
}
