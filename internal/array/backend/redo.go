// Writing again what a failed sync may have lost: the user hands it over, the newest first, and the
// mdisk writes and syncs it until both succeed.

package backend

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// A sync that failed may have lost what was written before it, and a later one says nothing of
// that: the kernel forgets a failed write. So all that waited for a sync of the mdisk is written
// again and synced, and nothing else goes to it meanwhile. What that is, and in which order,
// Hooks.Rewrite says; here it is written, as often as it takes.
const (
	settleTime = 10_000_000 // until it is looked again whether nothing is on its way to the mdisk
	// redoPages is what a redo has under way of its pages at a time: the cache may have a million, and
	// what is handed over takes memory, and is looked at by all that comes behind it.
	redoPages = 256
)

// Rewrite is what a redo writes in 4 KiB of an mdisk: some of its sectors.
type Rewrite struct {
	Off  uint64 // of sector 0, in bytes
	Mask uint8  // the sectors to write
	// Data and Sums are of all sectors; without Data, no payload is moved. Both stay as they are
	// until Hooks.Rewritten.
	Data []byte
	Sums [layout.PageSectors]uint32
}

// redo is a redo under way:
//
//	failed -> waiting (Failed says how long) -> writing -> syncing -> over
//
// A write or a sync that fails leads back to waiting. After a write, what failed is written again;
// after a sync, everything.
type redo struct {
	since  int64     // when it began
	todo   []Rewrite // nil: Hooks.Rewrite says it
	next   int       // of todo: the first that was not started
	again  []Rewrite // what failed
	left   int       // writes under way, and one until all are started
	failed error
	timer  block.Timer // of the next try
	asleep bool        // the next try is when the mdisk is not offline any more

	nowFn  func()
	syncFn func(error)
	doneFn func(*Op)
}

// redoAll begins the redo of an mdisk whose sync has failed.
func (d *Mdisk) redoAll() {
	r := &redo{since: d.b.exec.Now(), syncFn: d.redoSynced, doneFn: d.redoWrote}
	r.nowFn = func() {
		d.redoNow()
		d.b.hooks.Step()
	}
	d.redo = r
	d.b.hooks.Lost(d)
	d.redoSoon()
}

// redoSoon begins the next try after a while, the longer the more of the redo was in vain. How long other things have
// failed does not matter: nothing can be written before the redo has ended.
func (d *Mdisk) redoSoon() {
	d.Failed(d.failing.err)
	if d.offline {
		d.redo.asleep = true
		return
	}
	now := d.b.exec.Now()
	d.redo.timer = d.b.exec.At(now+BackOff(now-d.redo.since), d.redo.nowFn)
}

// sleep has a redo wait until the mdisk is not offline any more: to try before would be in vain. A try
// that is under way ends.
func (r *redo) sleep() {
	if r.timer != nil && r.timer.Stop() {
		r.asleep = true
	}
}

// wake begins the next try of a redo that has waited for that.
func (d *Mdisk) wake() {
	if r := d.redo; r != nil && r.asleep {
		r.asleep = false
		r.timer = d.b.exec.At(d.b.exec.Now(), r.nowFn)
	}
}

// redoNow begins a try.
func (d *Mdisk) redoNow() {
	r := d.redo
	if d.detached { // with its pool, of which nothing was dirty: there was nothing to lose
		d.redo = nil
		return
	}
	if d.b.stopped {
		return
	}
	if r.todo == nil {
		todo, ready := d.b.hooks.Rewrite(d)
		if !ready {
			r.timer = d.b.exec.At(d.b.exec.Now()+settleTime, r.nowFn)
			return
		}
		r.todo = todo
	}
	r.next, r.left, r.failed, r.again = 0, 1, nil, nil
	d.redoMore()
}

// redoMore starts what may be under way of a try. Preconditions: not all was started.
func (d *Mdisk) redoMore() {
	r := d.redo
	if d.detached || d.b.stopped {
		r.next = len(r.todo) // nobody needs the rest
	}
	for ; r.next < len(r.todo) && r.left <= redoPages; r.next++ {
		w := &r.todo[r.next]
		for left := uint(w.Mask); left != 0; {
			s := bits.TrailingZeros(left)
			run := bits.TrailingZeros(^(left >> s))
			left &^= (1<<run - 1) << s
			d.rewrite(r.next, w, s, run)
		}
	}
	if r.next == len(r.todo) {
		d.redoEnded(nil)
	}
}

// rewrite starts the write of a run of sectors.
func (d *Mdisk) rewrite(i int, w *Rewrite, first, run int) {
	x := d.Op(true, w.Off+uint64(first)*block.SectorSize, uint64(run)*block.SectorSize, block.ReasonDestage)
	x.IO.Class = block.ClassRebuild
	if w.Data != nil {
		x.IO.Vec = append(x.IO.Vec, w.Data[first*block.SectorSize:(first+run)*block.SectorSize])
		x.IO.Sums = append(x.IO.Sums, w.Sums[first:first+run]...)
	}
	x.Bytes[block.OriginRebuild] = uint32(x.IO.N)
	x.Tag = uint64(i)
	d.redo.left++
	d.start(x, d.redo.doneFn)
}

func (d *Mdisk) redoWrote(x *Op) {
	if x.IO.Err != nil {
		d.redo.again = append(d.redo.again, d.redo.todo[x.Tag])
	}
	more := d.redo.next < len(d.redo.todo)
	d.redoEnded(x.IO.Err)
	if more {
		d.redoMore()
	}
}

// redoEnded books one write of a redo; behind the last comes the sync.
func (d *Mdisk) redoEnded(err error) {
	r := d.redo
	if err != nil {
		r.failed = err
	}
	if r.left--; r.left > 0 {
		return
	}
	if r.failed != nil {
		r.todo = r.again
		d.redoSynced(r.failed)
		return
	}
	switch {
	case d.detached: // its medium is gone, or goes
		d.redo = nil
		return
	case d.b.stopped:
		return
	}
	r.todo, d.sync.due = nil, false
	d.sync.since = max(1, d.b.exec.Now())
	d.medium.Sync(r.syncFn)
}

// redoSynced ends a try.
func (d *Mdisk) redoSynced(err error) {
	d.sync.since = 0
	d.b.answered++
	d.speaks()
	if err != nil {
		d.failing.err = err
		d.redoSoon()
		return
	}
	d.redo = nil
	if d.detached {
		return
	}
	d.b.hooks.Rewritten(d)
	d.b.hooks.Step()
}
