package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// startFlashWrite puts a write on the flash devices that the policy asks for. If
// there is no room, it goes below instead.
func startFlashWrite(o *op) {
	d := o.d
	r := o.req.Range
	if !d.writeBack() || !d.roomFor(o, r) {
		d.unpin(o)
		d.stats.PassedWrites++
		d.unlock(o)
		o.segs = o.segs[:0]
		o.mode = belowMode
		d.enter(o)
		return
	}
	d.reserved += r.Count
	d.flashWrites++
	if o.req.Flags&block.FUA != 0 {
		d.barriers = true // of clients that never flush, this is all that says it
	}
	for _, p := range d.active {
		if p.mode == destageMode && p.overlaps(r) {
			p.rewrite(r)
		}
	}
	o.pending = 1
	o.flushes = d.j.flushes
	first, flushed := false, false
	off := uint64(0)
	for _, g := range o.segs {
		n := g.Bytes()
		at := int(g.Start % uint64(d.per))
		flushed = d.j.recordWrite(g, o.req.Data, off) || flushed
		first = first || d.validWithin(g.slot, at, int(g.Count))
		off += n
	}
	d.j.opened++
	d.j.waiting = append(d.j.waiting, o)
	o.pending++
	o.step = flashWritten
	if first {
		// Sectors are overwritten in their place: the journal must know first. Were the data
		// there and the record not, after a crash what was clean would not be what is
		// below, and what was dirty would not match its checksum.
		o.step = writeFrames
		if flushed {
			// ... and have it survive power loss, or what was flushed could be something that nothing tells of.
			o.step = syncRecord
		}
		d.stats.OrderedWrites++
	} else {
		o.sendFrames()
	}
	o.less()
}

func syncRecord(o *op) {
	o.d.sync(o, writeFrames)
}

func writeFrames(o *op) {
	o.step = flashWritten
	o.pending = 1
	o.sendFrames()
	o.less()
}

func (o *op) sendFrames() {
	d := o.d
	off := uint64(0)
	for _, g := range o.segs {
		n := g.Bytes()
		d.vec = clip(d.vec[:0], o.req.Data, off, n)
		to := d.flashOffset(d.frameOf[g.slot], int(g.Start%uint64(d.per)))
		for _, m := range d.members {
			if m.written() {
				m.write(o, to, d.vec)
			}
		}
		off += n
	}
}

// roomFor finds a frame for every block of a write, and tells whether the destaging
// area takes it.
func (d *Disk) roomFor(o *op, r block.Range) bool {
	per := uint64(d.per)
	if d.occupied()+r.Count > d.throttle.area || !d.j.takes(r.Count, (r.End()+per-1)/per-r.Start/per) {
		return false
	}
	o.segs = o.segs[:0]
	return d.eachBlock(r, func(b uint64, first, n int) bool {
		s := d.frameFor(o, b, true)
		if s == hostcache.None {
			return false
		}
		o.segs = append(o.segs, segment{block.Range{Start: b*uint64(d.per) + uint64(first), Count: uint64(n)}, s})
		return true
	})
}

// occupied is what the destaging area holds, in sectors, with what is under way.
func (d *Disk) occupied() uint64 { return uint64(d.ix.DirtySectors()) + d.reserved }

// validWithin tells whether a sector among those is valid, clean or dirty.
func (d *Disk) validWithin(s hostcache.Slot, first, n int) bool {
	v, k := d.ix.ValidRun(s, first)
	return k > 0 && v < first+n
}

// rewrite marks sectors of a destage that is under way.
func (o *op) rewrite(r block.Range) {
	g := o.ranges[0]
	for s := max(r.Start, g.Start); s < min(r.End(), g.End()); s++ {
		i := s - g.Start
		o.rewritten[i/64] |= 1 << (i % 64)
	}
}

func flashWritten(o *op) {
	d := o.d
	r := o.req.Range
	if o.req.Flags&block.FUA != 0 && !d.opt.PowerSafe && o.sent == 0 && !o.flash {
		o.sent = 1 // once
		o.pending = 1
		d.syncAll(o)
		o.less()
		return
	}
	// A mark that is only owed waits until nothing dirty is on the last member any more: else a start that finds it marked
	// could not have what was acknowledged. This write is not acknowledged from there, and waits as well.
	if !o.unmarked && !d.marks.owed && (d.marks.due || d.marks.busy) && d.awaitMarks(o) {
		return // somebody was left out, and does not have this
	}
	o.sent = 0
	d.reserved -= r.Count
	d.flashWrites--
	whole := d.source() != nil && d.source().state == memberPresent
	if whole {
		// Those who have the record have the data.
		full := false
		flushed := o.req.Flags&block.FUA != 0 || o.flushes != d.j.flushes
		for _, g := range o.segs {
			first := int(g.Start % uint64(d.per))
			full = !d.ix.SetDirty(g.slot, first, int(g.Count)) || full
			d.j.loosen(d.frameOf[g.slot], first, int(g.Count), flushed)
		}
		if full {
			panic("hostcache/tier: internal error: a pinned block cannot become dirty")
		}
		d.damaged.remove(r)
	} else if d.clean() {
		d.settleOwed() // this was the last that it waited for
	}
	d.relax() // sectors that were dirty already count once again
	d.j.closed()
	d.unpin(o)
	d.unlock(o)
	if o.unmarked {
		// Nobody says that another one is left out: it might be the one that is believed.
		d.turn.wake(d)
		d.answer(o, block.Offline)
		d.close(o)
		return
	}
	if !whole || !d.accepting && (!d.flashed() || !d.enoughPeers()) {
		// It has fewer copies than were asked for, so it goes below before it is acknowledged. What is dirty
		// is void then.
		o.flash = false
		o.mode, o.segs = belowMode, o.segs[:0]
		d.enter(o)
		d.turn.wake(d)
		return
	}
	d.turn.wake(d)
	d.window.flashWrite(d, o)
	wait := d.injected()
	if wait <= 0 || o.cancelled {
		d.finishWrite(o)
		return
	}
	d.delay(o, wait)
}

func (d *Disk) finishWrite(o *op) {
	d.window.write(d, o)
	d.answer(o, block.OK)
	d.close(o)
}
