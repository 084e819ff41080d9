package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// delays are writes that are on flash and whose answers the throttle holds back. They are let go when their time is over, when
// their client withdraws them, and all of them as soon as the destaging area is not above its threshold any more.
type delays struct {
	list  []*op // in the order in which they came
	timer block.Timer
	at    int64 // when it fires; 0: it is not set
}

// delay answers a write after a time.
func (d *Disk) delay(o *op, wait int64) {
	d.stats.ThrottledWrites++
	o.since, o.due = d.exec.Now(), d.exec.Now()+wait
	o.delayed = true
	d.delays.list = append(d.delays.list, o)
	d.setDelay(o.due)
}

// setDelay makes the timer fire at a time, or earlier.
func (d *Disk) setDelay(at int64) {
	l := &d.delays
	if l.at != 0 && l.at <= at {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.at = max(at, 1)
	l.timer = d.exec.At(at, func() {
		l.timer, l.at = nil, 0
		d.endDelays(d.exec.Now())
		d.pump()
	})
}

// endDelays answers the writes that are due at a time.
func (d *Disk) endDelays(now int64) {
	next := int64(0)
	d.takeDelayed(func(o *op) bool {
		if o.due <= now {
			return true
		}
		if next == 0 || o.due < next {
			next = o.due
		}
		return false
	})
	if next != 0 {
		d.setDelay(next)
	}
}

// relax answers all of them if the area has drained.
func (d *Disk) relax() {
	if len(d.delays.list) > 0 && !d.throttle.above(d.occupied()) {
		d.takeDelayed(func(*op) bool { return true })
	}
}

// undelay ends the delay of a write that its client withdraws. What it wrote stays.
func (d *Disk) undelay(o *op) {
	d.delays.list = slices.DeleteFunc(d.delays.list, func(p *op) bool { return p == o })
	d.endDelay(o)
	d.answer(o, block.Cancelled)
	d.close(o)
}

// endDelay books how long a write was held back.
func (d *Disk) endDelay(o *op) {
	o.delayed = false
	d.stats.InjectedNanos += d.exec.Now() - o.since
}

// takeDelayed answers those of the delayed writes that which names.
func (d *Disk) takeDelayed(which func(*op) bool) {
	l := &d.delays
	l.list = slices.DeleteFunc(l.list, func(o *op) bool {
		if !which(o) {
			return false
		}
		d.endDelay(o)
		d.finishWrite(o)
		return true
	})
}
