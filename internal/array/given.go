// Who gives something back that others may wait for says so here, and the end of the step wakes those
// at the head of its queue. Nobody looks for who could go on.
//
// What pools have for themselves is noted with the pool. What everybody shares, room in the log, the
// copy engine and the line for the write cache, has an order of its own.
//
// Invariant: when a step has ended, nobody waits who could go on; see TestNobodyIsForgotten.

package array

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/ticket"
)

// wakes is what was given back since those who wait for it were woken last.
type wakes struct {
	given  ticket.Set
	spaces []*Pool // those that have grains again, which transfers kept
	log    ticket.Queue
}

// gave says that there is more of what everybody shares, or that somebody else is next in line for it.
func (a *Array) gave(r ticket.Resource) { a.wakes.given.Add(r) }

// gaveRoom says that a write may find room in the cache that it did not find before: there are more pages, or it
// may take over more of those that are dirty.
func (a *Array) gaveRoom() { a.gate.Freed() }

// gaveSpace says that a grain was freed that only transfers kept.
func (p *Pool) gaveSpace() {
	w := &p.a.wakes
	if !p.spaceWait.Empty() && !slices.Contains(w.spaces, p) {
		w.given.Add(ticket.Space)
		w.spaces = append(w.spaces, p)
	}
}

// gavePlace says that a request has left a queue, and that another one may be at its head. Who waits for a lock,
// for space or for its turn is woken with all others.
func (o *op) gavePlace() {
	switch r := o.For(); r {
	case ticket.Budget:
		o.v.pool.part.Relieved()
	case ticket.Room:
		o.a.gaveRoom()
	case ticket.Log, ticket.CopyRead, ticket.CopyEngine:
		o.a.gave(r)
	}
}

// gaveAll says that other rules hold, under which anybody may go on.
func (a *Array) gaveAll() {
	a.wakes.given |= ticket.SetOf(ticket.Log, ticket.CopyRead, ticket.CopyEngine)
	a.gate.Changed()
	for _, p := range a.pools {
		if p != nil {
			p.part.Relieved()
		}
	}
}

// setCaps applies the cap policy to the pools that exist.
func (a *Array) setCaps() {
	if a.cache.SetCaps(a.opt.CapPercent) {
		a.gaveAll()
	}
}
