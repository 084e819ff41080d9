// A check in small steps: none holds the executor for more than a few leaves of maps, the totals of one
// pool's space, or the states of the cache's pages. It owns how far it is, and ends with a scrub of its own.

package check

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/pool"
)

// Verify is Checker.All in small steps, with the data at rest: hosts may change maps between two of
// them, and what they wait for one is a few leaves, the totals of a pool's space, or the states of all
// pages of the cache. With repair, single flipped bits of data at rest are mended; no host may use the
// array then.
type Verify struct {
	*Checker
	repair bool
	pools  []*pool.Pool
	audit  *extent.Audit // of the first of pools
	page   uint32
	scrub  *Scrub
	naming *naming
	r      Report
	phase  int
	ended  bool // by Stop
	Mended int
}

// What one step looks at.
const (
	auditSlots  = 1 << 13 // of maps, or grains: 32 leaves, some 2 ms of work where they are packed
	verifyPages = 256     // of the cache
)

// NewVerify returns a check that has not begun.
func (c *Checker) NewVerify(repair bool) *Verify { return &Verify{Checker: c, repair: repair} }

// Step does the next step and calls done, perhaps at once: false means that it was the last.
func (v *Verify) Step(done func(more bool)) {
	c := v.Checker
	again := func() { v.Step(done) } // when a leaf of a map has come
	switch {
	case v.ended:
		return
	case v.phase == 0:
		c.Conservation(&v.r)
		v.pools = c.Set.Pools()
		v.phase++
	case v.phase == 1 && len(v.pools) > 0:
		if v.stepPool(v.pools[0], again) {
			return
		}
	case v.phase == 1:
		c.cache(&v.r, false)
		v.phase++
	case v.phase == 2 && int(v.page) < c.Set.Cache.Pages():
		for range verifyPages {
			if int(v.page) < c.Set.Cache.Pages() {
				c.Set.Cache.CheckSums(c.names(&v.r), v.page)
				v.page++
			}
		}
	case v.phase == 2:
		v.phase++
		v.scrub = c.NewScrub(0, v.repair, func(s *Scrub) {
			v.Mended = s.Mended()
			if s.Unread > 0 {
				v.r.add("map: %d pages cannot be read: what they say where data lies was not checked", s.Unread)
			}
			for i, n := range s.Damaged {
				if n > 0 {
					v.r.add("metadata: %d entries of copy %d of the checkpoints are damaged; if another copy has them, the next start rebuilds this one", n, i+1)
				}
			}
			v.naming = c.newNaming(&v.r)
			v.naming.wait = true
			done(true)
		})
		return
	case !v.naming.step():
		done(false)
		return
	case v.naming.search != nil && v.naming.search.Await(again):
		return
	}
	done(true)
}

// stepPool does the next step for a pool. It returns true where that waits, and has again called.
func (v *Verify) stepPool(p *pool.Pool, again func()) (waits bool) {
	switch gone := v.Set.ByID(p.ID()) != p; {
	case gone:
		v.dropAudit()
	case v.audit == nil:
		v.audit = v.beginAudit(&v.r, p)
		v.audit.Wait = true
		return false
	case v.audit.Step(auditSlots):
		return v.audit.Await(again)
	default:
		v.closeAudit(&v.r, p, v.audit)
		v.audit = nil
	}
	v.pools = v.pools[1:]
	return false
}

// dropAudit ends an audit that is under way, if there is one.
func (v *Verify) dropAudit() {
	if v.audit != nil {
		v.audit.End()
		v.audit = nil
	}
}

// Progress returns how many bytes of data at rest were read, of how many.
func (v *Verify) Progress() (read, total int64) {
	if v.scrub == nil {
		return 0, 0
	}
	return v.scrub.Read(), max(v.scrub.Read(), v.scrub.Total)
}

// Stop ends the check after the step under way.
func (v *Verify) Stop() {
	v.ended = true
	v.dropAudit()
	if v.scrub != nil {
		v.scrub.Stop()
	}
}

// Report is what was found up to now.
func (v *Verify) Report() Report { return v.r }
