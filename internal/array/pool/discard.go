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
// # What it costs
//
// The space knows by mdisk which extents are worth a discard (alloc.Space.NextDiscardable), so that
// a round costs by what there is to discard and not by the size of the pool. Each mdisk goes on where
// its last turn has ended, and those whose turn is the longest ago come first: none waits for another
// that cannot discard.
//
// # What is not kept
//
// That a grain is stale is memory. A start asks the mdisks for what they have room for: sweep.go.

package pool

import (
	"cmp"
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
	// roundLooks bounds the extents of all pools that a round looks at, and roundTries those whose
	// pages it looks up in the cache: perhaps a thousand each.
	roundLooks = 1024
	roundTries = 2 * roundExtents
	// discardTries is how often an mdisk may fail in a row until it is left alone. It is asked once
	// more when more of it has become free.
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
	turns    uint64 // of all mdisks
	looked   uint64 // extents that rounds have looked at
}

// lane is what an mdisk has to do with discards.
type lane struct {
	unit   int         // grains that it gives back as a whole; 0: it gives nothing back
	credit int         // extents that this round may still withhold
	under  []*withheld // extents that are withheld
	at     uint32      // extent, by its number on the mdisk, where the next turn begins
	turn   uint64      // number of its last turn
	failed int         // turns in a row
	blamed uint64      // turn that has failed last
	rest   int64       // until when it is left alone, because one has failed
	knew   uint64      // BecameDiscardable then
}

// round is what a round does.
type round struct {
	chosen       []*withheld
	looks, tries int // that are left
	pool         *Pool
	stuck        int // grains of pool that stuck discards keep
}

// withheld is what of an extent a round discards.
type withheld struct {
	d      *Mdisk
	extent uint32
	off    uint64 // of the extent, on its mdisk
	grains uint64
	left   int    // discards under way, and one for the start of them
	since  int64  // when it was withheld
	turn   uint64 // in which it was
	begun  bool   // it is flushed, and is being discarded
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
	units := make([]int, len(p.Mdisks))
	for i, d := range p.Mdisks {
		if unit := d.DiscardUnit(); unit > 0 && unit <= layout.ExtentBytes {
			units[i] = int(max(1, unit/grainBytes))
			d.lane.unit = units[i]
		}
	}
	p.Alloc.Track(units)
}

// discardSoon notes that there may be more to discard. It is called for each grain that is freed.
func (p *Pool) discardSoon() {
	if x := &p.Set.discards; x.on {
		p.Set.discardAfter(x.delay)
	}
}

// DiscardWork returns how many extents all rounds of discards have looked at: what they have cost.
func (set *Set) DiscardWork() (extents uint64) { return set.discards.looked }

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
	x := &set.discards
	r := round{looks: roundLooks, tries: roundTries}
	var wanting []*Mdisk
	busy := false
	for _, p := range set.Pools() {
		for _, d := range p.Mdisks {
			busy = busy || len(d.lane.under) > 0
			if d.grant() {
				wanting = append(wanting, d)
			}
		}
	}
	slices.SortStableFunc(wanting, func(a, b *Mdisk) int { return cmp.Compare(a.lane.turn, b.lane.turn) })
	for _, d := range wanting {
		d.choose(&r)
	}
	x.looked += uint64(roundLooks - r.looks)
	if len(r.chosen) > 0 {
		set.Link.Flushed(func(err error) { set.discard(r.chosen, err) })
	}
	switch {
	case !slices.ContainsFunc(wanting, func(d *Mdisk) bool { return d.pool.Alloc.HasDiscardable(d.Number()) }):
	case len(r.chosen) > 0 || busy || r.over():
		set.discardAfter(discardInterval)
	default:
		set.discardAfter(discardRetry)
	}
}

// over reports whether a round has done what it may.
func (r *round) over() bool {
	return r.looks == 0 || r.tries == 0 || len(r.chosen) >= roundExtents
}

// grant reports whether the mdisk has something to discard, now or later, and says how much of it the
// round may withhold: nothing before what the last one did has ended, and little while others want
// something of it, or a discard there is stuck or has failed.
func (d *Mdisk) grant() bool {
	l, p := &d.lane, d.pool
	l.credit = 0
	if l.unit == 0 || d.Offline() || !p.Alloc.HasDiscardable(d.Number()) {
		return false
	}
	if l.failed >= discardTries {
		if p.Alloc.BecameDiscardable(d.Number()) == l.knew {
			return false
		}
		l.failed = discardTries - 1
	}
	now := p.Set.Exec.Now()
	fresh := slices.ContainsFunc(l.under, func(w *withheld) bool { return now-w.since < discardStuck })
	switch {
	case fresh || len(l.under) >= stuckExtents || l.rest > now || !d.Discards():
	case !p.SpaceWait.Empty(): // whoever waits for space comes first
	case d.Depth() > 0 || len(l.under) > 0 || l.failed > 0:
		l.credit = 1
	default:
		l.credit = idleExtents
	}
	return true
}

// choose withholds what the round discards of the mdisk, from where its last turn has ended once
// round.
func (d *Mdisk) choose(r *round) {
	p, l := d.pool, &d.lane
	if l.credit == 0 || r.over() {
		return
	}
	p.Set.discards.turns++
	l.turn = p.Set.discards.turns
	begin, again := l.at, false
	for l.credit > 0 && !r.over() {
		e, n, grains, ok := p.Alloc.NextDiscardable(d.Number(), l.at)
		if !ok && !again {
			l.at, again = 0, true
			continue
		}
		if !ok || again && n >= begin {
			return
		}
		l.at = n + 1
		if r.looks--; grains == 0 {
			continue
		}
		r.tries--
		_, off := p.Alloc.Extent(e)
		idle := d.unread(off, p.unused(e, grains))
		if idle == 0 || idle != grains && l.unit > 1 {
			continue
		}
		if !r.spares(p, idle) {
			l.at = n
			return
		}
		l.credit--
		p.Alloc.Withhold(e, idle)
		w := &withheld{d: d, extent: e, off: off, grains: idle, since: p.Set.Exec.Now(), turn: l.turn}
		l.under = append(l.under, w)
		r.chosen = append(r.chosen, w)
	}
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

// spares reports whether a pool can do without some grains for a while: half of what is free stays to
// be taken, but for what is withheld alone. What is stuck nobody has.
func (r *round) spares(p *Pool, grains uint64) bool {
	if r.pool != p {
		r.pool, r.stuck = p, p.stuck()
	}
	w := p.Alloc.Withheld() - r.stuck
	return w == 0 || 2*int64(w+bits.OnesCount64(grains)) <= p.Alloc.Grains()-p.Alloc.Allocated()-int64(r.stuck)
}

// stuck returns the number of grains that stuck discards keep.
func (p *Pool) stuck() (grains int) {
	now := p.Set.Exec.Now()
	for _, d := range p.Mdisks {
		for _, w := range d.lane.under {
			if now-w.since >= discardStuck {
				grains += bits.OnesCount64(w.grains)
			}
		}
	}
	return grains
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
	case w.err != nil: // it is tried again
		l.knew = p.Alloc.BecameDiscardable(w.d.Number())
		if l.blamed != w.turn {
			l.blamed = w.turn
			l.failed++
			l.rest = p.Set.Exec.Now() + discardRetry<<min(l.failed, 5)
		}
	}
	if p.Alloc.HasDiscardable(w.d.Number()) { // of this extent, too
		wait := int64(discardRetry)
		if done {
			wait = discardInterval
		}
		p.Set.discardAfter(wait)
	}
	if !p.Set.discards.starting {
		p.Set.Up.Step()
	}
}
