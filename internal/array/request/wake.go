// The stage of a step that wakes who was given what it waits for; see given.go.

package request

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/ticket"
)

// wake lets those go on who were given what they wait for, and reports whether there were any: map
// edits that wait for the log, the copy engine's, promised writes, offloads in the order of the
// pools, and the line for the write cache.
func (e *Engine) wake() (woke bool) {
	if e.wakes.given != 0 || !e.wakes.log.Empty() {
		woke = e.wakeGiven()
	}
	woke = e.link.ServeBudgets() || woke
	return e.link.Serve() || woke
}

// wakeGiven is wake of what everybody shares, and of space.
func (e *Engine) wakeGiven() (woke bool) {
	w := &e.wakes
	if w.given.Take(ticket.Log) {
		for o := headOf(&w.log); o != nil && e.link.Fits(o.logEdits); o = headOf(&w.log) {
			woke = true
			o.Wake()
		}
	}
	// Room that has come may be too little for the head, and the next checkpoint has to bring more.
	if !w.log.Empty() {
		e.link.Starve()
	}
	if w.given.Take(ticket.CopyRead) {
		woke = e.copies.WakeReads() || woke
	}
	if w.given.Take(ticket.CopyEngine) {
		woke = e.copies.WakeMoves() || woke
	}
	if w.given.Take(ticket.Space) {
		for len(w.spaces) > 0 {
			p := w.spaces[0]
			w.spaces = slices.Delete(w.spaces, 0, 1)
			woke = woke || !p.SpaceWait.Empty()
			p.SpaceWait.WakeAll()
		}
	}
	return woke
}
