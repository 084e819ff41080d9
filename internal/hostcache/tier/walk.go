package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// eachBlock calls fn with the parts of a range by block, until it returns false.
func (d *Disk) eachBlock(r block.Range, fn func(b uint64, first, n int) bool) bool {
	per := uint64(d.per)
	for at := r.Start; at < r.End(); {
		b, first := at/per, at%per
		n := min(per-first, r.End()-at)
		if !fn(b, int(first), int(n)) {
			return false
		}
		at += n
	}
	return true
}

// eachCached calls fn with the parts of resident blocks in a range, in any order
// that is the same every time, until it returns false.
func (d *Disk) eachCached(r block.Range, fn func(s hostcache.Slot, first, n int) bool) bool {
	if r.Count/uint64(d.per) <= uint64(len(d.frameOf)) {
		return d.eachBlock(r, func(b uint64, first, n int) bool {
			s := d.ix.Lookup(hostcache.MakeKey(0, b))
			return s == hostcache.None || fn(s, first, n)
		})
	}
	per := uint64(d.per)
	for i, frame := range d.frameOf {
		if frame == noFrame {
			continue
		}
		s := hostcache.Slot(i)
		base := d.ix.Key(s).Block() * per
		lo, hi := max(r.Start, base), min(r.End(), base+per)
		if lo < hi && !fn(s, int(lo-base), int(hi-lo)) {
			return false
		}
	}
	return true
}

// eachDirty calls fn with the runs of dirty sectors in a range, in order, until it
// returns false. fn must not change the index.
func (d *Disk) eachDirty(r block.Range, fn func(block.Range) bool) {
	per := uint64(d.per)
	d.ix.EachDirty(hostcache.MakeKey(0, r.Start/per), func(s hostcache.Slot, k hostcache.Key) bool {
		base := k.Block() * per
		if base >= r.End() {
			return false
		}
		for at := 0; at < d.per; {
			start, n := d.ix.DirtyRun(s, at)
			if n == 0 {
				break
			}
			lo, hi := max(r.Start, base+uint64(start)), min(r.End(), base+uint64(start+n))
			if lo < hi && !fn(block.Range{Start: lo, Count: hi - lo}) {
				return false
			}
			at = start + n
		}
		return true
	})
}

func (d *Disk) anyDirty(ranges []block.Range) bool {
	if d.ix.DirtySectors() == 0 {
		return false
	}
	found := false
	for _, r := range ranges {
		d.eachDirty(r, func(block.Range) bool {
			found = true
			return false
		})
		if found {
			return true
		}
	}
	return false
}

func (d *Disk) anyDamaged(ranges []block.Range) bool {
	return slices.ContainsFunc(ranges, d.damaged.overlaps)
}
