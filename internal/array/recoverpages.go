package array

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// lastRecord finds the last record of the log that counts. flushed is the number up to
// which everything is known to be durable.
func (a *Array) lastRecord(s savedState, flushed uint64, fresh bool) (uint64, error) {
	j := &a.journal
	first := j.seq + 1
	var pages []uint16 // by record, from first on
	var open []bool    // by record: its command goes on behind it
	_, last := j.scan(true, func(_ uint64, b []byte) bool {
		pages = append(pages, le.Uint16(b[18:]))
		more := b[17] != 0
		if b[16] == recWrap && len(open) > 0 {
			more = open[len(open)-1]
		}
		open = append(open, more)
		return true
	})
	a.recovery.PowerLost = !fresh && (!s.sameBoot(a.cache.nv.region.Boot()) || s.damaged)
	want := flushed
	if !fresh && !a.recovery.PowerLost {
		want = max(want, s.newest)
	}
	if last < want {
		return 0, fmt.Errorf("the log in the write cache file is damaged at record %d: the %d changes that follow cannot be read; restore the data folder from a copy", last+1, want-last)
	}
	// whole returns the last record up to seq that ends a command: one of which only the first records
	// are there was never answered.
	whole := func(seq uint64) uint64 {
		for seq >= first && open[seq-first] {
			seq--
		}
		return seq
	}
	if !a.recovery.PowerLost || last <= flushed || !a.payload {
		return whole(last), nil
	}
	have := make([]uint16, last-flushed)
	for i := range uint32(a.cache.nv.pages) {
		d := descView(a.cache.nv.desc(i))
		if seq := d.seq(); seq > flushed && seq <= last && d.valid() && (d.buried() || a.goodSectors(i) == d.mask()) {
			have[seq-flushed-1]++
		}
	}
	for i, n := range have {
		if seq := flushed + 1 + uint64(i); seq >= first && n < pages[seq-first] {
			end := whole(seq - 1)
			a.recovery.Undone = last - end
			return end, nil
		}
	}
	return whole(last), nil
}

// goodSectors returns the valid sectors of a page whose checksums are right.
func (a *Array) goodSectors(i uint32) uint8 {
	d, data := descView(a.cache.nv.desc(i)), a.cache.nv.data(i)
	good := d.mask()
	for left := good; left != 0; left &= left - 1 {
		s := bits.TrailingZeros8(left)
		if crc32.Checksum(data[s*block.SectorSize:(s+1)*block.SectorSize], castagnoli) != d.crc(s) {
			good &^= 1 << s
		}
	}
	return good
}

// settleLog makes what was replayed durable and ends the log behind it.
func (a *Array) settleLog() error {
	j := &a.journal
	if j.head+recordHead <= len(j.ring) {
		a.cache.nv.touch(a.cache.nv.logOff+j.head, recordHead)
		clear(j.ring[j.head : j.head+recordHead])
	}
	// Only now may the state say so: it can survive alone. The next flush makes it durable.
	if err := a.flushNowAll(); err != nil {
		return err
	}
	a.flushed, a.genDone = j.seq, a.gen
	j.setNewest()
	a.saveState()
	return nil
}

func (a *Array) flushNowAll() error {
	if err := a.cache.nv.region.FlushNow(0, len(a.cache.nv.b)); err != nil {
		a.doubtful = true
		a.saveState()
		return fmt.Errorf("the write cache file cannot be flushed: %w", err)
	}
	return nil
}

// wasDeleted reports whether there was a pool of this number, and is none now.
func (a *Array) wasDeleted(pool uint16) bool {
	return pool < a.objects.NextPool && (int(pool) >= len(a.pools) || a.pools[pool] == nil)
}

// loadPages finds the dirty pages that count and builds the cache's index of them.
// Pages that are of no use are buried, and that is durable, before one is used again.
func (a *Array) loadPages() error {
	c := a.cache
	if !a.payload {
		for i := range c.free {
			c.free[i] = uint32(len(c.free) - 1 - i)
		}
		c.freeCount = len(c.free)
		return nil
	}
	var found, live []uint32
	joins := map[uint32][]uint32{}
	for i := range uint32(c.nv.pages) {
		d := descView(c.nv.desc(i))
		seq := d.seq()
		whole := d.valid() || seq != 0 && mendBits(d, 60)
		switch {
		case seq == 0 || seq > a.journal.seq && d.valid():
			c.nv.clear(i) // never used, or its record was never written
		case !whole && (seq == a.journal.seq+1 || d.buried()):
			c.nv.clear(i) // free, and just being filled for a record when the process died
		case whole && a.wasDeleted(d.key().Pool()):
			c.nv.clear(i) // no volume was left in that pool: nothing is lost
		case !whole || d.vol() >= maxVolumeID || int(d.key().Pool()) >= len(a.pools) || a.pools[d.key().Pool()] == nil ||
			int64(d.key().Phys()>>windowShift) >= a.pools[d.key().Pool()].space.Grains():
			if !almostZero(d) {
				a.recovery.BadPages++
			}
			c.nv.clear(i)
		default:
			found = append(found, i)
		}
	}
	// By address, the newest first.
	slices.SortFunc(found, func(x, y uint32) int {
		dx, dy := descView(c.nv.desc(x)), descView(c.nv.desc(y))
		// Of two of one record the newer is the one that an earlier recovery joined, and it
		// buried the other.
		return cmp.Or(cmp.Compare(dx.key(), dy.key()), cmp.Compare(dy.seq(), dx.seq()), cmp.Compare(dx[21], dy[21]), cmp.Compare(x, y))
	})
	masks := make([]uint8, c.nv.pages) // what counts of a page; 0: nothing
	for n := 0; n < len(found); {
		k := descView(c.nv.desc(found[n])).key()
		end := n
		for end < len(found) && descView(c.nv.desc(found[end])).key() == k {
			end++
		}
		if a.poolByID(k.Pool()).space.MapRefs(k.Phys()>>windowShift) == 0 {
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
			c.nv.bury(i, markVoid)
		}
	}
	if err := a.flushNowAll(); err != nil {
		return err
	}
	for i := range uint32(c.nv.pages) {
		if masks[i] == 0 {
			c.giveFree(i)
		}
	}
	if err := a.joinPages(live, joins, masks); err != nil {
		return err
	}
	slices.SortFunc(live, func(x, y uint32) int {
		return cmp.Or(cmp.Compare(descView(c.nv.desc(x)).seq(), descView(c.nv.desc(y)).seq()), cmp.Compare(x, y))
	})
	for _, i := range live {
		a.loadPage(i, masks[i])
	}
	a.recovery.Pages = len(live)
	return nil
}

