// Writes that end when the back end has what they wrote. A page says whether somebody waits for it
// to the cache, and the array who; the write counts its pages.

package array

// settle makes an op wait until the back end has what it has committed.
func (o *op) settle() {
	o.Since = max(1, o.a.exec.Now())
	o.await(&o.a.settling)
	o.a.watch() // the back end may be stuck
}

// settled books that a page's data is on the back end, or that nobody needs it there
// any more, to the write that waits for it.
func (a *Array) settled(i uint32) {
	o := a.through[i]
	delete(a.through, i)
	// Whoever waits goes on at the end of the step: a list may be half walked now.
	if o.unsettled--; o.unsettled == 0 && o.In(&a.settling) {
		o.Leave()
		a.settledOps = append(a.settledOps, o)
	}
}

// endSettled ends the writes whose last page has settled.
func (a *Array) endSettled() {
	for len(a.settledOps) > 0 {
		n := len(a.settledOps) - 1
		o := a.settledOps[n]
		a.settledOps = a.settledOps[:n]
		o.Waiter().Resume()
	}
}
