package array

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/nvlog"
)

// wasDeleted reports whether there was a pool of this number, and is none now.
func (a *Array) wasDeleted(pool uint16) bool {
	return pool < a.objects.NextPool && (int(pool) >= len(a.pools) || a.pools[pool] == nil)
}

// knows reports whether there is what a descriptor speaks of.
func (a *Array) knows(d nvlog.Descriptor) bool {
	pool := int(d.Key().Pool())
	return d.Volume() < maxVolumeID && pool < len(a.pools) && a.pools[pool] != nil &&
		int64(d.Key().Phys()>>windowShift) < a.pools[pool].space.Grains()
}

// loadPages finds the dirty pages that count and builds the cache's index of them.
// Pages that are of no use are buried, and that is durable, before one is used again.
func (a *Array) loadPages() error {
	c := a.cache
	if !a.payload {
		c.StartEmpty()
		return nil
	}
	found := a.findPages()
	var live []uint32
	joins := map[uint32][]uint32{}
	masks := make([]uint8, c.NV.Pages) // what counts of a page; 0: nothing
	for n := 0; n < len(found); {
		k := c.NV.Descriptor(found[n]).Key()
		end := n
		for end < len(found) && c.NV.Descriptor(found[end]).Key() == k {
			end++
		}
		if a.byID(k.Pool()).space.MapRefs(k.Phys()>>windowShift) == 0 {
			a.recovery.Discarded += end - n
		} else if use := a.usePages(found[n:end], masks); len(use) > 0 {
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
	if err := a.flusher.FlushNow(); err != nil {
		return err
	}
	for i := range uint32(c.NV.Pages) {
		if masks[i] == 0 {
			c.GiveFree(i)
		}
	}
	if err := a.joinPages(live, joins, masks); err != nil {
		return err
	}
	slices.SortFunc(live, func(x, y uint32) int {
		return cmp.Or(cmp.Compare(c.NV.Descriptor(x).Seq(), c.NV.Descriptor(y).Seq()), cmp.Compare(x, y))
	})
	for _, i := range live {
		d := c.NV.Descriptor(i)
		c.Restore(a.volumeOrGhost(d.Volume(), d.Key().Pool()).cached, i, masks[i])
	}
	a.recovery.Pages = len(live)
	return nil
}

// findPages returns the pages of NVRAM that hold data of a pool that is there, by address, the newest
// first. The others are cleared.
func (a *Array) findPages() (found []uint32) {
	c := a.cache
	for i := range uint32(c.NV.Pages) {
		switch c.NV.Examine(i, a.log.Seq()) {
		case nvlog.Used:
			if d := c.NV.Descriptor(i); a.knows(d) {
				found = append(found, i)
				continue
			} else if !a.wasDeleted(d.Key().Pool()) { // else no volume was left in that pool: nothing is lost
				a.recovery.BadPages++
			}
		case nvlog.Damaged:
			a.recovery.BadPages++
		}
		c.NV.Clear(i)
	}
	slices.SortFunc(found, func(x, y uint32) int {
		dx, dy := c.NV.Descriptor(x), c.NV.Descriptor(y)
		// Of two of one record the newer is the one that an earlier recovery joined, and it
		// buried the other.
		return cmp.Or(cmp.Compare(dx.Key(), dy.Key()), cmp.Compare(dy.Seq(), dx.Seq()), cmp.Compare(dx.Tombstone(), dy.Tombstone()), cmp.Compare(x, y))
	})
	return found
}

// usePages returns the pages of one address that count, the newest first, and notes
// the sectors that count of each. A sector belongs to the newest page that has it; what is
// older than a destaged page is on the back end.
func (a *Array) usePages(pages []uint32, masks []uint8) (use []uint32) {
	var covered uint8
	for _, i := range pages {
		d := a.cache.NV.Descriptor(i)
		switch {
		case d.Tombstone()&nvlog.Destaged != 0:
			return use
		case d.Retired():
			continue
		}
		fresh := d.Mask() &^ covered
		covered |= fresh
		good := fresh & a.cache.NV.GoodSectors(i)
		for left := fresh &^ good; left != 0; left &= left - 1 {
			a.recovery.BadSectors++
			a.back.Bad.Add(d.Key(), bits.TrailingZeros8(left))
		}
		if masks[i] = good; good != 0 {
			use = append(use, i)
		}
	}
	return use
}

// joinPages puts pages of one address together in new ones: the older ones may hold
// sectors that never reached the back end. The old ones are buried when the new ones are durable.
func (a *Array) joinPages(live []uint32, joins map[uint32][]uint32, masks []uint8) error {
	if len(joins) == 0 {
		return nil
	}
	c := a.cache
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
					a.recovery.BadSectors++
					a.back.Bad.Add(c.NV.Descriptor(i).Key(), bits.TrailingZeros8(left))
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
	if err := a.flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range joined {
		copy(c.NV.Describe(i), heads[i])
	}
	if err := a.flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range old {
		c.NV.Retire(i, nvlog.Superseded)
	}
	if err := a.flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range old {
		masks[i] = 0
		c.GiveFree(i)
	}
	return nil
}
