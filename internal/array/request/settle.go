// Writes that end when the back end has what they wrote. A page says whether somebody waits for it
// to the cache, and the array who; the write counts its pages.

package request

import "github.com/arraysim/arraysim/internal/array/ticket"

// settlement is the writes that wait for the back end.
type settlement struct {
	pages   map[uint32]*op // the write that waits for a page
	waiting ticket.Queue   // writes whose pages are not all settled
	ended   []*op          // writes whose pages are, until the end of the step
}

// settle makes an op wait until the back end has what it has committed.
func (o *op) settle() {
	o.Since = max(1, o.e.exec.Now())
	o.await(&o.e.settling.waiting)
	o.e.watchFn() // the back end may be stuck
}

// Settled books that a page's data is on the back end, or that nobody needs it there
// any more, to the write that waits for it.
func (e *Engine) Settled(i uint32) {
	o := e.settling.pages[i]
	delete(e.settling.pages, i)
	// Whoever waits goes on at the end of the step: a list may be half walked now.
	if o.unsettled--; o.unsettled == 0 && o.In(&e.settling.waiting) {
		o.Leave()
		e.settling.ended = append(e.settling.ended, o)
	}
}

// endSettled ends the writes whose last page has settled.
func (e *Engine) endSettled() {
	for len(e.settling.ended) > 0 {
		n := len(e.settling.ended) - 1
		o := e.settling.ended[n]
		e.settling.ended = e.settling.ended[:n]
		o.Waiter().Resume()
	}
}
