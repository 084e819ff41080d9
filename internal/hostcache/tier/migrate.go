package tier

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// Resize gives the cache another number of blocks, at most what its flash has frames
// for. What is dirty is destaged first; what is clean is dropped, as vFRC does it. Requests
// wait meanwhile.
func (d *Disk) Resize(blocks int64, done func(error)) {
	spare := int64(min(max(d.totalFrames/64, 1), 4096))
	if most := int64(d.totalFrames) - spare; blocks < 1 || blocks > most {
		d.exec.Post(func() {
			done(fmt.Errorf("hostcache: %d blocks are not possible; the flash has room for 1 to %d", blocks, most))
		})
		return
	}
	all := block.Range{Count: everything} // of a LUN that may grow meanwhile, too
	o := d.newOp(nil, beforeMode)
	o.one[0] = all
	o.ranges = o.one[:]
	end := func(err error) {
		d.unlock(o)
		d.close(o)
		d.exec.Post(func() { done(err) })
	}
	swap := func(*op) {
		// The journal has forgotten everything, and its frames are free: see drop.
		err := d.makeIndex(blocks)
		if err == nil {
			d.SetThrottle(d.throttle.Throttle)
			d.j.renew()
		}
		end(err)
	}
	drop := func(*op) {
		d.forgetRange(all)
		d.recorded(o, false, swap)
	}
	sectors := uint64(0) // of the LUN when the cache began to drain
	var drain func(*op)
	drained := func(*op) {
		if o.status == block.OutOfRange && (d.info.Sectors < sectors || d.doomed(o.ranges)) {
			// It shrinks meanwhile. What was dirty behind its new end is dropped first, for which it needs the ranges.
			o.status = block.OK
			d.unlock(o)
			d.lock(o, drain)
			return
		}
		if o.status != block.OK {
			end(fmt.Errorf("hostcache: dirty data cannot be destaged (%v), so the cache keeps its size", o.status))
			return
		}
		d.upgrade(o, drop)
	}
	drain = func(*op) {
		o.step, sectors = drained, d.info.Sectors
		if d.anyDirty(o.ranges) {
			d.flushers = append(d.flushers, o)
			return
		}
		d.run(o)
	}
	d.lock(o, drain)
	d.pump()
}

// Migration says how MigrateFrom copies. The zero value copies one run after the other, at once.
type Migration struct {
	// Depth is how many runs of sectors are under way at one time; 0 is 1.
	Depth int
	// Carry takes so many bytes from the other host to this one and then calls done, on the executor;
	// nil takes no time.
	Carry func(bytes uint64, done func())
}

// leaving is what a disk notes while another one copies its contents.
type leaving struct {
	changed []uint64 // by block of the LUN: a bit for each that clients changed since the copy began
}

// note marks the blocks of ranges that a client is about to change.
func (l *leaving) note(ranges []block.Range, per uint64) {
	for _, r := range ranges {
		if r.Count == 0 {
			continue
		}
		if n := int((r.End()-1)/per/64) + 1; n > len(l.changed) { // the LUN has grown
			l.changed = append(l.changed, make([]uint64, n-len(l.changed))...)
		}
		for b := r.Start / per; b <= (r.End()-1)/per; b++ {
			l.changed[b/64] |= 1 << (b % 64)
		}
	}
}

// noteChange marks what an op is about to change, while the contents are copied.
func (d *Disk) noteChange(o *op) {
	if d.leaving != nil && o.req != nil && changes(o.req.Op) {
		d.leaving.note(o.ranges, uint64(d.per))
	}
}

