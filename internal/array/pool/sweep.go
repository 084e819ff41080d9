// What earlier lives have left: a start does not know which of the free space the mdisks have room
// for. It asks them, a run at a time, and discards what is free of that. Nothing is read.

package pool

import (
	"errors"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// One step of a sweep asks for so many runs, and marks so much, at the most.
const (
	sweepRuns  = 256
	sweepBytes = 4096 * layout.ExtentBytes
	// sweepTries bounds how long it waits behind errors: 2^so many seconds.
	sweepTries = 8
)

// SweepFree looks for what is free and takes room nevertheless, if the set discards at all.
// Preconditions: the pools of a start are there.
func (set *Set) SweepFree() {
	if !set.discards.on {
		return
	}
	for _, p := range set.Pools() {
		for _, d := range p.Mdisks {
			if d.lane.unit > 0 {
				d.sweepAt(0, 0, set.discards.delay) // hosts come back first
			}
		}
	}
}

// sweepAt goes on at an offset in so many nanoseconds, behind so many errors in a row. What is taken
// there meanwhile, and then freed, is stale anyway.
func (d *Mdisk) sweepAt(off uint64, failed int, wait int64) {
	exec := d.pool.Set.Exec
	exec.At(exec.Now()+wait, func() { d.sweep(off, failed, sweepRuns, sweepBytes) })
}

// sweep marks so many runs and bytes.
func (d *Mdisk) sweep(off uint64, failed, runs int, bytes uint64) {
	set := d.pool.Set
	switch {
	case set.Back.Stopped() || d.Detached() || d.DiscardUnit() == 0 || off >= d.Size():
		return
	case runs == 0 || bytes == 0:
		wait := int64(discardInterval)
		if d.Depth() > 0 { // others come first
			wait = discardRetry
		}
		d.sweepAt(off, 0, wait)
		return
	}
	d.Survey(off, func(start, end uint64, err error) {
		switch end = min(end, start+bytes, d.Size()); {
		case d.Detached() || errors.Is(err, errors.ErrUnsupported):
		case err != nil:
			d.sweepAt(off, min(failed+1, sweepTries), discardRetry<<failed)
		case start < end:
			d.pool.Alloc.MarkStale(d.Number(), start, end)
			d.pool.discardSoon()
			d.sweep(end, 0, runs-1, bytes-(end-start))
		}
	})
}
