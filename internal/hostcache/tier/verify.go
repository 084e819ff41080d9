package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// verify reads the sectors whose last record is that of a write, which may not have
// come to its end. A block that cannot be read is read by sectors.
func (r *recovery) verify(done func()) {
	d := r.d
	keys := r.keys()
	var next func(i int)
	next = func(i int) {
		for i < len(keys) && len(r.blocks[keys[i]].chains) == 0 {
			i++
		}
		if i == len(keys) {
			done()
			return
		}
		f := r.blocks[keys[i]]
		buf := make([]byte, d.per<<block.SectorShift)
		r.readFrame(f, 0, d.per, buf, func(ok bool) {
			if ok {
				for k := range d.per {
					r.check(keys[i], f, k, buf[k<<block.SectorShift:], true)
				}
				next(i + 1)
				return
			}
			var sector func(k int)
			sector = func(k int) {
				if k == d.per {
					next(i + 1)
					return
				}
				r.readFrame(f, k, 1, buf, func(ok bool) {
					r.check(keys[i], f, k, buf, ok)
					sector(k + 1)
				})
			}
			sector(0)
		})
	}
	next(0)
}

func (r *recovery) readFrame(f *found, first, n int, buf []byte, done func(ok bool)) {
	o := &op{d: r.d, mode: freeMode}
	o.step = func(*op) { done(!o.flash) }
	r.d.local().read(o, r.d.flashOffset(f.frame, first), [][]byte{buf[:n<<block.SectorShift]})
}

func (r *recovery) keys() []hostcache.Key {
	keys := make([]hostcache.Key, 0, len(r.blocks))
	for k := range r.blocks { // sorted below
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// check decides what a sector holds. If it was damaged before its first record, it is so again when none of those writes got
// there: what the device below has is older.
func (r *recovery) check(k hostcache.Key, f *found, i int, data []byte, read bool) {
	c := f.chains[i]
	if c == nil || !has(f.dirty, i) {
		return
	}
	at := block.Range{Start: k.Block()*uint64(r.d.per) + uint64(i), Count: 1}
	r.settle(c, f, i, at, data, read)
	if has(f.dirty, i) {
		r.d.damaged.remove(at)
	}
}

// settle looks for a version of a sector in its place.
func (r *recovery) settle(c *chain, f *found, i int, sector block.Range, data []byte, read bool) {
	at := -1
	if read {
		at = slices.Index(c.crcs, crc32c.Sector(data))
	}
	// What was there before counts as long as nothing newer was acknowledged, or flushed.
	older := len(c.crcs) == 1
	if r.loose {
		older = !c.solid
	}
	switch {
	case at >= 0:
		if at < len(c.crcs)-1 {
			r.out.Unfinished++
		}
	case read && older && c.base == baseDirty:
		r.out.Unfinished++ // the one before is there, and dirty
	case read && r.loose && c.solid:
		r.out.Unfinished++ // one behind what was flushed, whose record is lost
	case read && older && c.base != baseDirty:
		r.out.Unfinished++
		set(f.dirty, i, false)
		set(f.valid, i, false)
	default:
		r.out.Damaged++
		set(f.dirty, i, false)
		set(f.valid, i, false)
		r.d.damaged.add(sector)
	}
}

// clip leaves out what lies behind the end of the LUN, which has shrunk since.
func (r *recovery) clip() {
	end, per := r.d.info.Sectors, uint64(r.d.per)
	for k, f := range r.blocks { // each on its own: order does not matter
		base := k.Block() * per
		for i := range per {
			if base+i >= end {
				if has(f.dirty, int(i)) {
					r.out.Beyond++
				}
				set(f.valid, int(i), false)
				set(f.dirty, int(i), false)
			}
		}
	}
	if n := uint64(len(r.d.damaged)); n > 0 {
		r.d.damaged.remove(block.Range{Start: end, Count: 1<<63 - end})
	}
}
