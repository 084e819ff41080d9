package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// destageState is a disk's part in it.
type destageState struct {
	listed   bool
	cursor   hostcache.Key // the elevator
	inflight int
	below    int   // of those, below
	heard    int64 // when the last one ended below, or the first of those there went
	silent   bool  // none of them ends: they take no slots of others (destager.go)
	pausedTo int64 // after a failure below
	failures int
	// suspect is what could not be read from the flash; it is read by grains. unread are grains that are tried
	// again later, tries is how often they were.
	suspect, unread rangeSet
	tries           int
	retrying        bool
}

// retryAfter is the time until a destage that failed is tried again, doubled up to 64 times.
const retryAfter = 100_000_000

// wake says that the disk has something to destage.
func (s *destageState) wake(d *Disk) {
	if !s.listed {
		s.listed = true
		d.destager.disks = append(d.destager.disks, d)
	}
}

// destage starts destages of all disks of the destager while there are slots.
func (d *Disk) destage() {
	g := d.destager
	// Those that an offload waits for come first, whatever else is under way.
	for _, o := range d.flushers {
		for _, r := range o.ranges {
			d.destageRange(r)
		}
	}
	for g.used < g.ahead() {
		x := g.next()
		if x == nil {
			break
		}
		if x.destageOne() {
			g.at++
			if x != d {
				x.pump()
			}
			continue
		}
		x.turn.listed = false
		g.disks = slices.Delete(g.disks, g.at, g.at+1)
	}
	g.listen()
}

// destageRange destages the dirty sectors of a range at once.
func (d *Disk) destageRange(r block.Range) {
	if d.turn.pausedTo > d.exec.Now() || d.turn.silent || d.source() == nil {
		return
	}
	for at := r; at.Count > 0 && d.destager.used < 2*d.destager.ahead(); {
		run := d.firstReadable(at)
		if run.Count == 0 {
			return
		}
		d.startDestage(run, true)
		at = block.Range{Start: run.End(), Count: r.End() - run.End()}
	}
}

// destageOne starts the destage of the next dirty run behind the cursor; false means
// that there is none that can be started.
func (d *Disk) destageOne() bool {
	s := &d.turn
	if d.ix.DirtySectors() == 0 || s.pausedTo > d.exec.Now() || s.silent || d.source() == nil {
		return false
	}
	for _, from := range [2]hostcache.Key{s.cursor, 0} {
		tried := 0
		for {
			run := d.runFrom(from)
			if run.Count == 0 {
				break
			}
			from = hostcache.MakeKey(0, (run.End()-1)/uint64(d.per)+1)
			if d.startDestage(run, d.marks.owed) { // what waits may wait for all of it
				s.cursor = from
				return true
			}
			if tried++; tried > 2*d.destager.slots {
				return false
			}
		}
	}
	return false
}

// runFrom returns the first dirty run from a block on, neighbouring blocks together.
func (d *Disk) runFrom(from hostcache.Key) (run block.Range) {
	start := from.Block() * uint64(d.per)
	all := after(block.Range{Count: d.info.Sectors}, start) // what lies behind the end is about to be dropped; see shrunk
	if len(d.turn.suspect) > 0 {
		return d.firstReadable(all)
	}
	d.eachDirty(all, func(g block.Range) bool {
		if run.Count == 0 {
			run = g
		} else if g.Start != run.End() {
			return false
		} else {
			run.Count += g.Count
		}
		return run.Count < d.destageSectors
	})
	run.Count = min(run.Count, d.destageSectors)
	return run
}

// firstReadable returns the first dirty run of a range without what could not be read of late; a suspect
// grain is a run of its own.
func (d *Disk) firstReadable(at block.Range) (run block.Range) {
	t := &d.turn
	d.eachDirty(at, func(g block.Range) bool {
		for g.Count > 0 && run.Count == 0 {
			if bad, ok := t.unread.first(g); ok && bad.Start <= g.Start {
				g = after(g, bad.End())
				continue
			} else if ok {
				g.Count = bad.Start - g.Start
			}
			if bad, ok := t.suspect.first(g); ok && bad.Start <= g.Start {
				g.Count = d.inGrain(g.Start, g.Count)
			} else if ok {
				g.Count = bad.Start - g.Start
			}
			run = g
		}
		return run.Count == 0
	})
	run.Count = min(run.Count, d.destageSectors)
	return run
}

// after is the part of a range from a sector on.
func after(g block.Range, from uint64) block.Range {
	if from >= g.End() {
		return block.Range{}
	}
	return block.Range{Start: from, Count: g.End() - from}
}

