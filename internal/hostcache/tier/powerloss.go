package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// A device below that lost power may have lost what was written to it and not flushed since. Of the client's
// writes that is what went through and what was destaged; what of it is clean on the flash would be served
// until it is evicted, and then the old data would come back. So all that is clean is forgotten, the client's
// unit hears of it (the event goes on to the listeners), and the next flush fails: whoever relies on it has to write
// again. A flush that is under way may have been answered by what came after the loss, so it fails as well.

// enduring reports whether all that is acknowledged must survive a loss of this host's power,
// though no client asks for that: the flash syncs every write, and a device below that is the
// host's own would lose what is volatile there, with nobody to tell of it.
func (d *Disk) enduring() bool { return d.opt.LocalBelow && d.opt.PowerSafe }

// powerLost is the news that the device below lost power.
func (d *Disk) powerLost() {
	if d.volatile.ended == d.volatile.flushed && d.flushing == 0 {
		return
	}
	d.stats.PowerLosses++
	d.losses++
	d.setLostWrites(true)
	d.remember(func() {})
	d.invalidate(block.Range{Count: d.info.Sectors}, false, func() {})
}

// flushFails reports whether a flush that began after so many losses must fail, and settles it: one flush fails for a loss.
func (d *Disk) flushFails(began uint64) bool {
	fails := d.lostWrites || began != d.losses
	if d.lostWrites {
		d.setLostWrites(false)
	}
	return fails
}

// setLostWrites notes whether a flush has yet to tell of a loss, in the journal too: the next batch
// carries it.
func (d *Disk) setLostWrites(lost bool) {
	d.lostWrites = lost
	d.j.ranged(recIntent, block.Range{}) // so that there is one
}

// listen begins to hear of the device below. That says at once what has happened since it was
// opened, such as a loss of power while the cache was down; its size may have changed unheard.
func (d *Disk) listen() {
	d.below.Notify(d.event)
	d.resized()
	if d.recovery.Fresh {
		d.lostWrites = false // whoever wrote before was no client of this cache
	}
}

// remember calls done when the journal has that a flush has yet to tell of a loss, if so, and would
// have it after a loss of this host's power: whoever told us of it will not do so again.
func (d *Disk) remember(done func()) {
	if !d.lostWrites || !d.j.on {
		done()
		return
	}
	d.recorded(&op{d: d, mode: freeMode, marker: true}, true, func(*op) { done() })
	d.pump()
}

// writing tells whether a client's write is under way, which may end behind a flush that begins
// now.
func (d *Disk) writing() bool {
	writes := func(o *op) bool {
		return o.req != nil && (o.mode == flashMode || o.mode == beforeMode || o.mode == belowMode)
	}
	return slices.ContainsFunc(d.active, writes) || slices.ContainsFunc(d.waiting, writes) || len(d.parked) > 0
}

// sealState is whether the label says that nothing is volatile below. It says so from an orderly stop on, over all starts until
// a request comes that changes something: what a start hears of a loss of power is none of what was sent, however often a
// start dies.
type sealState uint8

const (
	sealNone   sealState = iota
	sealOn               // it says so
	sealBroken           // it is being written without
)

// changes tells whether a request may change what is below.
func changes(op block.Op) bool {
	switch op {
	case block.OpRead, block.OpHold, block.OpFlush, block.OpStatus:
		return false
	}
	return true
}

// unseal takes back what the label says of the device below; what would change that is parked meanwhile.
func (d *Disk) unseal() {
	k := &d.marks
	if k.busy {
		return // it has a label under way; what is parked comes here again
	}
	k.busy, d.sealed = true, sealBroken
	o := &op{d: d, mode: freeMode, marker: true, pending: 1}
	o.step = func(*op) {
		d.sealed = sealNone
		if k.due && !k.owed { // somebody was left out meanwhile
			k.busy = false
			d.mark()
			return
		}
		k.due = false
		d.markEnds(false)
	}
	l := d.local().label
	l.flushed = false
	d.local().writeLabel(o, l)
	o.less()
}

// seal says on the label that nothing is dirty here and nothing volatile below, if that can be had:
// then a loss of power below costs nothing.
func (d *Disk) seal(o *op, done func()) {
	if !d.j.on || !d.flashed() || !d.clean() || d.marks.due || d.marks.busy || d.writing() {
		done()
		return
	}
	o.losses = d.losses
	o.pending = 1
	o.step = func(*op) {
		if o.status != block.OK || o.losses != d.losses {
			done()
			return
		}
		l := d.local().label
		l.state, l.flushed = labelClosed, true
		o.step = func(*op) { done() }
		o.pending = 1
		d.local().writeLabel(o, l)
		o.less()
	}
	if d.volatile.ended > d.volatile.flushed {
		p := d.newPart(o)
		p.req = block.Request{Op: block.OpFlush}
		d.sendBelow(p)
	}
	o.less()
}
