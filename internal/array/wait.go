package array

import "github.com/arraysim/arraysim/internal/block"

// Waiting for room in a partition, for an offload budget and for the log.

// wait queues the op in its partition; front says that it stood at the head there.
func (o *op) wait(front bool) {
	p := o.v.pool
	p.part.waiting.push(o, front)
	o.a.line.join(p)
	now := max(1, o.a.exec.Now())
	if o.idle == 0 {
		o.idle = now
	}
	if o.since == 0 {
		o.since = now
		p.waitingBytes[o.origin] += int64(o.stop-o.cur) * block.SectorSize
	}
	o.a.watch() // what should make room may be stuck
	p.part.Kick()
}

// stopWaiting books what the op has waited, if it has.
func (o *op) stopWaiting() {
	p := o.v.pool
	o.unbook()
	if o.since != 0 {
		if waited := o.a.exec.Now() - o.since; waited > 0 { // else it was only queued for its turn
			p.wait[o.origin].Observe(waited)
		}
		p.waitingBytes[o.origin] -= int64(o.stop-o.cur) * block.SectorSize
		o.since = 0
	}
	if o.braked != 0 {
		p.throttled[primOf(o.origin)] += o.a.exec.Now() - o.braked
		o.braked = 0
	}
}

// waitForLog queues the op until the log has room for so many edits.
func (o *op) waitForLog(edits int) {
	o.logEdits = edits
	o.a.metaWait.push(o)
	if o.a.broken != "" {
		o.a.watch()
	}
}

// pump lets those go on that waited and may now: map edits that wait for the log,
// copies that wait for the copy engine, and who waits for partitions and budgets, in the
// order of the pools.
func (a *Array) pump() {
	for o := a.metaWait.head; o != nil && a.log.Fits(o.logEdits); o = a.metaWait.head {
		o.unqueue()
		o.resume()
	}
	// Room that has come may be too little for the head, and the next checkpoint has to bring more.
	if !a.metaWait.empty() {
		a.log.Starve()
	}
	a.pumpCopies()
	a.pumpSpace()
	for _, p := range a.pools {
		if p != nil && !p.part.braked.empty() {
			p.releaseBraked()
		}
	}
	a.serve(false)
}

// spaceCame reports whether transfers have let space go that somebody waits for.
func (a *Array) spaceCame() bool {
	for o := a.spaceWait.head; o != nil; o = o.next {
		if p := o.v.pool; p.space.Left() || p.space.Leaving() == 0 {
			return true
		}
	}
	return false
}

func (a *Array) pumpSpace() {
	if !a.spaceCame() {
		return
	}
	for _, p := range a.pools {
		if p != nil {
			p.space.ClearLeft()
		}
	}
	batch := a.spaceWait
	a.spaceWait = opQueue{}
	for o := batch.head; o != nil; {
		next := o.next
		o.in, o.prev, o.next = nil, nil, nil
		o.write(false)
		o = next
	}
}

// canPump reports whether pump would do anything.
func (a *Array) canPump() bool {
	if o := a.metaWait.head; o != nil && a.log.Fits(o.logEdits) || a.copiesCanGo() || a.spaceCame() {
		return true
	}
	for _, p := range a.pools {
		if p != nil && !p.part.braked.empty() && p.nextBraked() != nil {
			return true
		}
	}
	return a.serve(true)
}

func (a *Array) anyWaiting() bool {
	for _, p := range a.pools {
		if p != nil && (!p.part.waiting.empty() || !p.part.braked.empty()) {
			return true
		}
	}
	return false
}

// settled books that a page's data is on the back end, or that nobody needs it there
// any more, to the write that waits for it.
func (a *Array) settled(i uint32) {
	o := a.through[i]
	delete(a.through, i)
	// Whoever waits goes on at the end of the step: a list may be half walked now.
	if o.unsettled--; o.unsettled == 0 && o.parked != 0 {
		o.unqueue()
		a.settledOps = append(a.settledOps, o)
	}
}

// park makes an op wait until the back end has what it has committed.
func (o *op) park() {
	o.parked = max(1, o.a.exec.Now())
	o.a.parked.push(o)
	o.a.watch() // the back end may be stuck
}

// endSettled ends the writes whose last page has settled.
func (a *Array) endSettled() {
	for len(a.settledOps) > 0 {
		n := len(a.settledOps) - 1
		o := a.settledOps[n]
		a.settledOps = a.settledOps[:n]
		o.written()
	}
}
