package tier

import (
	"fmt"
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// load makes the index what was found.
func (r *recovery) load() error {
	d := r.d
	d.loading = true
	r.clip()
	keys := r.keys()
	// A peer has no copy of what is clean, and after a loss of power it may be older than what is
	// below, or newer.
	warm := !d.opt.TakeOver && !r.loose && !r.older
	for _, dirty := range []bool{true, false} { // what must stay comes first
		for _, k := range keys {
			f := r.blocks[k]
			if (count(f.dirty) > 0) != dirty || count(f.valid) == 0 || !dirty && !warm {
				continue
			}
			slot := d.ix.Insert(k)
			if slot == hostcache.None {
				if dirty {
					return fmt.Errorf("the journal has more dirty blocks than the cache can hold; open it with the size and block size that it had")
				}
				continue
			}
			d.frameOf[slot] = f.frame
			for i := range d.per {
				switch {
				case has(f.dirty, i):
					if !d.ix.SetDirty(slot, i, 1) {
						return fmt.Errorf("the journal has more dirty blocks than the cache can pin; open it with the size and block size that it had")
					}
					r.out.DirtySectors++
				case has(f.valid, i) && warm:
					d.ix.SetValid(slot, i, 1)
				default:
					continue
				}
				// What is on flash is not lost: it only lies between damaged sectors that a
				// snapshot has joined.
				d.damaged.remove(block.Range{Start: k.Block()*uint64(d.per) + uint64(i), Count: 1})
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

func count(w []uint64) int {
	n := 0
	for _, x := range w {
		n += bits.OnesCount64(x)
	}
	return n
}
