package tier

import "github.com/arraysim/arraysim/internal/block"

// Changes is what a device can tell of changes that came from elsewhere: another host, a
// rollback of a snapshot, an offload that somebody else asked for. A device without
// it makes the cache forget everything clean when it hears of such a change.
type Changes interface {
	// ChangedSince calls done with the present generation and the extents that have changed
	// after generation since by other paths than this one. complete is false when the device does
	// not remember that far.
	ChangedSince(since uint64, done func(generation uint64, extents []block.Range, complete bool))
}

// watchGeneration learns the generation that the cache begins with.
func (d *Disk) watchGeneration() {
	if c, ok := d.below.(Changes); ok {
		c.ChangedSince(0, func(gen uint64, _ []block.Range, _ bool) { d.generation = gen })
	}
}

// generationChanged forgets what others have changed, and nothing else.
func (d *Disk) generationChanged() {
	d.stats.Generations++
	c, ok := d.below.(Changes)
	if !ok {
		d.invalidate(block.Range{Count: d.info.Sectors}, func() {})
		return
	}
	c.ChangedSince(d.generation, func(gen uint64, extents []block.Range, complete bool) {
		d.generation = gen
		if !complete {
			extents = []block.Range{{Count: d.info.Sectors}}
		}
		for _, r := range extents {
			d.invalidate(r, func() {})
		}
		d.pump()
	})
}

// Invalidate forgets what is clean in a range, after what is under way there. Dirty sectors are newer than
// what anybody else wrote, as far as this cache can know: they stay, and are counted as conflicts.
// done is called when no read can find what was there any more.
func (d *Disk) Invalidate(r block.Range, done func()) {
	d.invalidate(r, done)
	d.pump()
}

func (d *Disk) invalidate(r block.Range, done func()) {
	o := d.newOp(nil, belowMode)
	o.one[0] = r
	o.ranges = o.one[:]
	d.lock(o, func(o *op) {
		d.eachDirty(r, func(g block.Range) bool {
			d.stats.ConflictSectors += g.Count
			return true
		})
		o.step = func(o *op) {
			d.unlock(o)
			d.close(o)
			d.exec.Post(done)
		}
		o.pending = 1
		d.forgetRange(r)
		d.j.await(o)
		o.less()
	})
}