// almostZero tells whether a descriptor was never written, and then hit by one flipped bit.
func almostZero(d descView) bool {
	n := 0
	for _, b := range d {
		n += bits.OnesCount8(b)
	}
	return n <= 1
}

// usePages returns the pages of one address that count, the newest first, and notes
// the sectors that count of each. A sector belongs to the newest page that has it; what is
// older than a destaged page is on the back end.
func (a *Array) usePages(pages []uint32, masks []uint8) (use []uint32) {
	var covered uint8
	for _, i := range pages {
		d := descView(a.cache.nv.desc(i))
		switch {
		case d[21]&markHome != 0:
			return use
		case d.buried():
			continue
		}
		fresh := d.mask() &^ covered
		covered |= fresh
		good := fresh & a.goodSectors(i)
		for left := fresh &^ good; left != 0; left &= left - 1 {
			a.recovery.BadSectors++
			a.bad[badKey(d.key(), bits.TrailingZeros8(left))] = struct{}{}
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
	heads := map[uint32]descView{}
	for n, first := range live {
		others := joins[first]
		if others == nil {
			continue
		}
		if c.freeCount == 0 {
			// Without a page to join them in, what only the older ones have is lost.
			for _, i := range others {
				for left := masks[i]; left != 0; left &= left - 1 {
					a.recovery.BadSectors++
					a.bad[badKey(descView(c.nv.desc(i)).key(), bits.TrailingZeros8(left))] = struct{}{}
				}
			}
			old = append(old, others...)
			continue
		}
		i := c.takeFree()
		joined = append(joined, i)
		newest := descView(c.nv.desc(first))
		head := make(descView, descBytes)
		var origins uint32
		masks[i] = 0
		for _, from := range append([]uint32{first}, others...) {
			o := descView(c.nv.desc(from))
			for left := masks[from]; left != 0; left &= left - 1 {
				s := bits.TrailingZeros8(left)
				head.setCRC(s, o.crc(s))
				origins |= o.origins() & (15 << (4 * s))
				c.nv.touch(c.nv.dataAt(i)+s*block.SectorSize, block.SectorSize)
				copy(c.nv.data(i)[s*block.SectorSize:(s+1)*block.SectorSize], c.nv.data(from)[s*block.SectorSize:])
			}
			masks[i] |= masks[from]
			old = append(old, from)
		}
		head.seal(newest.seq(), newest.key(), newest.vol(), masks[i], origins)
		heads[i] = head
		live[n] = i
	}
	// A descriptor that is durable vouches for its data.
	if err := a.flushNowAll(); err != nil {
		return err
	}
	for _, i := range joined {
		c.nv.touch(c.nv.descAt(i), descBytes)
		copy(c.nv.desc(i), heads[i])
	}
	if err := a.flushNowAll(); err != nil {
		return err
	}
	for _, i := range old {
		c.nv.bury(i, markVoid)
	}
	if err := a.flushNowAll(); err != nil {
		return err
	}
	for _, i := range old {
		masks[i] = 0
		c.giveFree(i)
	}
	return nil
}

// loadPage takes one page in.
func (a *Array) loadPage(i uint32, mask uint8) {
	c := a.cache
	d := descView(c.nv.desc(i))
	v := a.volumeOrGhost(d.vol(), d.key().Pool())
	c.pages[i] = page{key: d.key(), origins: d.origins(), vol: v.id, state: pageDirty, mask: mask}
	for left := mask; left != 0; left &= left - 1 {
		v.dirtyBytes[originAt(d.origins(), bits.TrailingZeros8(left))] += block.SectorSize
	}
	v.pool.part.used++
	c.used++
	c.insert(i)
	v.pool.addDirty(v, i)
}
