// A check in small steps, each of which holds the executor for the maps of one pool at the most. It
// owns how far it is, and ends with a scrub of its own.

package check

import "github.com/arraysim/arraysim/internal/array/pool"

// Verify is Checker.All in small steps, with the data at rest: what hosts wait for one
// step is a pool's maps at the most. With repair, single flipped bits of data at rest are
// mended; no host may use the array then.
type Verify struct {
	*Checker
	repair bool
	pools  []*pool.Pool
	page   uint32
	scrub  *Scrub
	r      Report
	phase  int
	Mended int
}

// verifyPages is the number of pages of the cache that one step looks at.
const verifyPages = 256

// NewVerify returns a check that has not begun.
func (c *Checker) NewVerify(repair bool) *Verify { return &Verify{Checker: c, repair: repair} }

// Step does the next step and calls done, perhaps at once: false means that it was the last.
func (v *Verify) Step(done func(more bool)) {
	c := v.Checker
	switch {
	case v.phase == 0:
		c.Conservation(&v.r)
		v.pools = c.Set.Pools()
		v.phase++
	case v.phase == 1 && len(v.pools) > 0:
		if p := v.pools[0]; c.Set.ByID(p.ID()) == p {
			c.pool(&v.r, p)
		}
		v.pools = v.pools[1:]
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
			c.health(&v.r)
			done(false)
		})
		return
	}
	done(true)
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
	if v.scrub != nil {
		v.scrub.Stop()
	}
}

// Report is what was found up to now.
func (v *Verify) Report() Report { return v.r }
