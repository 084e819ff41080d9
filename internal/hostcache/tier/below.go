package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// startBelow carries out what changes the device below by itself: writes through or past
// the cache, and offloads. The op has its ranges for itself: no destage and no fill is under way in
// them.
func startBelow(o *op) {
	d := o.d
	for _, r := range o.ranges {
		d.forgetRange(r)
	}
	// Even if the cache has nothing here now: the record that a destage of these sectors is done
	// may still be on its way, and after a crash without it the older data would be destaged once
	// more, over what is written now. Those records survive a loss of power if the write does.
	d.recorded(o, o.req.Flags&block.FUA != 0, forward)
}

// forgetRange makes what is clean in a range invalid, in the journal too: from then on the
// device below may change it.
func (d *Disk) forgetRange(r block.Range) {
	touched := false
	d.eachCached(r, func(s hostcache.Slot, first, n int) bool {
		touched = d.forget(s, first, n) || touched
		return true
	})
	if touched {
		d.j.ranged(recIntent, r)
	}
}

// forget makes the clean sectors among those invalid. It tells whether any of them
// was valid, clean or dirty.
func (d *Disk) forget(s hostcache.Slot, first, n int) bool {
	any := false
	for at, end := first, first+n; at < end; {
		v, k := d.ix.ValidRun(s, at)
		if k == 0 || v >= end {
			break
		}
		any = true
		stop := min(v+k, end)
		for v < stop {
			ds, dn := d.ix.DirtyRun(s, v)
			if dn == 0 || ds >= stop {
				ds, dn = stop, 0
			}
			if ds > v {
				d.ix.ClearValid(s, v, ds-v)
				d.stats.InvalidatedSectors += uint64(ds - v)
			}
			v = ds + dn
		}
		at = stop
	}
	return any
}

// forward passes the client's request on.
func forward(o *op) {
	d := o.d
	if o.cancelled {
		d.endCancelled(o)
		return
	}
	if o.mode == belowMode && d.marks.owed {
		// The record that what is here may change has not got to the last member, or may not have.
		d.unlock(o)
		if o.req.Op == block.OpCompareWrite || o.req.Op == block.OpOrWrite {
			o.mode = beforeMode
		}
		d.park(o)
		return
	}
	if o.mode == belowMode && d.j.on && !d.recording() {
		// Nor has anybody that record if the last member is being marked: it must be left out
		// first.
		if o.step = forward; !o.unmarked && d.awaitMarks(o) {
			return
		}
		if o.unmarked {
			d.unlock(o)
			d.answer(o, block.Offline)
			d.close(o)
			return
		}
	}
	o.step = forwarded
	o.status = block.OK
	p := d.newPart(o)
	r := o.req
	p.req = block.Request{Op: r.Op, Flags: r.Flags, Origin: r.Origin, Host: r.Host, Port: r.Port, Lent: r.Lent, Priority: r.Priority, Range: r.Range, Ranges: r.Ranges, Data: r.Data, Compare: r.Compare,
		Ref: r.Ref, RefOffset: r.RefOffset, Extents: r.Extents}
	if d.enduring() && d.requested.Mode == WriteBack && changes(r.Op) {
		p.req.Flags |= block.FUA // the flash would have kept it over a loss of power
	}
	o.down = p
	o.through = true
	d.sendBelow(p)
}

func forwarded(o *op) {
	d := o.d
	if o.mode != belowMode {
		d.settleBelow(o)
		return
	}
	// The device below tells of a loss before anything ends that it carried out behind it, and ends
	// nothing well that was lost: what it has told so far came before this.
	o.losses = d.losses
	if o.req.Flags&block.FUA == 0 || o.status != block.OK {
		d.volatile.ended++
	}
	if o.step = marked; !d.marks.owed && d.awaitMarks(o) {
		return // somebody was left out, who may have older data
	}
	marked(o)
}

