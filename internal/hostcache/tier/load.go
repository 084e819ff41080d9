package tier

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// load makes the index what was found.
func (r *recovery) load() error {
	d := r.d
	d.loading = true
	r.clip()
	all := r.blocks()
	for _, s := range all {
		r.wholeGrains(s)
	}
	// A peer has no copy of what is clean, and after a loss of power it may be older than what is
	// below, or newer.
	warm := !d.opt.TakeOver && !r.loose && !r.older
	for _, dirty := range []bool{true, false} { // what must stay comes first
		for _, s := range all {
			if r.ix.Dirty(s, 0, d.per) != dirty || r.ix.ValidCount(s) == 0 || !dirty && !warm {
				continue
			}
			slot := d.ix.Insert(r.ix.Key(s))
			if slot == hostcache.None {
				if dirty {
					return fmt.Errorf("the journal has more dirty blocks than the cache can hold; open it with the size and block size that it had")
				}
				continue
			}
			d.frameOf[slot] = r.frames[s]
			if !r.loadBlock(s, slot, warm) {
				return fmt.Errorf("the journal has more dirty blocks than the cache can pin; open it with the size and block size that it had")
			}
		}
	}
	d.loading = false
	taken := make([]bool, d.totalFrames)
	for s, frame := range d.frameOf {
		if frame != noFrame {
			taken[frame] = true
			if !d.ix.Dirty(hostcache.Slot(s), 0, d.per) {
				r.out.CleanBlocks++
			}
		}
	}
	d.freeFrames = d.freeFrames[:0]
	for f := len(taken) - 1; f >= 0; f-- {
		if !taken[f] {
			d.freeFrames = append(d.freeFrames, uint32(f))
		}
	}
	// The next snapshot goes to the half that is not the one just read.
	d.j.epoch = r.newest
	d.j.where = uint64(r.from)
	return nil
}

// loadBlock makes a slot of the index what was found of a block: its dirty sectors, and if warm those that are clean. It tells
// whether the index could pin it.
func (r *recovery) loadBlock(from, to hostcache.Slot, warm bool) bool {
	d := r.d
	base := r.ix.Key(from).Block() * uint64(d.per)
	there := func(first, n int) {
		// What is on flash is not lost: it only lies between damaged sectors that a snapshot has joined.
		d.damaged.remove(block.Range{Start: base + uint64(first), Count: uint64(n)})
	}
	for first, n := r.ix.DirtyRun(from, 0); n > 0; first, n = r.ix.DirtyRun(from, first+n) {
		if !d.ix.SetDirty(to, first, n) {
			return false
		}
		r.out.DirtySectors += uint64(n)
		there(first, n)
	}
	if !warm {
		return true
	}
	for first, n := r.ix.ValidRun(from, 0); n > 0; first, n = r.ix.ValidRun(from, first+n) {
		d.ix.SetValid(to, first, n)
		there(first, n)
	}
	return true
}
