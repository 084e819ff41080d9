package array

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// mdisk is one back-end disk of a pool: a medium behind optional limits, and the
// counters of the lower layer.
type mdisk struct {
	a      *Array
	id     uint32 // unique in the array
	name   string
	pool   *Pool
	size   uint64
	medium block.Medium

	bandwidth uint64 // bytes a second, 0: no limit
	iops      uint64 // 0: no limit
	nextFree  int64  // when the limits let the next operation start
	progress  int64  // when the medium ended an operation last that had to wait, or got the first

	depth    int       // operations under way or waiting, destages apart
	out      int       // those that the medium has
	reads    []*diskIO // that a reading waits for, in no order
	destages int       // destages under way
	failures uint64
	unsynced bool
	offline  bool
	removed  bool  // with its pool: nothing is counted any more
	told     bool  // volumes were told that it is stuck
	away     int64 // since when it is offline
	failing  failing
	lost     bool                 // the sync of this cycle failed
	redo     *redo                // after a sync that failed
	pinned   dirtyList            // dirty pages that only it can take
	parked   []*destageUnit       // destages that failed because it is offline
	duration [2]metrics.Histogram // of reads, of writes
	rows     [2][block.NumOrigins][block.NumReasons]*nvlog.Row
}

// diskIO is one back-end operation on its way. It comes from a pool of the array.
type diskIO struct {
	io      block.IO
	d       *mdisk
	started int64
	handed  int64 // when the medium got it, -1: it did not yet
	reason  block.Reason
	// origins of the bytes, for the counters; a read has one.
	bytes [block.NumOrigins]uint32
	done  func(*diskIO)
	ctx   any
	// A read: what it pins, and its place in the mdisk's list.
	pool          *Pool
	phys, sectors uint64
	skew          uint64 // see reading
	place         int
	tries         uint8 // how often its sectors were read before
	next          *diskIO
}

func (a *Array) getIO() *diskIO {
	x := a.freeIO
	if x == nil {
		x = &diskIO{}
		x.io.Ctx = x
		x.io.Done = func(io *block.IO) { a.ioDone(io.Ctx.(*diskIO)) }
		return x
	}
	a.freeIO = x.next
	x.next = nil
	return x
}

func (a *Array) putIO(x *diskIO) {
	clear(x.io.Vec)
	x.io.Vec = x.io.Vec[:0]
	x.io.Err, x.io.Sums = nil, x.io.Sums[:0]
	x.bytes = [block.NumOrigins]uint32{}
	x.done, x.ctx, x.pool, x.tries = nil, nil, nil, 0
	x.next = a.freeIO
	a.freeIO = x
}

// start hands an operation to its mdisk. Operations without a limit are collected
// and go to the medium in one batch at the end of the core's step.
func (d *mdisk) start(x *diskIO) {
	a := d.a
	x.d, x.started, x.handed = d, a.exec.Now(), -1
	d.depth++
	if d.bandwidth == 0 && d.iops == 0 {
		a.queueIO(x)
		return
	}
	cost := int64(0)
	if d.bandwidth != 0 {
		cost = int64(x.io.N * 1e9 / d.bandwidth)
	}
	if d.iops != 0 {
		cost = max(cost, int64(1e9/d.iops))
	}
	d.nextFree = max(d.nextFree, x.started) + cost
	a.exec.At(d.nextFree, func() {
		a.queueIO(x)
		a.endStep()
	})
}

// queueIO collects an operation for its medium. It never submits: a medium may
// complete at once, and what that causes must not meet a map or a list that
// somebody is walking over.
func (a *Array) queueIO(x *diskIO) {
	x.handed = a.exec.Now()
	if x.d.out++; x.d.out == 1 {
		x.d.progress = x.handed
	}
	a.ioBatch = append(a.ioBatch, &x.io)
}

// submitIO sends the collected operations off, those of one mdisk in a row as one
// batch. Only endStep calls it: what completes inside finds nothing half done.
func (a *Array) submitIO() {
	left := false
	for len(a.ioBatch) > 0 {
		batch := a.ioBatch
		a.ioBatch, a.ioSpare = a.ioSpare[:0], nil
		for rest := batch; len(rest) > 0; {
			d, n := rest[0].Ctx.(*diskIO).d, 1
			for n < len(rest) && rest[n].Ctx.(*diskIO).d == d {
				n++
			}
			a.inSubmit = true
			d.medium.Submit(rest[:n:n])
			a.inSubmit = false
			left = left || d.out > 0
			rest = rest[n:]
		}
		clear(batch)
		a.ioSpare = batch[:0]
	}
	if left || a.readsOut > 0 {
		a.watch() // they may never end
	}
}

func (a *Array) ioDone(x *diskIO) {
	d := x.d
	d.depth--
	d.out--
	// What ends inside Submit came from memory, and says nothing of the disk.
	if !a.inSubmit {
		d.progress = a.exec.Now()
		if d.told {
			d.told = false
			d.pool.tellHealth()
		}
	}
	d.duration[x.dir()].Observe(a.exec.Now() - x.started)
	if x.io.Err == nil {
		d.count(x)
	}
	if x.io.Write {
		d.unsynced = true
	}
	x.done(x)
	a.putIO(x)
	a.endStep()
}

// count books the bytes by origin; the operation is booked to the origin that has most of them.
// dir is 0 for a read, 1 for a write.
func (x *diskIO) dir() int {
	if x.io.Write {
		return 1
	}
	return 0
}

func (d *mdisk) count(x *diskIO) {
	dir := x.dir()
	most := block.OriginHost
	for o := range block.NumOrigins {
		if n := x.bytes[o]; n > 0 {
			d.row(dir, o, x.reason).Cells[1] += uint64(n)
			if n > x.bytes[most] {
				most = o
			}
		}
	}
	d.row(dir, most, x.reason).Cells[0]++
}

func (d *mdisk) row(dir int, o block.Origin, why block.Reason) *nvlog.Row {
	if d.removed {
		return &nvlog.Row{}
	}
	r := &d.rows[dir][o][why]
	if *r == nil {
		*r = d.a.rows.Get(d.rowHead(dir, o, why))
	}
	return *r
}

func (d *mdisk) rowHead(dir int, o block.Origin, why block.Reason) nvlog.RowHead {
	return nvlog.HeadOf(rowBackend, uint8(dir)<<7|uint8(o)<<3|uint8(why), d.pool.id, d.id)
}

// lookAt tells volumes when the mdisk has become stuck, and whether it has work: destages that nobody waits for may never
// end, either.
func (d *mdisk) lookAt(now int64) (busy bool) {
	if !d.told && d.stuck(now) {
		d.told = true
		d.pool.tellHealth()
	}
	return d.out > 0
}
