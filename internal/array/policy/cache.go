// The policy of a write cache: each switch is a mechanism that real arrays may have.

package policy

import (
	"fmt"

	"github.com/arraysim/arraysim/lab/plug"
)

// Cache is how a write cache admits, orders and paces.
type Cache struct {
	Admission Admission    // what happens to a write that finds its partition full
	Order     DestageOrder // which dirty data of a partition is destaged first
	Ramp      Ramp         // paces the destager by the fullness of the partition
	// Destage makes what answers in the place of both for a pool; nil: nobody does.
	Destage func(pool uint16) plug.Destage
	// DestageDepth is the number of destages of up to 256 KiB that an mdisk has in flight.
	DestageDepth int
	// DestagePages is the number of pages up to which an mdisk has more destages under way than these.
	DestagePages int
	// Round is the pages that a sync of the mdisks, or a flush of NVRAM for destages, has at the least
	// while nobody waits. 0: a 64th of the cache for a sync, and a flush whenever a page lacks one.
	Round  int
	Budget Budget // bounds what offloads hold of a partition
}

// Validate tells what is wrong with the policy of a cache.
func (p *Cache) Validate() error {
	switch {
	case !p.Admission.Known() || !p.Order.Known():
		return fmt.Errorf("policy: unknown admission or destage order")
	case p.Budget.Percent < 0 || p.Budget.Percent > 100 || p.Budget.HostPercent < 0 || p.Budget.HostPercent > 100:
		return fmt.Errorf("budget: percentages go from 0 to 100")
	case p.DestageDepth < 0 || p.DestagePages < 0 || p.Round < 0:
		return fmt.Errorf("policy: limits are not negative")
	}
	return p.Ramp.Validate()
}

// Floor is how many of so many pages each of n partitions has to itself, in the cache or in its reserve. A piece, the largest
// part of a request, has piece pages.
func Floor(pages, n, piece int) int { return min(max(0, min(pages/8, pages-2*piece))/n, 16*piece) }
