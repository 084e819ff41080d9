package array

import (
	"fmt"
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// Report is what Check found.
type Report struct {
	Problems   []string // each is one line: what, where
	Volumes    int
	Windows    int    // data windows of all maps
	Pages      int    // pages of the cache that hold dirty data
	Conserved  uint64 // bytes on either side of the conservation equation
	BadSectors int
}

var row0 nvlog.Row // of what was never counted

const maxProblems = 100

func (r *Report) add(format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Check verifies the array as it is now: the maps against the reference counts,
// the sums in the tree, the cache's index against its descriptors and checksums, and
// the conservation of bytes: admitted + recovered = dirty + destaged + overwritten +
// discarded for every volume and origin. It changes nothing. verify reads the dirty
// pages to compare their checksums.
func (a *Array) Check(verify bool) Report {
	var r Report
	a.checkConservation(&r)
	for _, p := range a.Pools() {
		a.checkPool(&r, p)
	}
	a.checkCache(&r, verify)
	a.checkHealth(&r)
	return r
}

// checkHealth names what is known to be damaged.
func (a *Array) checkHealth(r *Report) {
	a.nameBad(r)
	if n := a.recovery.BadPages; n > 0 {
		r.add("cache: %d page descriptors were damaged beyond repair when the array started: what they described is lost, and sectors may hold what they held before", n)
	}
	for _, p := range a.recovery.Damaged {
		r.add("%s", p)
	}
	if a.broken != "" {
		r.add("array: changes are refused: %s", a.broken)
	}
}

func (a *Array) checkConservation(r *Report) {
	for _, v := range a.vols {
		if v == nil {
			continue
		}
		for o := range block.NumOrigins {
			row := v.peek(o)
			if row == nil {
				if v.dirtyBytes[o] == 0 {
					continue
				}
				row = &row0
			}
			in, out := rowIn(row), rowOut(row)+uint64(v.dirtyBytes[o])
			if in != out || v.dirtyBytes[o] < 0 {
				r.add("counters: volume %s, origin %s: admitted + recovered is %d, dirty + destaged + overwritten + discarded is %d", v.spec.Name, block.Origin(o), in, out)
			}
			r.Conserved += in
		}
	}
}

// checkPool compares the maps of a pool's volumes with the account of its space.
func (a *Array) checkPool(r *Report, p *Pool) {
	refs := p.space.NewCounts()
	for _, v := range a.Volumes() {
		if v.pool != p {
			continue
		}
		r.Volumes++
		r.Windows += v.m.AddReferences(refs)
		for _, why := range v.m.CheckTree() {
			r.add("map: volume %s: %s", v.spec.Name, why)
		}
	}
	pending := a.arena.HasGarbage()
	for _, why := range p.space.Check(alloc.Users{Refs: refs, Holds: a.arena.Holds(), Garbage: pending}) {
		r.add("space: pool %s: %s", p.name, why)
	}
	if pending {
		return
	}
	for _, v := range a.vols {
		if v == nil || v.pool != p {
			continue
		}
		for _, why := range v.m.CheckAccount(v.entitled()) {
			r.add("space: volume %s: %s", v.spec.Name, why)
		}
	}
}

func (a *Array) checkCache(r *Report, verify bool) {
	c := a.cache
	used := 0
	dirty := make([]map[block.Origin]int64, len(a.vols))
	perPool := make([]int, len(a.pools))
	for i := range c.pages {
		p := &c.pages[i]
		switch p.state {
		case pageFree, pageCooling:
			continue
		}
		if p.flags&flagReserve == 0 {
			used++
			perPool[p.key.Pool()]++
		}
		var d nvlog.Descriptor
		if a.payload {
			d = c.nv.Descriptor(uint32(i))
		}
		if a.payload && (d.Seq() == 0 || d.Key() != p.key || !d.Valid()) {
			r.add("cache: page %d: its descriptor is damaged or is another page's", i)
		}
		if p.state == pageDirty {
			r.Pages++
			if c.lookup(p.key) != uint32(i) {
				r.add("cache: page %d is dirty and not in the index", i)
			}
		}
		if p.state == pageDirty || p.state == pageDestaging {
			if dirty[p.vol] == nil {
				dirty[p.vol] = map[block.Origin]int64{}
			}
			if p.state == pageDirty {
				for left := p.mask; left != 0; left &= left - 1 {
					dirty[p.vol][originAt(p.origins, bits.TrailingZeros8(left))] += block.SectorSize
				}
			}
		}
		if verify {
			a.checkPage(r, uint32(i))
		}
	}
	if used != c.used {
		r.add("cache: %d pages are in use, the count says %d", used, c.used)
	}
	for _, p := range a.Pools() {
		if perPool[p.id] != p.part.used {
			r.add("cache: pool %s holds %d pages, its partition says %d", p.name, perPool[p.id], p.part.used)
		}
	}
	for _, v := range a.vols {
		if v == nil {
			continue
		}
		for o := range block.NumOrigins {
			if got := dirty[v.id][o]; got > v.dirtyBytes[o] {
				r.add("cache: volume %s, origin %s: %d bytes are dirty, the count says %d", v.spec.Name, o, got, v.dirtyBytes[o])
			}
		}
	}
}

// checkPage compares a page of the cache with its checksums.
func (a *Array) checkPage(r *Report, i uint32) {
	p := &a.cache.pages[i]
	if !a.payload || p.state == pageFree || p.state == pageCooling {
		return
	}
	for left := p.mask &^ a.cache.nv.GoodSectors(i); left != 0; left &= left - 1 {
		if s := bits.TrailingZeros8(left); !a.back.Bad.Has(p.key, s) {
			r.add("cache: page %d, sector %d of it: the checksum is wrong", i, s)
		}
	}
}