func marked(o *op) {
	d := o.d
	if o.unmarked && o.status == block.OK {
		o.status = block.Offline
	}
	if o.status == block.OK && o.durable && o.losses != d.losses {
		o.status = block.Hardware // it was lost, and the flush that ended had nothing of it to make durable
	}
	if o.status == block.OK && d.barriers && !o.durable && (d.anyDirty(o.ranges) || d.anyDamaged(o.ranges)) {
		// What is dirty here may have been flushed, and so may what was before it was damaged. Neither may be
		// void before what takes its place would survive a loss of power.
		o.durable = true
		if o.req.Op != block.OpWrite || o.req.Flags&block.FUA == 0 {
			o.step = marked
			o.pending = 1
			p := d.newPart(o)
			p.req = block.Request{Op: block.OpFlush, Host: o.req.Host, Port: o.req.Port}
			d.sendBelow(p)
			o.less()
			return
		}
	}
	// A miscompare has changed nothing, and of a failure nobody knows what it changed:
	// what was dirty stays dirty.
	if o.status == block.OK {
		void := false
		for _, r := range o.ranges {
			void = d.supersede(r) || void
		}
		if void {
			d.recorded(o, o.req.Flags&block.FUA != 0, lasting) // nor may what it replaces come back
			return
		}
	}
	lasting(o)
}

// lasting waits for marks: until then a start would find what was dirty here on a member that has
// not got the record, the last one or one that was left out, and destage it over what has taken its
// place. Nothing dirty is left in the op's ranges.
func lasting(o *op) {
	d := o.d
	if o.step = lasting; o.status == block.OK && !o.unmarked && d.awaitMarks(o) {
		return
	}
	if o.unmarked && o.status == block.OK {
		o.status = block.Offline
	}
	d.settleBelow(o)
}

// supersede makes all that the cache has of a range void. It tells whether some of it
// was dirty.
func (d *Disk) supersede(r block.Range) bool {
	was := d.ix.DirtySectors()
	d.eachCached(r, func(s hostcache.Slot, first, n int) bool {
		d.ix.ClearValid(s, first, n)
		return true
	})
	gone := was - d.ix.DirtySectors()
	bad := d.damaged.overlaps(r)
	d.damaged.remove(r)
	if gone == 0 && !bad {
		return false
	}
	d.stats.SupersededSectors += uint64(gone)
	d.j.ranged(recSuperseded, r)
	d.cleaned()
	return true
}

// settleBelow answers the client, and fills the cache with what it wrote.
func (d *Disk) settleBelow(o *op) {
	r, s := o.req, o.status
	if o.mode == belowMode || r.Op == block.OpHold {
		d.window.below(d, o)
	}
	if r.Op == block.OpStatus {
		r.Extents = d.overlay(r.Extents)
	}
	o.segs = o.segs[:0]
	if s == block.OK && r.Op == block.OpWrite && d.populating() && r.Range.Count > 0 && !o.released {
		if o.buf = d.buffers.take(r.Range.Bytes(), d.opt.FillBytes); o.buf == nil {
			d.stats.FillsSkipped++
		} else {
			d.buffers.gather(o.buf, r.Data, 0)
			o.segs = append(o.segs, segment{r.Range, hostcache.None})
			o.one[0] = r.Range
			o.ranges = o.one[:]
		}
	}
	d.answer(o, s)
	d.fill(o, true)
}

// startHold makes the device below have what it is about to read: the dirty part of the
// op's ranges is destaged, and nothing else.
func startHold(o *op) {
	d := o.d
	o.step = holdReady
	if d.anyDirty(o.ranges) {
		for _, r := range o.ranges {
			d.eachDirty(r, func(g block.Range) bool {
				d.stats.OffloadFlushSectors += g.Count
				return true
			})
		}
		d.flushers = append(d.flushers, o)
		return
	}
	d.run(o)
}

func holdReady(o *op) {
	d := o.d
	d.stats.OffloadWaitNanos += d.exec.Now() - o.start
	if d.anyDamaged(o.ranges) { // lost while we waited
		o.status = block.MediumRead
	}
	if o.status != block.OK { // a destage failed
		s := o.status
		d.unlock(o)
		d.answer(o, s)
		d.close(o)
		return
	}
	if o.mode == beforeMode {
		d.upgrade(o, startBelow)
		return
	}
	forward(o)
}

// volatileWrites counts what the device below may have in a volatile cache.
type volatileWrites struct {
	ended   uint64 // writes without FUA that have ended
	flushed uint64 // of those, before the beginning of a flush that succeeded
}

