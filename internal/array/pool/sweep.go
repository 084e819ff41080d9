// What earlier lives have left: a start does not know which of the free space the mdisks have room
// for. It asks them, a run at a time, and discards what is free of that. Nothing is read.

package pool

import "github.com/arraysim/arraysim/internal/array/layout"

// sweepBytes is what one step marks at the most.
const sweepBytes = 4096 * layout.ExtentBytes

// SweepFree looks for what is free and takes room nevertheless, if the set discards at all.
// Preconditions: the pools of a start are there.
func (set *Set) SweepFree() {
	if !set.discards.on {
		return
	}
	for _, p := range set.Pools() {
		for _, d := range p.Mdisks {
			if d.lane.unit > 0 {
				d.sweepAt(0, set.discards.delay) // hosts come back first
			}
		}
	}
}

// sweepAt goes on at an offset in so many nanoseconds. What is taken there meanwhile, and then freed,
// is stale anyway.
func (d *Mdisk) sweepAt(off uint64, wait int64) {
	set := d.pool.Set
	set.Exec.At(set.Exec.Now()+wait, func() {
		if set.Back.Stopped() || d.Detached() || d.DiscardUnit() == 0 || off >= d.Size() {
			return
		}
		d.Survey(off, func(start, end uint64, err error) {
			end = min(end, start+sweepBytes, d.Size())
			if err != nil || start >= end || d.Detached() { // where it fails, the next start looks again
				return
			}
			d.pool.Alloc.MarkStale(d.Number(), start, end)
			d.pool.discardSoon()
			d.sweepAt(end, 0)
		})
	})
}