// startDestage destages a run of dirty sectors unless some of it is being destaged, or
// something waits for it that would change it below. urgent: an op that waits for the destage
// itself has precedence over those.
func (d *Disk) startDestage(run block.Range, urgent bool) bool {
	o := d.newOp(nil, destageMode)
	o.one[0] = run
	o.ranges = o.one[:]
	if d.busy(o) || !urgent && queued(d.waiting, o) {
		o.ranges = nil
		d.close(o)
		return false
	}
	for _, p := range d.active { // writes to the flash that have begun already
		if p.mode == flashMode && p.overlaps(run) {
			o.rewrite(p.ranges[0])
		}
	}
	d.active = append(d.active, o)
	o.buf = d.buffers.take(run.Bytes(), 1<<62)
	d.destager.begin(d)
	o.step = destageRead
	o.pending = 1
	m := d.source()
	off := uint64(0)
	d.eachBlock(run, func(b uint64, first, n int) bool {
		s := d.ix.Lookup(hostcache.MakeKey(0, b))
		k := uint64(n) << block.SectorShift
		d.vec = append(d.vec[:0], o.buf[off:off+k])
		m.readRange(o, d.flashOffset(d.frameOf[s], first), d.vec, run, true)
		off += k
		return true
	})
	o.less()
	return true
}

// destageRead has the data: it goes below. Its blocks cannot leave meanwhile, since they are dirty.
func destageRead(o *op) {
	d := o.d
	if o.flash {
		d.unreadable(o)
		return
	}
	d.destager.queue = append(d.destager.queue, o)
	d.destager.feed()
}

func (o *op) sendDestage() {
	d := o.d
	o.step = destaged
	if d.doomed(o.ranges) {
		o.status, o.sent = block.OutOfRange, d.exec.Now()
		d.run(o)
		d.exec.Post(d.pump) // another disk may have made room for it
		return
	}
	p := d.newPart(o)
	p.vec = append(p.vec, o.buf)
	p.req = block.Request{Op: block.OpWrite, Origin: block.OriginHost, Range: o.ranges[0], Data: p.vec}
	if o.through = d.barriers; o.through {
		p.req.Flags = block.FUA
	}
	d.sendBelow(p)
}

// A grain that cannot be read is tried again after half a second, doubled each time; then it is damaged.
const (
	rereadAfter = 500_000_000
	rereadTries = 6
)

// unreadable goes on with a destage whose data could not be read: first by grains, and those that
// fail alone later. Who waits for them hears of it.
func (d *Disk) unreadable(o *op) {
	t, r := &d.turn, o.ranges[0]
	if !t.suspect.overlaps(r) {
		t.tries = 0 // it has a minute of its own, whatever failed before
	}
	t.suspect.add(r)
	if r.Count > d.inGrain(r.Start, r.Count) {
		d.endDestage(o)
		return
	}
	t.unread.add(r)
	o.status = block.MediumRead
	d.failFlushers(o)
	d.endDestage(o)
	d.failOwed()
	if d.opening && d.unreadAtOpen != nil {
		d.unreadAtOpen()
	}
	if t.retrying {
		return
	}
	t.retrying = true
	d.exec.At(d.exec.Now()+rereadAfter<<t.tries, func() {
		again := t.unread
		t.retrying, t.unread = false, nil
		if t.tries++; t.tries > rereadTries && !d.closed {
			for _, r := range again {
				d.giveUpSectors(r)
			}
			t.tries, t.suspect = 0, nil
		}
		t.wake(d)
		d.pump()
	})
}

// giveUpSectors makes what is still dirty of a range unreadable until it is written. Its ranges are locked until the journal has
// that: a write sends its data beside its record where nothing is dirty. Writes that came before have their record, or wait with
// it: their sectors stay dirty, and if they fail they are read again.
func (d *Disk) giveUpSectors(r block.Range) {
	var lost rangeSet
	d.eachDirty(r, func(g block.Range) bool {
		lost.add(g)
		return true
	})
	for _, ops := range [...][]*op{d.active, d.waiting} {
		for _, p := range ops {
			if p.mode == flashMode {
				lost.remove(p.ranges[0])
			}
		}
	}
	for _, g := range lost {
		o := d.newOp(nil, belowMode)
		o.one[0] = g
		o.ranges = o.one[:]
		d.lock(o, giveUpDirty)
	}
}

