// Which pages of NVRAM hold data that counts. It is found out when the log was replayed, so that it
// is known which records count and what the maps refer to.
//
//   - A page counts if its record is in the log or before it; of several of one address, the newest
//     that has a sector has it. What is older than a page that was destaged is on the back end.
//   - Pages of one address are joined in one: the older ones may hold sectors that never reached the
//     back end.
//   - A sector that is bad in the newest page that has it goes on the list of bad sectors. No page
//     knows that better than this one: what is older, in NVRAM or on the back end, looks whole. So
//     pages are retired only when a checkpoint has stored the list.
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

// pages is what a start has found out of the pages, and has not done yet.
type pages struct {
	found []uint32            // those that hold data of a pool that is there, whether it counts or not
	live  []uint32            // the newest that counts of each address
	joins map[uint32][]uint32 // by that: the older ones that count, too, the newest first
	masks []uint8             // what counts of each page of NVRAM; 0: nothing
}

// choosePages finds the dirty pages that count, and what is bad of them. It changes nothing but that
// a page of which nothing is known, or which was undone, becomes one that was never used: the next
// checkpoint has other numbers, by which nobody could tell. An error is one of flushing NVRAM.
func (r *run) choosePages() (*pages, error) {
	c := r.Set.Cache
	if !r.Set.Payload {
		return nil, nil
	}
	p := &pages{found: r.find(), joins: map[uint32][]uint32{}, masks: make([]uint8, c.NV.Pages)}
	for n := 0; n < len(p.found); {
		k := c.NV.Descriptor(p.found[n]).Key()
		end := n
		for end < len(p.found) && c.NV.Descriptor(p.found[end]).Key() == k {
			end++
		}
		if r.Set.ByID(k.Pool()).Alloc.MapRefs(k.Phys()>>layout.WindowShift) == 0 {
			r.found.Discarded += end - n
		} else if use := r.use(p.found[n:end], p.masks); len(use) > 0 {
			p.live = append(p.live, use[0])
			if len(use) > 1 {
				p.joins[use[0]] = use[1:]
			}
		}
		n = end
	}
	r.makeRoom(p)
	return p, r.Flusher.FlushNow()
}

// loadPages retires what does not count and builds the cache's index of the rest. Preconditions: the
// list of bad sectors is durable. An error is one of flushing NVRAM.
func (r *run) loadPages(p *pages) error {
	c := r.Set.Cache
	if p == nil {
		c.StartEmpty()
		return nil
	}
	for _, i := range p.found {
		if p.masks[i] == 0 && !c.NV.Descriptor(i).Retired() {
			c.NV.Retire(i, nvlog.Superseded)
		}
	}
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for i := range uint32(c.NV.Pages) {
		if p.masks[i] == 0 {
			c.GiveFree(i)
		}
	}
	if err := r.join(p); err != nil {
		return err
	}
	slices.SortFunc(p.live, func(x, y uint32) int {
		return cmp.Or(cmp.Compare(c.NV.Descriptor(x).Seq(), c.NV.Descriptor(y).Seq()), cmp.Compare(x, y))
	})
	for _, i := range p.live {
		d := c.NV.Descriptor(i)
		c.Restore(r.volumeOrGhost(d.Volume(), d.Key().Pool()).Cached, i, p.masks[i])
	}
	r.found.Pages = len(p.live)
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
		bad := &r.Set.ByID(d.Key().Pool()).Bad
		switch {
		case d.Tombstone()&nvlog.Destaged != 0:
			return use
		case d.Retired():
			continue
		}
		fresh := d.Mask() &^ covered
		if d.Seq() <= r.from { // the list is newer: what it has was lost with a newer page, which may be gone
			fresh &^= bad.Mask(d.Key())
		}
		covered |= fresh
		good := fresh & r.Set.Cache.NV.GoodSectors(i)
		bad.Forget(d.Key(), good)
		r.found.BadSectors += bits.OnesCount8(fresh &^ good)
		bad.AddMask(d.Key(), fresh&^good)
		if masks[i] = good; good != 0 {
			use = append(use, i)
		}
	}
	return use
}

// makeRoom gives up what only the older pages of one address have, of as few sectors as there are,
// where not one page is free to join any others in. It goes on the list of bad sectors. Admission
// keeps a page free, so that this is for what an older version has left.
func (r *run) makeRoom(p *pages) {
	if slices.Contains(p.masks, 0) || len(p.joins) == 0 {
		return
	}
	least, fewest := uint32(0), 1<<30
	for _, i := range p.live {
		n := 0
		for _, older := range p.joins[i] {
			n += bits.OnesCount8(p.masks[older])
		}
		if n > 0 && n < fewest {
			least, fewest = i, n
		}
	}
	r.found.BadSectors += fewest
	for _, older := range p.joins[least] {
		k := r.Set.Cache.NV.Descriptor(older).Key()
		r.Set.ByID(k.Pool()).Bad.AddMask(k, p.masks[older])
		p.masks[older] = 0
	}
	delete(p.joins, least)
}

// joining is pages of one address each that are being joined.
type joining struct {
	to    []uint32 // pages that were free and have the data
	heads []nvlog.Descriptor
	old   []uint32 // what they are made of
}

// join puts pages of one address together in new ones: the older ones may hold sectors that never
// reached the back end. It goes round by round where there are more addresses than free pages: each
// round gives back two pages at least for one that it takes. Preconditions: a page is free.
func (r *run) join(p *pages) error {
	c := r.Set.Cache
	var j joining
	for n, first := range p.live {
		others := p.joins[first]
		if others == nil {
			continue
		}
		if c.Free() == 0 {
			if err := r.endJoin(&j, p.masks); err != nil {
				return err
			}
		}
		i := c.TakeFree()
		j.to = append(j.to, i)
		j.heads = append(j.heads, r.compose(i, append([]uint32{first}, others...), p.masks))
		j.old = append(append(j.old, first), others...)
		p.live[n] = i
	}
	return r.endJoin(&j, p.masks)
}

// endJoin makes new pages durable, then retires the old ones, then makes these free.
func (r *run) endJoin(j *joining, masks []uint8) error {
	c := r.Set.Cache
	if len(j.to) == 0 {
		return nil
	}
	// A descriptor that is durable vouches for its data.
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for n, i := range j.to {
		c.NV.Replace(i, j.heads[n])
	}
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range j.old {
		c.NV.Retire(i, nvlog.Superseded)
	}
	if err := r.Flusher.FlushNow(); err != nil {
		return err
	}
	for _, i := range j.old {
		masks[i] = 0
		c.GiveFree(i)
	}
	*j = joining{}
	return nil
}

// compose copies what counts of the pages of an address, the newest first, to a free page, and
// returns its descriptor, which is the newest's but for the sectors.
func (r *run) compose(to uint32, from []uint32, masks []uint8) nvlog.Descriptor {
	nv := r.Set.Cache.NV
	newest := nv.Descriptor(from[0])
	head := nvlog.NewDescriptor()
	var origins uint32
	masks[to] = 0
	for _, i := range from {
		o := nv.Descriptor(i)
		for left := masks[i]; left != 0; left &= left - 1 {
			s := bits.TrailingZeros8(left)
			head.SetSum(s, o.Sum(s))
			origins |= o.Origins() & (15 << (4 * s))
			nv.CopySector(to, i, s)
		}
		masks[to] |= masks[i]
	}
	head.Seal(newest.Seq(), newest.Key(), newest.Volume(), masks[to], origins)
	return head
}
