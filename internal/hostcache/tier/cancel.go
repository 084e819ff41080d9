package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Cancel withdraws a request; see block.Device. What waits here ends at once, and so does a flush,
// which has no data. What is below is withdrawn there. A transfer of a flash device runs to its
// end, for the client's buffers are the device's until then. An op that is between two of its steps
// ends with the next.
func (d *Disk) Cancel(r *block.Request) {
	o, _ := r.Priv.(*op)
	if o == nil || o.req != r {
		return
	}
	o.cancelled = true
	switch {
	case o.delayed:
		d.undelay(o)
	case o.queued:
		d.waiting = slices.DeleteFunc(d.waiting, func(w *op) bool { return w == o })
		d.answer(o, block.Cancelled)
		d.close(o)
		d.admit()
	case slices.Contains(d.parked, o):
		d.parked = slices.DeleteFunc(d.parked, func(p *op) bool { return p == o })
		d.answer(o, block.Cancelled)
		d.close(o)
	case slices.Contains(d.flushers, o):
		d.flushers = slices.DeleteFunc(d.flushers, func(f *op) bool { return f == o })
		o.status = block.Cancelled
		d.run(o)
	default:
		d.withdraw(o)
		if r.Op == block.OpFlush {
			d.answer(o, block.Cancelled)
		}
	}
	d.pump()
}

// withdraw cancels all that an op has below.
func (d *Disk) withdraw(o *op) {
	for p := o.below; p != nil; {
		next := p.next
		d.below.Cancel(&p.req)
		p = next
	}
}

// endCancelled ends an op that has its ranges, and whose client does not want it any more.
func (d *Disk) endCancelled(o *op) {
	d.unlock(o)
	d.answer(o, block.Cancelled)
	d.close(o)
}