// startFlush makes everything that was acknowledged survive power loss: on flash, and
// below, where destages and writes through may be in a volatile cache. What has ended before it began is
// covered when it ends; a flush that is under way already may have begun too early.
func startFlush(o *op) {
	d := o.d
	if o.cancelled {
		d.endFlush(o, block.Cancelled)
		return
	}
	d.barriers = true
	d.flushing++
	o.losses = d.losses
	d.j.flushing()
	o.step = flushFlash
	o.pending = 1
	d.j.await(o)
	if ended := d.volatile.ended; ended > d.volatile.flushed {
		o.covers = ended
		p := d.newPart(o)
		p.req = block.Request{Op: block.OpFlush, Host: o.req.Host, Port: o.req.Port}
		d.sendBelow(p)
	}
	o.less()
}

func flushFlash(o *op) {
	d := o.d
	if o.status == block.OK && o.losses == d.losses {
		d.volatile.flushed = max(d.volatile.flushed, o.covers)
	}
	d.sync(o, flushed)
}

func flushed(o *op) {
	d := o.d
	// Who was left out may not have what is flushed. If that is only owed, it is no other than the
	// last one.
	if !o.unmarked && !o.cancelled && !d.marks.owed && d.awaitMarks(o) {
		return
	}
	d.flushing--
	if o.cancelled { // nobody is told of a loss by this
		d.endFlush(o, block.Cancelled)
		return
	}
	if d.flushFails(o.losses) && o.status == block.OK {
		o.status = block.Hardware
	}
	s := o.status
	switch {
	case s != block.OK:
	case o.unmarked:
		s = block.Offline
	case o.flash && d.j.on && !d.flashed() && d.ix.DirtySectors() > 0 && (d.source() == nil || d.source().state != memberPresent):
		s = block.Hardware // the only copy could not be synced
	case d.j.on && d.ix.DirtySectors() > 0 && d.source() != nil && d.source().state == memberFailing && d.source().synced < d.source().writes:
		s = block.Hardware // nor could it be by the flush before, and nobody will sync it again
	}
	d.endFlush(o, s)
}

func (d *Disk) endFlush(o *op, s block.Status) {
	d.unlock(o)
	d.answer(o, s)
	d.close(o)
}

// shrunk drops what lies behind the new end of the device below: it has nowhere to go. The device may grow again, and then has zeros
// there: nobody reads there before what was dropped would not come back with a loss of power, or on a flash that was left out. What
// was destaged is dropped, too: the record of that may not have survived.
func (d *Disk) shrunk(r block.Range) {
	o := d.newOp(nil, belowMode)
	o.one[0] = r
	o.ranges, o.drops = o.one[:], true
	d.lock(o, func(o *op) {
		d.forgetRange(r)
		if !d.supersede(r) {
			d.j.ranged(recSuperseded, r)
		}
		d.recorded(o, true, dropped)
	})
}

// doomed reports whether some of a range is about to be dropped. It must not go below any more: where the device has grown again,
// it would get there.
func (d *Disk) doomed(ranges []block.Range) bool {
	return slices.ContainsFunc(d.waiting, func(o *op) bool { return o.drops && slices.ContainsFunc(ranges, o.overlaps) })
}

// dropped ends shrunk when marks are made; see lasting.
func dropped(o *op) {
	d := o.d
	if o.step = dropped; !o.unmarked && d.awaitMarks(o) {
		return
	}
	d.unlock(o)
	d.close(o)
}

func startStatus(o *op) {
	forward(o)
}

// overlay corrects what the device below says of provisioning: what is dirty here is
// mapped, or will be.
func (d *Disk) overlay(extents []block.Extent) []block.Extent {
	if d.ix.DirtySectors() == 0 {
		return extents
	}
	for i := range extents {
		e := &extents[i]
		if e.State == block.Data {
			continue
		}
		var first block.Range
		d.eachDirty(e.Range, func(r block.Range) bool {
			first = r
			return false
		})
		switch {
		case first.Count == 0:
			continue
		case first.Start == e.Start:
			e.Count, e.State = first.Count, block.Data
		default:
			e.Count = first.Start - e.Start
		}
		return extents[:i+1] // a shorter answer is a right one
	}
	return extents
}
