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
	all := block.Range{Count: d.info.Sectors}
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
	drained := func(*op) {
		if o.status != block.OK {
			end(fmt.Errorf("hostcache: dirty data cannot be destaged (%v), so the cache keeps its size", o.status))
			return
		}
		d.upgrade(o, drop)
	}
	d.lock(o, func(*op) {
		o.step = drained
		if d.anyDirty(o.ranges) {
			d.flushers = append(d.flushers, o)
			return
		}
		d.run(o)
	})
	d.pump()
}

// Drop forgets what is clean: the other way of moving a disk to another host, whose cache
// begins cold there.
func (d *Disk) Drop(done func()) { d.Invalidate(block.Range{Count: d.info.Sectors}, done) }

// MigrateFrom copies what is clean in another host's cache of the same LUN, so that a
// disk that moves finds a warm cache. The other one must be quiet: quiesced, and
// without clients. done gets the number of blocks that came.
func (d *Disk) MigrateFrom(src *Disk, done func(blocks int)) {
	n := 0
	var next func(slot int)
	next = func(slot int) {
		for ; slot < len(src.frameOf); slot++ {
			if src.frameOf[slot] == noFrame {
				continue
			}
			s := hostcache.Slot(slot)
			at, run := src.ix.ValidRun(s, 0)
			if run == 0 {
				continue
			}
			n++
			base := src.ix.Key(s).Block() * uint64(src.per)
			d.migrate(src, block.Range{Start: base + uint64(at), Count: uint64(run)}, func() { next(slot + 1) })
			return
		}
		done(n)
	}
	next(0)
}

// migrate fills a range with what the other cache has. Writers of the range wait.
func (d *Disk) migrate(src *Disk, r block.Range, done func()) {
	o := d.newOp(nil, fillMode)
	o.one[0] = r
	o.ranges = o.one[:]
	d.lock(o, func(*op) {
		o.buf = d.takeBuffer(r.Bytes(), 1<<62)
		src.Submit([]*block.Request{{Op: block.OpRead, Range: r, Data: [][]byte{o.buf}, Done: func(q *block.Request) {
			if q.Status == block.OK && d.populating() {
				o.segs = append(o.segs[:0], segment{r, hostcache.None})
			} else {
				o.segs = o.segs[:0]
			}
			d.fill(o, false)
			d.pump()
			done()
		}}})
	})
	d.pump()
}
