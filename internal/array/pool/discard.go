// Giving room back: space that is free for good is discarded on the mdisks, in rounds behind what
// hosts want of them.
//
// # What may be discarded
//
// A start makes of the last checkpoint and the log behind it the map as it was behind the last
// record that counts. Edits are blind, so it does not matter how old the checkpoint is, nor what its
// nodes or older records refer to: only the finished map is read by. A grain is free for good when no
// map that a start may end with refers to it. It may end behind each record from the last one that
// was flushed on. So a round is
//
//  1. chosen: grains that are free now are withheld, so that nobody takes them before the end;
//  2. flushed: behind a flush that begins then, every map that a start may find has them free, too.
//     A volume that was deleted, and what a resize has cut off, the objects do not have any more,
//     and that was durable before the map was cut;
//  3. discarded, and given back.
//
// A grain with a page in the cache's index is left for later: the page may be on its way to the
// mdisk, or a redo may write it once more. A transfer that reads a grain keeps it from being free;
// a read that was given up keeps what it reads from being discarded.
//
// # What is not kept
//
// That a grain is stale is memory. A start asks the mdisks for what they have room for: sweep.go.

package pool

import (
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// The pace of discards.
const (
	discardInterval = 100_000_000   // from one round to the next
	discardRetry    = 1_000_000_000 // to the next where nothing could be done
	// idleExtents is what a round withholds of an mdisk that has nothing else to do, in extents;
	// of another one, one.
	idleExtents = 16
	// roundExtents bounds the extents of all pools that a round withholds: the executor is held for
	// some microseconds for each.
	roundExtents = 64
	// discardScan bounds the extents of a pool that a round looks at.
	discardScan = 1 << 15
	// discardTries is how often an mdisk may fail in a row until it is left alone. It is asked again
	// when more has become free.
	discardTries = 8
	// discardStuck is the time after which the rest of an mdisk does not wait for a discard any more, and
	// stuckExtents how many extents of an mdisk may be lost to such ones.
	discardStuck = backend.AbortPatience
	stuckExtents = 4
	grainBytes   = layout.ExtentBytes / layout.ExtentGrains
)

// discarding is the discards of all pools of a set.
type discarding struct {
	on       bool
	delay    int64 // from the first grain that is free until the round: others join it
	due      bool  // a round is
	starting bool  // what ends now ends inside a step
	roundFn  func()
}

// poolDiscards is what a pool has to do with discards.
type poolDiscards struct {
	cursor uint32 // extent where the next round begins
	scan   uint32 // extents that are to be looked at yet
}

// lane is what an mdisk has to do with discards.
type lane struct {
	unit   int         // grains that it gives back as a whole; 0: it gives nothing back
	credit int         // extents that this round may still withhold
	under  []*withheld // extents that are withheld
	failed int         // discards in a row
	rest   int64       // until when it is left alone, because one has failed
}

// withheld is what of an extent a round discards.
type withheld struct {
	d      *Mdisk
	extent uint32
	off    uint64 // of the extent, on its mdisk
	grains uint64
	left   int   // discards under way, and one for the start of them
	since  int64 // when it was withheld
	begun  bool  // it is flushed, and is being discarded
	err    error
}

// DiscardFree has the set discard what is free from now on, after so many nanoseconds, if it keeps
// payload at all. Preconditions: there are no pools yet.
func (set *Set) DiscardFree(delay int64) {
	set.discards.on, set.discards.delay = set.Payload, delay
	set.discards.roundFn = func() {
		set.discards.due = false
		set.discardRound()
	}
}

// track prepares the discards of a new pool.
func (p *Pool) track() {
	if !p.Set.discards.on {
		return
	}
	p.Alloc.Track()
	for _, d := range p.Mdisks {
		if unit := d.DiscardUnit(); unit > 0 && unit <= layout.ExtentBytes {
			d.lane.unit = int(max(1, unit/grainBytes))
		}
	}
}

// discardSoon notes that there may be more to discard. It is called for each grain that is freed.
func (p *Pool) discardSoon() {
	x := &p.Set.discards
	if !x.on {
		return
	}
	if p.discards.scan == 0 {
		for _, d := range p.Mdisks {
			d.lane.failed = 0
		}
	}
	p.discards.scan = p.Alloc.Extents()
	p.Set.discardAfter(x.delay)
}

// discardAfter has the next round begin in so many nanoseconds, if none is due yet.
func (set *Set) discardAfter(wait int64) {
	if x := &set.discards; !x.due {
		x.due = true
		block.Call(set.Exec, set.Exec.Now()+wait, x.roundFn)
	}
}

// discardRound withholds what a round discards, and has NVRAM flushed before anything is.
func (set *Set) discardRound() {
	if set.Back.Stopped() {
		return
	}
	var round []*withheld
	busy, more := false, false
	for _, p := range set.Pools() {
		for _, d := range p.Mdisks {
			d.grant()
			busy = busy || len(d.lane.under) > 0
		}
		var left bool
		round, left = p.choose(round)
		more = more || left
	}
	if len(round) > 0 {
		set.Link.Flushed(func(err error) { set.discard(round, err) })
	}
	switch {
	case !more:
	case len(round) > 0 || busy:
		set.discardAfter(discardInterval)
	default:
		set.discardAfter(discardRetry)
	}
}

// grant says how much of the mdisk the round may withhold: nothing before what the last one did has
// ended, and little while others want something of it, or a discard there is stuck.
func (d *Mdisk) grant() {
	l, now := &d.lane, d.pool.Set.Exec.Now()
	fresh := slices.ContainsFunc(l.under, func(w *withheld) bool { return now-w.since < discardStuck })
	switch {
	case fresh || len(l.under) >= stuckExtents || l.unit == 0 || l.rest > now || !d.Discards():
		l.credit = 0
	case d.Depth() > 0 || len(l.under) > 0:
		l.credit = 1
	default:
		l.credit = idleExtents
	}
}

// choose withholds what a round discards of the pool, and reports whether there is more, now or
// later.
func (p *Pool) choose(round []*withheld) (_ []*withheld, more bool) {
	s := &p.discards
	if s.scan == 0 || !p.SpaceWait.Empty() { // whoever waits for space comes first
		return round, s.scan > 0
	}
	all := p.Alloc.Extents()
	first, looked := s.cursor, min(s.scan, discardScan)
	for i := range looked {
		e := (first + i) % all
		md, off := p.Alloc.Extent(e)
		d := p.Mdisks[md]
		if d.lane.unit == 0 || d.Offline() || d.lane.failed >= discardTries || p.Alloc.Withholds(e) != 0 {
			continue // behind a discard the extent is looked at again
		}
		grains := p.Alloc.Discardable(e, d.lane.unit)
		if grains == 0 {
			continue
		}
		idle := uint64(0)
		if d.lane.credit > 0 && len(round) < roundExtents {
			idle = d.unread(off, p.unused(e, grains))
		}
		if idle != grains && !more { // the next round begins here
			more, s.cursor = true, e
		}
		if idle == 0 || idle != grains && d.lane.unit > 1 {
			continue
		}
		if !p.spares(idle) {
			if !more {
				more, s.cursor = true, e
			}
			continue
		}
		d.lane.credit--
		p.Alloc.Withhold(e, idle)
		w := &withheld{d: d, extent: e, off: off, grains: idle, since: p.Set.Exec.Now()}
		d.lane.under = append(d.lane.under, w)
		round = append(round, w)
	}
	if more {
		s.scan = all
		return round, true
	}
	s.cursor, s.scan = (first+looked)%all, s.scan-looked
	return round, s.scan > 0
}

// unused returns those of some grains of an extent that the cache has no page of.
func (p *Pool) unused(extent uint32, grains uint64) uint64 {
	if p.Part.Empty() {
		return grains
	}
	for left := grains; left != 0; left &= left - 1 {
		g := bits.TrailingZeros64(left)
		k := layout.KeyOf(p.id, (uint64(extent)*layout.ExtentGrains+uint64(g))<<layout.WindowShift)
		for i := range layout.PageKey(layout.GrainPages) {
			if p.Set.Cache.Lookup(k+i) != wcache.NoPage {
				grains &^= 1 << g
				break
			}
		}
	}
	return grains
}

// unread returns those of some grains of an extent that the medium has no read of that was given up.
func (d *Mdisk) unread(off, grains uint64) uint64 {
	for left := grains; left != 0; left &= left - 1 {
		if g := bits.TrailingZeros64(left); d.Reading(off+uint64(g)*grainBytes, grainBytes) {
			grains &^= 1 << g
		}
	}
	return grains
}

// spares reports whether the pool can do without some grains for a while: half of what is free stays
// to be taken, but for what is withheld alone. What is stuck nobody has.
func (p *Pool) spares(grains uint64) bool {
	stuck, now := 0, p.Set.Exec.Now()
	for _, d := range p.Mdisks {
		for _, w := range d.lane.under {
			if now-w.since >= discardStuck {
				stuck += bits.OnesCount64(w.grains)
			}
		}
	}
	w := p.Alloc.Withheld() - stuck
	return w == 0 || 2*int64(w+bits.OnesCount64(grains)) <= p.Alloc.Grains()-p.Alloc.Allocated()-int64(stuck)
}

// discard discards what a round has withheld, when that is durable.
func (set *Set) discard(round []*withheld, err error) {
	set.discards.starting = true
	for _, w := range round {
		w.left = 1
		if err == nil && !set.Back.Stopped() && w.d.Discards() {
			w.begun = true
			w.start()
		} else {
			w.grains = 0 // that says nothing of the mdisk
		}
		w.ended(nil)
	}
	set.discards.starting = false
}

// start starts a discard for each run of grains. The mdisk may say at once that it does not discard.
func (w *withheld) start() {
	for left := w.grains; left != 0; {
		if !w.d.Discards() {
			w.grains = 0 // it is tried again
			return
		}
		from := bits.TrailingZeros64(left)
		n := bits.TrailingZeros64(^(left >> from))
		left &^= (uint64(1)<<n - 1) << from
		w.left++
		w.d.Discard(w.off+uint64(from)*grainBytes, uint64(n)*grainBytes, w.ended)
	}
}

// ended books a discard; behind the last one others may take the grains.
func (w *withheld) ended(err error) {
	if err != nil {
		w.err = err
	}
	if w.left--; w.left > 0 {
		return
	}
	p, l := w.d.pool, &w.d.lane
	l.under = slices.DeleteFunc(l.under, func(o *withheld) bool { return o == w })
	done := w.err == nil && w.grains != 0
	p.Alloc.GiveBack(w.extent, done)
	switch {
	case done:
		l.failed = 0
	case w.d.DiscardUnit() == 0:
		l.unit = 0
	default: // it is tried again
		if w.err != nil {
			l.failed++
			l.rest = p.Set.Exec.Now() + discardRetry<<min(l.failed, 5)
		}
		p.discards.scan = p.Alloc.Extents()
		p.Set.discardAfter(discardRetry)
	}
	if !p.Set.discards.starting {
		p.Set.Up.Step()
	}
}
