package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/wcache"
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
	if a.engine.Broken() != "" {
		r.add("array: changes are refused: %s", a.engine.Broken())
	}
}

func (a *Array) checkConservation(r *Report) { r.Conserved += a.cache.CheckConservation(a.names(r)) }

// names is what the write cache asks for its checks.
func (a *Array) names(r *Report) wcache.Names {
	return wcache.Names{
		Owner:  func(id uint32) string { return a.set.Vols[id].Spec.Name },
		Pool:   func(id uint16) string { return a.set.ByID(id).Name() },
		Bad:    a.back.Bad.Has,
		Report: r.add,
	}
}

// checkPool compares the maps of a pool's volumes with the account of its space.
func (a *Array) checkPool(r *Report, p *Pool) {
	refs := p.Alloc.NewCounts()
	for _, v := range a.Volumes() {
		if v.Pool() != p {
			continue
		}
		r.Volumes++
		r.Windows += v.Map.AddReferences(refs)
		for _, why := range v.Map.CheckTree() {
			r.add("map: volume %s: %s", v.Spec.Name, why)
		}
	}
	pending := a.arena.HasGarbage()
	for _, why := range p.Alloc.Check(alloc.Users{Refs: refs, Holds: a.arena.Holds(), Garbage: pending}) {
		r.add("space: pool %s: %s", p.Name(), why)
	}
	if pending {
		return
	}
	for _, v := range a.set.Vols {
		if v == nil || v.Pool() != p {
			continue
		}
		for _, why := range v.Map.CheckAccount(v.Entitled()) {
			r.add("space: volume %s: %s", v.Spec.Name, why)
		}
	}
}

func (a *Array) checkCache(r *Report, verify bool) { r.Pages += a.cache.Check(a.names(r), verify) }

// nameBad adds the bad sectors to a report: where they lie, and who has them.
func (a *Array) nameBad(r *Report) {
	r.BadSectors = a.back.Bad.Len()
	if r.BadSectors == 0 {
		return
	}
	list := a.back.Bad.List()
	const shown = 20
	for _, b := range list[:min(len(list), shown)] {
		p := a.set.ByID(b.Pool)
		if p == nil {
			continue
		}
		md, off, _ := p.Alloc.Locate(b.Phys)
		who := "nobody"
		for _, v := range a.Volumes() {
			if lba, ok := v.LBAOf(b.Phys); v.Pool() == p && ok {
				who = fmt.Sprintf("volume %s, sector %d", v.Spec.Name, lba)
				break
			}
		}
		r.add("data: pool %s, mdisk %s, byte %d (%s): the checksum is wrong; reading it is a medium error until it is written again", p.Name(), p.Mdisks[md].Name(), off, who)
	}
	if n := len(list) - shown; n > 0 {
		r.add("data: %d more sectors have a wrong checksum", n)
	}
}
