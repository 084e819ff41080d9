package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// verify reads the sectors whose last record is that of a write, which may not have
// come to its end. A block that cannot be read is read by sectors.
func (r *recovery) verify(done func()) {
	d := r.d
	all := r.chained()
	var next func(i int)
	next = func(i int) {
		if i == len(all) {
			done()
			return
		}
		s := all[i]
		buf := make([]byte, d.per<<block.SectorShift)
		r.readFrame(s, 0, d.per, buf, func(ok bool) {
			if ok {
				for k := range d.per {
					r.check(s, k, buf[k<<block.SectorShift:], true)
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
				r.readFrame(s, k, 1, buf, func(ok bool) {
					r.check(s, k, buf, ok)
					sector(k + 1)
				})
			}
			sector(0)
		})
	}
	next(0)
}

func (r *recovery) readFrame(s hostcache.Slot, first, n int, buf []byte, done func(ok bool)) {
	o := &op{d: r.d, mode: freeMode}
	o.step = func(*op) { done(!o.flash) }
	r.d.local().read(o, r.d.flashOffset(r.frames[s], first), [][]byte{buf[:n<<block.SectorShift]})
}

// check decides what a sector holds. If it was damaged before its first record, it is so again when none of those writes got
// there: what the device below has is older.
func (r *recovery) check(s hostcache.Slot, i int, data []byte, read bool) {
	c, ok := r.chains[s][uint16(i)]
	if !ok || !r.ix.Dirty(s, i, 1) {
		return
	}
	at := block.Range{Start: r.ix.Key(s).Block()*uint64(r.d.per) + uint64(i), Count: 1}
	r.settle(c, s, i, at, data, read)
	if r.ix.Dirty(s, i, 1) {
		r.d.damaged.remove(at)
	}
}

// before reports whether what was there before a chain counts: as long as nothing newer was acknowledged, or flushed.
func (r *recovery) before(c chain) bool {
	if r.loose {
		return !c.solid
	}
	return r.versions[c.newest].older == 0
}

// settle looks for a version of a sector in its place.
func (r *recovery) settle(c chain, s hostcache.Slot, i int, sector block.Range, data []byte, read bool) {
	at := uint32(0)
	if read {
		crc := crc32c.Sector(data)
		for at = c.newest; at > 0 && r.versions[at].crc != crc; {
			at = r.versions[at].older
		}
	}
	older := r.before(c)
	switch {
	case at > 0:
		if at != c.newest {
			r.out.Unfinished++
		}
	case read && older && c.base == baseDirty:
		r.out.Unfinished++ // the one before is there, and dirty
	case read && r.loose && c.solid:
		r.out.Unfinished++ // one behind what was flushed, whose record is lost
	case read && older && c.base != baseDirty:
		r.out.Unfinished++
		r.ix.ClearValid(s, i, 1)
	default:
		r.out.Damaged++
		r.ix.ClearValid(s, i, 1)
		r.d.damaged.add(sector)
	}
}

// clip leaves out what lies behind the end of the LUN, which has shrunk since.
func (r *recovery) clip() {
	end, per := r.d.info.Sectors, uint64(r.d.per)
	for _, s := range r.slots {
		if s == hostcache.None {
			continue
		}
		base := r.ix.Key(s).Block() * per
		if base+per <= end {
			continue
		}
		first := int(max(base, end) - base)
		for i := first; i < r.d.per; i++ {
			if r.ix.Dirty(s, i, 1) {
				r.out.Beyond++
			}
		}
		r.ix.ClearValid(s, first, r.d.per-first)
	}
	if n := uint64(len(r.d.damaged)); n > 0 {
		r.d.damaged.remove(block.Range{Start: end, Count: 1<<63 - end})
	}
}
