package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// startRead splits a read into what is on flash and what is not, and starts all of it.
func startRead(o *op) {
	d := o.d
	if o.cancelled {
		d.endCancelled(o)
		return
	}
	r := o.req.Range
	if d.damaged.overlaps(r) {
		d.unlock(o)
		d.answer(o, block.MediumRead)
		d.close(o)
		return
	}
	d.plan(o, r)
	o.step = readDone
	o.pending = 1
	off := uint64(0)
	for _, g := range o.segs {
		n := g.Bytes()
		if g.slot != hostcache.None {
			m := d.local()
			if m.state == memberLost {
				m = d.source()
			}
			d.vec = clip(d.vec[:0], o.req.Data, off, n)
			at := int(g.Start % uint64(d.per))
			m.readRange(o, d.flashOffset(d.frameOf[g.slot], at), d.vec, g.Range, o.careful && d.ix.Dirty(g.slot, at, int(g.Count)))
		} else {
			p := d.newPart(o)
			p.vec = clip(p.vec, o.req.Data, off, n)
			p.req = block.Request{Op: block.OpRead, Flags: o.req.Flags, Host: o.req.Host, Port: o.req.Port, Range: g.Range, Data: p.vec}
			o.through = true
			d.sendBelow(p)
		}
		off += n
	}
	o.less()
}

// plan fills in the segments of a read. Neighbours that are not on flash are one.
func (d *Disk) plan(o *op, r block.Range) {
	o.segs = o.segs[:0]
	if r.Count == 0 {
		return
	}
	flashed := d.caching() || d.ix.DirtySectors() > 0
	d.eachBlock(r, func(b uint64, first, n int) bool {
		base := b * uint64(d.per)
		s := hostcache.None
		if flashed {
			s = d.ix.Lookup(hostcache.MakeKey(0, b))
		}
		if s == hostcache.None || !d.ix.Dirty(s, first, n) && (!d.flashed() || d.generation.unsure) || !d.pin(o, s) {
			d.miss(o, base+uint64(first), n)
			return true
		}
		d.ix.Touch(s)
		for at, end := first, first+n; at < end; {
			start, k := d.ix.ValidRun(s, at)
			if d.generation.unsure {
				start, k = d.ix.DirtyRun(s, at)
			}
			if k == 0 {
				start = end
			}
			if start = min(start, end); start > at {
				d.miss(o, base+uint64(at), start-at)
			}
			if k = min(k, end-start); k > 0 && o.careful {
				k = int(d.inGrain(base+uint64(start), uint64(k)))
			}
			if k > 0 {
				o.segs = append(o.segs, segment{block.Range{Start: base + uint64(start), Count: uint64(k)}, s})
			}
			at = start + k
		}
		return true
	})
}

func (d *Disk) miss(o *op, at uint64, n int) {
	if k := len(o.segs); k > 0 && o.segs[k-1].slot == hostcache.None {
		o.segs[k-1].Count += uint64(n)
		return
	}
	o.segs = append(o.segs, segment{block.Range{Start: at, Count: uint64(n)}, hostcache.None})
}

func readDone(o *op) {
	d := o.d
	d.unpin(o)
	if o.flash {
		if o.cancelled {
			d.endCancelled(o)
			return
		}
		d.reread(o)
		return
	}
	if o.req.Origin != block.OriginMigrate {
		d.window.read(d, o)
	}
	if o.status != block.OK {
		s := o.status
		d.unlock(o)
		d.answer(o, s)
		d.close(o)
		return
	}
	data := o.req.Data
	missed := o.segs[:0]
	off := uint64(0)
	total := uint64(0)
	for _, g := range o.segs {
		if g.slot == hostcache.None {
			missed = append(missed, g)
			total += g.Bytes()
		}
	}
	if total > 0 && d.populating() {
		o.buf = d.buffers.take(total, d.opt.FillBytes)
		if o.buf == nil {
			d.stats.FillsSkipped++
		}
	}
	if o.buf != nil {
		at := uint64(0)
		for _, g := range missed {
			off = (g.Start - o.req.Range.Start) << block.SectorShift
			d.buffers.gather(o.buf[at:at+g.Bytes()], data, off)
			at += g.Bytes()
		}
	}
	o.segs = missed
	d.answer(o, block.OK)
	d.fill(o, false)
}

// reread goes on with a read that the flash failed: a grain at a time, so that only what cannot be read is
// missed. What is clean is below; what is dirty may be on a peer, and else cannot be read now.
func (d *Disk) reread(o *op) {
	bad, forgot := false, false
	if o.careful {
		for _, g := range o.unread {
			s := d.ix.Lookup(hostcache.MakeKey(0, g.Start/uint64(d.per)))
			if s == hostcache.None {
				continue
			}
			if at, n := int(g.Start%uint64(d.per)), int(g.Count); d.ix.Dirty(s, at, n) {
				bad = true
			} else if d.forget(s, at, n) {
				d.j.ranged(recIntent, g)
				forgot = true
			}
		}
	}
	o.req.Located = false // what failed below is read again
	o.flash, o.status, o.through, o.careful, o.unread = false, block.OK, false, true, o.unread[:0]
	if bad {
		d.unlock(o)
		d.answer(o, block.MediumRead)
		d.close(o)
		return
	}
	if forgot { // durably: a write sends its data beside its record where nothing is valid
		d.recorded(o, false, startRead)
		return
	}
	startRead(o)
}

// fill puts the segments, whose data is in the op's buffer, on flash, after the client was
// answered; write says that the client wrote it. The op keeps its ranges meanwhile, so that no write and no offload
// comes between the data and the mark that it is valid.
func (d *Disk) fill(o *op, write bool) {
	if o.buf == nil {
		d.unlock(o)
		d.close(o)
		return
	}
	o.mode, o.step = fillMode, fillDone
	o.pending = 1
	// The blocks that were found room for become the op's segments.
	from := append(d.fillSegs[:0], o.segs...)
	o.segs = o.segs[:0]
	at := uint64(0)
	for _, g := range from {
		d.eachBlock(g.Range, func(b uint64, first, n int) bool {
			k := uint64(n) << block.SectorShift
			s := hostcache.None
			if !d.j.crowded() {
				s = d.frameFor(o, b, write)
			}
			if s != hostcache.None {
				d.vec = append(d.vec[:0], o.buf[at:at+k])
				d.local().write(o, d.flashOffset(d.frameOf[s], first), d.vec)
				o.segs = append(o.segs, segment{block.Range{Start: b*uint64(d.per) + uint64(first), Count: uint64(n)}, s})
			} else {
				d.stats.FillsSkipped++
			}
			at += k
			return true
		})
	}
	d.fillSegs = from[:0]
	// More may wait for this range now than for belowMode before.
	d.admit()
	o.less()
}

func fillDone(o *op) {
	d := o.d
	if !o.flash && d.flashed() {
		for _, g := range o.segs {
			first := int(g.Start % uint64(d.per))
			d.ix.SetValid(g.slot, first, int(g.Count))
			d.j.filled(d.ix.Key(g.slot), d.frameOf[g.slot], first, int(g.Count))
			d.stats.FilledSectors += g.Count
		}
	}
	d.unpin(o)
	d.unlock(o)
	d.close(o)
}
