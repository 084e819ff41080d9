// Which pages of NVRAM hold data that counts. It is found out when the log was replayed, so that it
// is known which records count and what the maps refer to.
//
//   - A page counts if its record is in the log or before it; of several of one address, the newest
//     that has a sector has it. What is older than a page that was destaged is on the back end.
//   - Pages of one address are joined in one: the older ones may hold sectors that never reached the
//     back end.
//   - What does not count is retired, and that is durable, before a page is used again.

package recovery

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
)

// loadPages finds the dirty pages that count and builds the cache's index of them. An error is one
// of flushing NVRAM.
func (r *run) loadPages() error {
	c := r.Set.Cache
	if !r.Set.Payload {
		c.StartEmpty()
		return nil
	}
	found := r.find()
	var live []uint32
	joins := map[uint32][]uint32{}
	masks := make([]uint8, c.NV.Pages) // what counts of a page; 0: nothing
	for n := 0; n < len(found); {
		k := c.NV.Descriptor(found[n]).Key()
		end := n
		for end < len(found) && c.NV.Descriptor(found[end]).Key() == k {
			end++
		}
		if r.Set.ByID(k.Pool()).Alloc.MapRefs(k.Phys()>>layout.WindowShift) == 0 {
			r.found.Discarded += end - n
		} else if use := r.use(found[n:end], masks); len(use) > 0 {
			live = append(live, use[0])
			if len(use) > 1 {
				joins[use[0]] = use[1:]
			}
		}
		n = end
	}
	for _, i := range found {
		if masks[i] == 0 {
			c.NV.Retire(i, nvlog.Superseded)
		}
	}
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for i := range uint32(c.NV.Pages) {
		if masks[i] == 0 {
			c.GiveFree(i)
		}
	}
	if err := r.join(live, joins, masks); err != nil {
		return err
	}
	slices.SortFunc(live, func(x, y uint32) int {
		return cmp.Or(cmp.Compare(c.NV.Descriptor(x).Seq(), c.NV.Descriptor(y).Seq()), cmp.Compare(x, y))
	})
	for _, i := range live {
		d := c.NV.Descriptor(i)
		c.Restore(r.volumeOrGhost(d.Volume(), d.Key().Pool()).Cached, i, masks[i])
	}
	r.found.Pages = len(live)
	return nil
}

// wasDeleted reports whether there was a pool of this number, and is none now.
func (r *run) wasDeleted(id uint16) bool { return id < r.Objects.NextPool && r.Set.ByID(id) == nil }

// knows reports whether there is what a descriptor speaks of.
func (r *run) knows(d nvlog.Descriptor) bool {
	p := r.Set.ByID(d.Key().Pool())
	return p != nil && d.Volume() < directory.MaxVolumeID && int64(d.Key().Phys()>>layout.WindowShift) < p.Alloc.Grains()
}

// find returns the pages of NVRAM that hold data of a pool that is there, by address, the newest
// first. The others are cleared.
func (r *run) find() (found []uint32) {
	c := r.Set.Cache
	for i := range uint32(c.NV.Pages) {
		switch c.NV.Examine(i, r.Log.Seq()) {
		case nvlog.Used:
			switch d := c.NV.Descriptor(i); {
			case r.knows(d):
				found = append(found, i)
				continue
			case !r.wasDeleted(d.Key().Pool()): // else no volume was left in that pool: nothing is lost
				r.found.BadPages++
			}
		case nvlog.Damaged:
			r.found.BadPages++
		}
		c.NV.Clear(i)
	}
	slices.SortFunc(found, func(x, y uint32) int {
		dx, dy := c.NV.Descriptor(x), c.NV.Descriptor(y)
		// Of two of one record the newer is the one that an earlier recovery joined, and it
		// retired the other.
		return cmp.Or(cmp.Compare(dx.Key(), dy.Key()), cmp.Compare(dy.Seq(), dx.Seq()), cmp.Compare(dx.Tombstone(), dy.Tombstone()), cmp.Compare(x, y))
	})
	return found
}

// use returns the pages of one address that count, the newest first, and notes
// the sectors that count of each. A sector belongs to the newest page that has it; what is
// older than a destaged page is on the back end.
func (r *run) use(pages []uint32, masks []uint8) (use []uint32) {
	var covered uint8
	for _, i := range pages {
		d := r.Set.Cache.NV.Descriptor(i)
		switch {
		case d.Tombstone()&nvlog.Destaged != 0:
			return use
		case d.Retired():
			continue
		}
		fresh := d.Mask() &^ covered
		covered |= fresh
		good := fresh & r.Set.Cache.NV.GoodSectors(i)
		for left := fresh &^ good; left != 0; left &= left - 1 {
			r.found.BadSectors++
			r.Set.ByID(d.Key().Pool()).Bad.Add(d.Key(), bits.TrailingZeros8(left))
		}
		if masks[i] = good; good != 0 {
			use = append(use, i)
		}
	}
	return use
}

// join puts pages of one address together in new ones: the older ones may hold
// sectors that never reached the back end. The old ones are retired when the new ones are durable.
func (r *run) join(live []uint32, joins map[uint32][]uint32, masks []uint8) error {
	if len(joins) == 0 {
		return nil
	}
	c := r.Set.Cache
	var old, joined []uint32
	heads := map[uint32]nvlog.Descriptor{}
	for n, first := range live {
		others := joins[first]
		if others == nil {
			continue
		}
		if c.Free() == 0 {
			// Without a page to join them in, what only the older ones have is lost.
			for _, i := range others {
				for left := masks[i]; left != 0; left &= left - 1 {
					r.found.BadSectors++
					k := c.NV.Descriptor(i).Key()
					r.Set.ByID(k.Pool()).Bad.Add(k, bits.TrailingZeros8(left))
				}
			}
			old = append(old, others...)
			continue
		}
		i := c.TakeFree()
		joined = append(joined, i)
		newest := c.NV.Descriptor(first)
		head := nvlog.NewDescriptor()
		var origins uint32
		masks[i] = 0
		for _, from := range append([]uint32{first}, others...) {
			o := c.NV.Descriptor(from)
			for left := masks[from]; left != 0; left &= left - 1 {
				s := bits.TrailingZeros8(left)
				head.SetSum(s, o.Sum(s))
				origins |= o.Origins() & (15 << (4 * s))
				c.NV.CopySector(i, from, s)
			}
			masks[i] |= masks[from]
			old = append(old, from)
		}
		head.Seal(newest.Seq(), newest.Key(), newest.Volume(), masks[i], origins)
		heads[i] = head
		live[n] = i
	}
	// A descriptor that is durable vouches for its data.
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range joined {
		c.NV.Replace(i, heads[i])
	}
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range old {
		c.NV.Retire(i, nvlog.Superseded)
	}
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range old {
		masks[i] = 0
		c.GiveFree(i)
	}
	return nil
}
