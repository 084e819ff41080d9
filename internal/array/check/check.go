// Package check verifies an array as it is: maps against the account of space, the write cache
// against its descriptors and checksums, conservation of bytes; and, by a scrub, data at rest
// against its checksums. It changes nothing, but that a scrub puts what is bad on the list of bad
// sectors, and with repair mends single flipped bits.
//
// # Who owns what
//
//	Checker   nothing: it reads what pools have                           check.go
//	Scrub     how far a reading of all data at rest is                    scrub.go
//	Verify    how far a check in small steps is, and what it has found    verify.go
//	Stored    nothing: it compares what the meta store has                stored.go
//	naming    how far the search is for who has bad sectors               naming.go
//
// # Concurrency
//
// Everything runs with the executor held. There is no goroutine and no wall clock here.
package check

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/wcache"
)

// Checker is what a check works with.
type Checker struct {
	Set  *pool.Set
	Meta *metadata.Ledger
	// Known names what is known to be damaged beside sectors, each by one line.
	Known func(add func(format string, args ...any))
	// Stopped reports whether the array stops: then a scrub ends.
	Stopped func() bool
	// Stepped: a step of a scrub has begun what the end of a step has to go on with.
	Stepped func()
}

// Report is what a check found.
type Report struct {
	Problems   []string // each is one line: what, where
	Volumes    int
	Windows    int    // data windows of all maps
	Pages      int    // pages of the cache that hold dirty data
	Conserved  uint64 // bytes on either side of the conservation equation
	BadSectors int
}

const maxProblems = 100

// Plus returns what two checks of different arrays found together.
func (r Report) Plus(o Report) Report {
	problems := append(r.Problems[:len(r.Problems):len(r.Problems)], o.Problems...)
	return Report{Problems: problems, Volumes: r.Volumes + o.Volumes, Windows: r.Windows + o.Windows, Pages: r.Pages + o.Pages,
		Conserved: r.Conserved + o.Conserved, BadSectors: r.BadSectors + o.BadSectors}
}

func (r *Report) add(format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// All verifies the array as it is now: the maps against the reference counts,
// the sums in the tree, the cache's index against its descriptors and checksums, and
// the conservation of bytes: admitted + recovered = dirty + destaged + overwritten +
// discarded for every volume and origin. It changes nothing. verify reads the dirty
// pages to compare their checksums.
func (c *Checker) All(verify bool) Report {
	var r Report
	c.Conservation(&r)
	for _, p := range c.Set.Pools() {
		c.pool(&r, p)
	}
	c.cache(&r, verify)
	for n := c.newNaming(&r); n.step(); {
	}
	return r
}

// Conservation checks that admitted + recovered = dirty + destaged + overwritten + discarded.
func (c *Checker) Conservation(r *Report) { r.Conserved += c.Set.Cache.CheckConservation(c.names(r)) }

// names is what the write cache asks for its checks.
func (c *Checker) names(r *Report) wcache.Names {
	return wcache.Names{
		Owner:  func(id uint32) string { return c.Set.Vols[id].Spec.Name },
		Pool:   func(id uint16) string { return c.Set.ByID(id).Name() },
		Bad:    func(k layout.PageKey, sector int) bool { return c.Set.ByID(k.Pool()).Bad.Has(k, sector) },
		Report: r.add,
	}
}

// beginAudit begins to compare the maps of a pool's volumes with the account of its space.
func (c *Checker) beginAudit(r *Report, p *pool.Pool) *extent.Audit {
	return c.Set.Arena.NewAudit(p.Alloc, func(vol uint32, why string) { r.add("map: volume %s: %s", c.volume(vol), why) })
}

// volume names a volume whose map is or was there: it may have gone since.
func (c *Checker) volume(id uint32) string {
	if v := c.Set.Vols[id]; v != nil {
		return v.Spec.Name
	}
	return fmt.Sprintf("number %d, which is gone", id)
}

// closeAudit ends what beginAudit began, when it has been everywhere.
func (c *Checker) closeAudit(r *Report, p *pool.Pool, u *extent.Audit) {
	r.Volumes += len(p.Volumes())
	r.Windows += u.Windows()
	wrong := u.Compare()
	for _, why := range wrong {
		r.add("space: pool %s: %s", p.Name(), why)
	}
	if len(wrong) > 0 { // what is stored of it is as wrong
		c.Set.Arena.Account().Unsure()
	}
	u.End()
	if c.Set.Arena.HasGarbage() {
		return
	}
	for _, v := range p.Members() {
		if got, want := v.Map.Tenant().Entitled, v.Entitled(); got != want {
			r.add("space: volume %s: its account promises %d windows their space, its map %d", v.Spec.Name, got, want)
		}
	}
}

// pool compares the maps of a pool's volumes with the account of its space at once.
func (c *Checker) pool(r *Report, p *pool.Pool) {
	u := c.beginAudit(r, p)
	for u.Step(auditSlots) {
	}
	c.closeAudit(r, p, u)
}

func (c *Checker) cache(r *Report, verify bool) { r.Pages += c.Set.Cache.Check(c.names(r), verify) }