// MigrateFrom copies what is in another host's cache of the same LUN, so that a disk that moves
// finds a warm cache. The other one may serve its clients meanwhile; it must write through, as it does
// while it is quiesced, and notes what they change. Once it has no clients any more, and before this
// one has some, Arrive must be called. done gets the numbers of blocks and of bytes that came.
func (d *Disk) MigrateFrom(src *Disk, m Migration, done func(blocks int, bytes uint64)) {
	src.leaving = &leaving{changed: make([]uint64, (src.info.Sectors/uint64(src.per)+64)/64)}
	// What has come already and lets others read meanwhile, as a COMPARE AND WRITE does while it has dirty sectors
	// destaged, changes what may have been copied by then.
	for _, ops := range [...][]*op{src.active, src.waiting, src.parked} {
		for _, o := range ops {
			src.noteChange(o)
		}
	}
	x := &migration{d: d, src: src, m: m, done: done}
	x.m.Depth = max(1, m.Depth)
	x.pump()
}

// migration is a copy under way: slot and at are where it goes on.
type migration struct {
	d, src   *Disk
	m        Migration
	slot, at int
	flying   int
	pumping  bool
	blocks   int
	bytes    uint64
	done     func(blocks int, bytes uint64)
}

// next returns the next run of valid sectors of the source; a count of 0 says that there is none.
func (x *migration) next() block.Range {
	src := x.src
	for ; x.slot < len(src.frameOf); x.slot, x.at = x.slot+1, 0 {
		if src.frameOf[x.slot] == noFrame || x.at >= src.per {
			continue
		}
		s := hostcache.Slot(x.slot)
		at, run := src.ix.ValidRun(s, x.at)
		if run == 0 {
			continue
		}
		if x.at == 0 {
			x.blocks++
		}
		x.at = at + run
		return block.Range{Start: src.ix.Key(s).Block()*uint64(src.per) + uint64(at), Count: uint64(run)}
	}
	return block.Range{}
}

// pump keeps as many runs under way as the depth says.
func (x *migration) pump() {
	if x.pumping {
		return
	}
	x.pumping = true
	for x.flying < x.m.Depth {
		r := x.next()
		if r.Count == 0 {
			break
		}
		x.flying++
		x.bytes += r.Bytes()
		x.d.migrate(x.src, r, x.m.Carry, func() {
			x.flying--
			x.pump()
		})
	}
	x.pumping = false
	if x.flying == 0 && x.done != nil {
		done := x.done
		x.done = nil
		done(x.blocks, x.bytes)
	}
}

// migrate fills a range with what the other cache has. Writers of the range wait.
func (d *Disk) migrate(src *Disk, r block.Range, carry func(uint64, func()), done func()) {
	o := d.newOp(nil, fillMode)
	o.one[0] = r
	o.ranges = o.one[:]
	d.lock(o, func(*op) {
		o.buf = d.buffers.take(r.Bytes(), 1<<62)
		arrived := func(status block.Status) {
			if status == block.OK && d.populating() {
				o.segs = append(o.segs[:0], segment{r, hostcache.None})
			} else {
				o.segs = o.segs[:0]
			}
			d.fill(o, false)
			d.pump()
			done()
		}
		src.Submit([]*block.Request{{Op: block.OpRead, Origin: block.OriginMigrate, Range: r, Data: [][]byte{o.buf}, Done: func(q *block.Request) {
			if carry == nil {
				arrived(q.Status)
				return
			}
			carry(r.Bytes(), func() { arrived(q.Status) })
		}}})
	})
	d.pump()
}

// Arrive ends a migration from another cache, which has no clients any more: what they changed there
// since it began is forgotten here.
func (d *Disk) Arrive(src *Disk, done func()) {
	l := src.leaving
	src.leaving = nil
	if l == nil {
		d.exec.Post(done)
		return
	}
	per, sectors := uint64(src.per), src.info.Sectors
	left := 1
	less := func() {
		if left--; left == 0 {
			done()
		}
	}
	for b := uint64(0); b < uint64(len(l.changed))*64; b++ {
		if l.changed[b/64] == 0 {
			b |= 63
			continue
		}
		first := b
		for b/64 < uint64(len(l.changed)) && l.changed[b/64]>>(b%64)&1 != 0 {
			b++
		}
		if b > first && first*per < sectors { // else the LUN has shrunk
			left++
			d.Invalidate(block.Range{Start: first * per, Count: min(b*per, sectors) - first*per}, less)
		}
	}
	d.exec.Post(less)
}
