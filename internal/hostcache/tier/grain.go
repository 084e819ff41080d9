package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// The device below may have larger blocks than the sectors in which the cache counts, and takes no parts of them. So many sectors are
// a grain. Clients read and write whole ones; what an error or a crash leaves of one is not sent below alone.

// inGrain returns how many of n sectors from one on are in the grain of that.
func (d *Disk) inGrain(sector, n uint64) uint64 { return min(n, d.grain-sector%d.grain) }

// wholeGrains leaves no grain of a block dirty or clean in part. Some sectors of a write had not come to the flash then, and the other ones
// go back to what is below as well, unless something of the grain was acknowledged: that is damaged. What is clean in part has a hole that
// an earlier version left, and cannot be read below alone.
func (r *recovery) wholeGrains(s hostcache.Slot) {
	d := r.d
	grain := int(d.grain)
	if grain == 1 {
		return
	}
	for at := 0; at < d.per; at += grain {
		if !r.ix.Dirty(s, at, grain) {
			if !r.ix.Valid(s, at, grain) {
				r.ix.ClearValid(s, at, grain)
			}
			continue
		}
		if first, n := r.ix.DirtyRun(s, at); first == at && n >= grain {
			continue
		}
		sectors := block.Range{Start: r.ix.Key(s).Block()*uint64(d.per) + uint64(at), Count: d.grain}
		lost, dirty := d.damaged.overlaps(sectors), uint64(0)
		for i := at; i < at+grain; i++ {
			if !r.ix.Dirty(s, i, 1) {
				continue
			}
			dirty++
			c, written := r.chains[s][uint16(i)]
			lost = lost || !written || c.base == baseDirty || !r.before(c)
		}
		r.ix.ClearValid(s, at, grain)
		if lost {
			r.out.Damaged += dirty
			d.damaged.add(sectors)
		} else {
			r.out.Unfinished += dirty
		}
	}
}