func giveUpDirty(o *op) {
	d := o.d
	var lost rangeSet
	d.eachDirty(o.ranges[0], func(g block.Range) bool {
		lost.add(g)
		return true
	})
	for _, g := range lost {
		d.damage(g)
		d.eachCached(g, func(s hostcache.Slot, first, n int) bool {
			d.ix.ClearValid(s, first, n)
			return true
		})
	}
	d.recorded(o, true, func(o *op) { // what was here may have been flushed
		d.unlock(o)
		d.close(o)
		d.cleaned()
	})
}

func destaged(o *op) {
	d := o.d
	r := o.ranges[0]
	took := d.exec.Now() - o.sent
	d.window.destage(d, o, took)
	d.destager.heard(d)
	if o.status != block.OK {
		d.destageFailed(o)
		return
	}
	d.turn.failures = 0
	d.throttle.destaged(took)
	if !o.through {
		d.volatile.ended++
		if d.barriers {
			// A flush came meanwhile: what it made durable here must not get volatile below. Once more, with FUA.
			d.endDestage(o)
			return
		}
	}
	for i := uint64(0); i < r.Count; {
		if o.rewritten[i/64]>>(i%64)&1 != 0 {
			i++
			continue
		}
		k := i
		for k < r.Count && o.rewritten[k/64]>>(k%64)&1 == 0 {
			k++
		}
		g := block.Range{Start: r.Start + i, Count: k - i}
		d.j.ranged(recDestaged, g)
		d.damaged.remove(g) // if the flash went meanwhile, these were saved
		d.turn.suspect.remove(g)
		d.eachBlock(g, func(b uint64, first, n int) bool {
			if s := d.ix.Lookup(hostcache.MakeKey(0, b)); s != hostcache.None {
				d.ix.ClearDirty(s, first, n)
			}
			return true
		})
		d.stats.DestagedSectors += g.Count
		i = k
	}
	d.endDestage(o)
	d.cleaned()
}

// destageFailed keeps the data and tries again later. Who waits for it hears of the failure. One that is cut off is
// none of the device's: what lies before its end is destaged at once, and who waits for what lies behind hears of that.
func (d *Disk) destageFailed(o *op) {
	s := &d.turn
	if d.cutOff(o) {
		d.failFlushers(o)
		d.endDestage(o)
		s.wake(d)
		return
	}
	d.stats.DestageErrors++
	s.pausedTo = max(s.pausedTo, d.exec.Now()+retryAfter<<min(s.failures, 6))
	s.failures++
	status := o.status
	if status == block.NoSpace {
		d.stats.NoSpaceBelow++
	}
	d.failFlushers(o)
	d.endDestage(o)
	d.failOwed()
	if d.closed {
		return
	}
	d.exec.At(s.pausedTo, func() {
		s.wake(d)
		d.pump()
	})
}

// cutOff tells whether a destage failed because the device below ends before it does, since it has shrunk meanwhile: what lies
// before the end will be destaged without the rest. It may have grown again since.
func (d *Disk) cutOff(o *op) bool {
	return o.status == block.OutOfRange && d.ends(o)
}

// ends reports whether an op reaches behind the end of the device below, or into what that has cut off and is not dropped yet.
func (d *Disk) ends(o *op) bool { return !o.within(d.info.Sectors) || d.doomed(o.ranges) }

// failFlushers ends what waits for a destage that has failed. One that reaches behind the end of the device below says nothing of
// who waits for a part of it that lies before the end, also while that is not known yet: the part is destaged alone.
func (d *Disk) failFlushers(o *op) {
	kept, r := d.flushers[:0], o.ranges[0]
	for _, f := range d.flushers {
		part := o.status == block.OutOfRange && !d.ends(f) && !f.contains(r)
		if f.overlaps(r) && !part {
			f.status = o.status
			d.run(f)
			continue
		}
		kept = append(kept, f)
	}
	d.flushers = kept
}

func (d *Disk) endDestage(o *op) {
	d.destager.end(d)
	d.unlock(o)
	d.close(o)
}

// cleaned goes on with what waits for sectors to be clean.
func (d *Disk) cleaned() {
	d.relax()
	kept := d.flushers[:0]
	for _, f := range d.flushers {
		if d.anyDirty(f.ranges) {
			kept = append(kept, f)
			continue
		}
		d.run(f)
	}
	for i := len(kept); i < len(d.flushers); i++ {
		d.flushers[i] = nil
	}
	d.flushers = kept
	if d.clean() {
		d.settleOwed()
		d.review()
	}
}
