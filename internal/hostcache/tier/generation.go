package tier

import "github.com/arraysim/arraysim/internal/block"

// Changes is what a device can tell of changes that came from elsewhere: another host, a
// rollback of a snapshot, an offload that somebody else asked for. A device without
// it makes the cache forget everything clean when it hears of such a change.
type Changes interface {
	// TracksChanges tells whether ChangedSince can be asked.
	TracksChanges() bool
	// ChangedSince calls done with the present generation and the extents that have changed
	// after generation since by other paths than this one. complete is false when the device does
	// not remember that far. Generation 0 is none: the device could not be asked.
	ChangedSince(since uint64, done func(generation uint64, extents []block.Range, complete bool))
}

// generations is what a disk knows of its device's generations.
type generations struct {
	known  uint64 // all changes up to here are forgotten; 0 is none
	asking bool   // one question at a time
	asked  int64  // when
	again  bool   // something was heard meanwhile
	timer  block.Timer
	// unsure: the last question had no answer, or a late one, which says nothing of the time since it was given. What others
	// have changed since the one before is not known, so nothing clean is served and nothing is filled in until there is one
	// in time.
	unsure bool
	retry  bool // a timer asks again
}

// askAgainNanos is the time after which a question without an answer is asked again.
const askAgainNanos = 1_000_000_000

func (d *Disk) changes() Changes {
	if c, ok := d.below.(Changes); ok && c.TracksChanges() {
		return c
	}
	return nil
}

// watchGeneration forgets what others have changed while nobody watched, and calls done before anything
// can be read. A cache that is empty, or whose device cannot tell, begins at once.
func (d *Disk) watchGeneration(done func()) {
	c := d.changes()
	if c == nil {
		done()
		return
	}
	d.ask(c, done)
}

// watch asks from time to time: a device that others change says so only when it is sent something, and
// reads that hit send nothing.
func (d *Disk) watch() {
	if d.opt.WatchNanos <= 0 || d.changes() == nil || d.closed {
		return
	}
	d.generation.timer = d.exec.At(d.exec.Now()+d.opt.WatchNanos, func() {
		d.generation.timer = nil
		if d.closed {
			return
		}
		if d.late() {
			d.generation.unsure = true // the answer does not come
		}
		d.generationAsked()
		d.watch()
	})
}

// late reports whether the answer to the present question comes later than a watch may wait for it.
func (d *Disk) late() bool {
	g := &d.generation
	return g.asking && d.opt.WatchNanos > 0 && d.exec.Now()-g.asked >= max(d.opt.WatchNanos, askAgainNanos)
}

// generationChanged is the news that others have changed something.
func (d *Disk) generationChanged() {
	d.stats.Generations++
	if d.changes() == nil {
		d.invalidate(block.Range{Count: d.info.Sectors}, true, func() {})
		return
	}
	d.generationAsked()
}

// generationAsked forgets what others have changed, and nothing else.
func (d *Disk) generationAsked() {
	if d.generation.asking {
		d.generation.again = true
		return
	}
	d.ask(d.changes(), func() {})
}

func (d *Disk) ask(c Changes, done func()) {
	g := &d.generation
	g.asking, g.again, g.asked = true, false, d.exec.Now()
	c.ChangedSince(g.known, func(generation uint64, extents []block.Range, complete bool) {
		if generation == 0 && !complete && g.known != 0 && d.ix.Len() > 0 {
			// It cannot be reached, so nothing can be said; the next question has the same beginning.
			g.asking, g.unsure = false, true
			d.stats.UnansweredQuestions++
			d.askLater()
			d.pump()
			done()
			return
		}
		late := d.late()
		if !complete {
			extents = []block.Range{{Count: d.info.Sectors}}
		} else {
			for _, r := range extents {
				d.stats.ChangedSectors += r.Count
			}
		}
		pending := 1
		less := func() {
			if pending--; pending > 0 {
				return
			}
			if g.known != generation {
				// The record follows those of what was forgotten.
				g.known = generation
				d.j.generation(generation)
			}
			g.asking, g.unsure = false, late
			done()
			if g.again || late {
				d.ask(c, func() {})
			}
			d.pump()
		}
		for _, r := range extents {
			pending++
			d.invalidate(r, complete, less)
		}
		less()
		d.pump()
	})
}

// askLater asks again after a question that had no answer.
func (d *Disk) askLater() {
	if d.generation.retry {
		return
	}
	d.generation.retry = true
	d.exec.At(d.exec.Now()+askAgainNanos, func() {
		d.generation.retry = false
		if !d.closed && d.generation.unsure {
			d.generationAsked()
		}
	})
}

// Invalidate forgets what is clean in a range, after what is under way there. Dirty sectors are newer than
// what anybody else wrote, as far as this cache can know: they stay, and are counted as conflicts.
// done is called when no read can find what was there any more.
func (d *Disk) Invalidate(r block.Range, done func()) {
	d.invalidate(r, true, done)
	d.pump()
}

// invalidate is Invalidate; others: somebody else has changed the range, as far as is known.
func (d *Disk) invalidate(r block.Range, others bool, done func()) {
	o := d.newOp(nil, belowMode)
	o.one[0] = r
	o.ranges = o.one[:]
	d.lock(o, func(o *op) {
		d.eachDirty(r, func(g block.Range) bool {
			if others {
				d.stats.ConflictSectors += g.Count
			}
			return others
		})
		d.forgetRange(r)
		d.recorded(o, false, func(o *op) {
			d.unlock(o)
			d.close(o)
			d.exec.Post(done)
		})
	})
}
