package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Cancel withdraws a request; see block.Device. What waits here ends at once, and so does a flush,
// which has no data. What is below is withdrawn there. A transfer of a flash device runs to its
// end, for the client's buffers are the device's until then. An op that waits for something else,
// such as the journal or a mark, goes on without its client: see release.
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
		if o.req == r { // it may have ended
			d.release(o)
		}
	}
	d.pump()
}

// release answers a request that was withdrawn as soon as no device has its memory any more. The op
// goes on with a copy, for what it has begun must come to an end: a write whose record is in the
// journal needs its data, or a start would take what is in its place for damaged. It keeps its
// ranges, so that whatever comes later waits for its end, and changes nothing below any more.
func (d *Disk) release(o *op) {
	r := o.req
	if !o.cancelled || o.released || r == nil || r.Op != block.OpFlush && (o.onFlash > 0 || o.below != nil) {
		return
	}
	own := *r
	own.Data, own.Compare, own.Extents, own.Ref = nil, nil, nil, nil
	if o.mode == flashMode {
		b := make([]byte, r.Range.Bytes())
		gather(b, r.Data, 0)
		own.Data = [][]byte{b}
	}
	if len(r.Ranges) > 0 {
		own.Ranges = slices.Clone(r.Ranges)
		o.ranges = own.Ranges
	}
	d.answer(o, block.Cancelled)
	o.req, o.released = &own, true
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
