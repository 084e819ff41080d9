package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// mode says what an op does to its ranges, and so what it can share them with.
type mode uint8

const (
	readMode mode = iota
	fillMode
	flashMode   // a write that ends on the flash
	destageMode // from the flash to the device below
	holdMode    // the device below reads the range, after its dirty part got there
	beforeMode  // like holdMode, before an upgrade to belowMode
	belowMode   // the device below changes the range
	freeMode    // touches no sector
)

// clashes lists, by mode, the modes that wait for it. A write to the flash goes on
// beside a destage of the same sectors: it leaves a mark in the destage instead (see
// op.rewritten), so that writes of a hot block never wait for the device below.
var clashes = [...]uint16{
	readMode:    1<<flashMode | 1<<belowMode,
	fillMode:    1<<flashMode | 1<<belowMode,
	flashMode:   1<<readMode | 1<<fillMode | 1<<flashMode | 1<<holdMode | 1<<beforeMode | 1<<belowMode,
	destageMode: 1<<destageMode | 1<<belowMode,
	holdMode:    1<<flashMode | 1<<belowMode,
	beforeMode:  1<<flashMode | 1<<beforeMode | 1<<belowMode,
	belowMode:   1<<freeMode - 1,
	freeMode:    0,
}

func (o *op) clashesWith(p *op) bool {
	if clashes[o.mode]&(1<<p.mode) == 0 {
		return false
	}
	for _, r := range o.ranges {
		for _, s := range p.ranges {
			if r.Overlaps(s) {
				return true
			}
		}
	}
	return false
}

// overlaps tells whether the op touches a range.
func (o *op) overlaps(r block.Range) bool {
	for _, s := range o.ranges {
		if s.Overlaps(r) {
			return true
		}
	}
	return false
}

// contains reports whether one of the op's ranges has all of another one.
func (o *op) contains(r block.Range) bool {
	return slices.ContainsFunc(o.ranges, func(s block.Range) bool { return s.Start <= r.Start && r.End() <= s.End() })
}

// within tells whether all that the op touches lies in a device of so many sectors.
func (o *op) within(sectors uint64) bool {
	return !slices.ContainsFunc(o.ranges, func(r block.Range) bool { return !r.Within(sectors) })
}

// lock takes the op's ranges, all of them at once, or queues it: then its step runs when it has
// them. Ops that clash are served in the order in which they came, so nothing starves and
// nothing waits in a circle.
func (d *Disk) lock(o *op, step func(*op)) {
	o.step = step
	if o.mode != freeMode && (d.busy(o) || queued(d.waiting, o)) {
		d.waiting = append(d.waiting, o)
		o.queued = true
		return
	}
	d.active = append(d.active, o)
	d.run(o)
}

// busy tells whether an op that has its ranges stands in the way.
func (d *Disk) busy(o *op) bool {
	for _, p := range d.active {
		if p != o && p.clashesWith(o) {
			return true
		}
	}
	return false
}

func queued(waiting []*op, o *op) bool {
	for _, p := range waiting {
		if p == o {
			break
		}
		if p.clashesWith(o) {
			return true
		}
	}
	return false
}

// upgrade makes an op in beforeMode change its ranges: it waits for those beside it, and
// all that comes later waits for it. There is only one such op on a range.
func (d *Disk) upgrade(o *op, step func(*op)) {
	o.mode, o.step = belowMode, step
	if d.busy(o) {
		d.unlist(o)
		d.waiting = append([]*op{o}, d.waiting...)
		o.queued = true
		return
	}
	d.run(o)
}

// unlock gives the op's ranges back.
func (d *Disk) unlock(o *op) {
	d.unlist(o)
	d.admit()
	if d.ix.DirtySectors() > 0 { // what stood in the way of a destage may be this
		d.turn.wake(d)
	}
}

func (d *Disk) unlist(o *op) {
	for i, p := range d.active {
		if p == o {
			last := len(d.active) - 1
			copy(d.active[i:], d.active[i+1:])
			d.active[last] = nil
			d.active = d.active[:last]
			return
		}
	}
}

// admit starts what waits and can.
func (d *Disk) admit() {
	kept := d.waiting[:0]
	for _, o := range d.waiting {
		if d.busy(o) || queued(kept, o) {
			kept = append(kept, o)
			continue
		}
		o.queued = false
		d.active = append(d.active, o)
		d.run(o)
	}
	for i := len(kept); i < len(d.waiting); i++ {
		d.waiting[i] = nil
	}
	d.waiting = kept
}
