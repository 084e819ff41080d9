package tier

import "fmt"

// Close destages everything and then calls done; requests that come later end Gone. The error says what of the stop is missing.
// With hurry dirty data stays on flash, where the next Open finds it.
func (d *Disk) Close(hurry bool, done func(error)) {
	d.closing, d.requested.Mode = true, WriteThrough
	end := func() {
		d.closed = true
		if t := d.generation.timer; t != nil {
			t.Stop()
		}
		o := &op{d: d, mode: freeMode, marker: true}
		if hurry {
			d.recorded(o, false, func(*op) { done(nil) })
		} else {
			d.recorded(o, true, func(*op) { d.closeMarked(o, done) })
		}
		d.pump()
	}
	if hurry {
		end()
		return
	}
	d.waiters = append(d.waiters, waiter{clean: true, fn: end})
	d.review()
	d.pump()
}

// closeMarked ends a stop when the marks are made. A flash that was left out has sectors that were dirty, and a start without a mark
// would believe it.
func (d *Disk) closeMarked(o *op, done func(error)) {
	o.step = func(*op) { d.closeMarked(o, done) }
	switch {
	case o.unmarked:
		done(fmt.Errorf("hostcache: %s: it cannot be recorded that a flash device was left out (%v); --format that device before it is used again",
			d.info.Name, d.marks.refusal))
	case !d.awaitMarks(o):
		d.seal(o, func() { done(nil) })
	}
}
