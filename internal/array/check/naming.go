// Naming what is damaged: the sectors on pools' lists of bad ones, with who has them, a few leaves of
// maps at a time, and what else is known.

package check

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/pool"
)

// shownBad is how many bad sectors have a line each.
const shownBad = 20

// naming adds what is damaged to a report. It owns how far it is.
type naming struct {
	*Checker
	r      *Report
	pools  []*pool.Pool
	search *extent.Search // for the sectors of the first of pools
	shown  int            // sectors that have a line
	wait   bool           // for leaves of maps that are absent
}

func (c *Checker) newNaming(r *Report) *naming {
	return &naming{Checker: c, r: r, pools: c.Set.Pools()}
}

// step goes on, and reports whether there is more. At its end all is in the report.
func (n *naming) step() (more bool) {
	if len(n.pools) == 0 {
		n.rest()
		return false
	}
	p := n.pools[0]
	switch gone := n.Set.ByID(p.ID()) != p; {
	case gone:
	case n.search == nil:
		list := p.Bad.List()
		n.search = n.Set.Arena.NewSearch(p.Alloc, list[:min(len(list), shownBad-n.shown)])
		n.search.Wait = n.wait
		return true
	case n.search.Step(auditSlots):
		return true
	default:
		n.name(p, n.search.Places())
	}
	n.pools, n.search = n.pools[1:], nil
	return true
}

// name adds bad sectors of a pool: where they lie, and who has them. Those are left out that were written
// again while they were searched for, or are gone: who has their place now has good data there.
func (n *naming) name(p *pool.Pool, sectors []extent.Place) {
	n.r.BadSectors += p.Bad.Len()
	for _, x := range sectors {
		if !p.Bad.Any(x.Phys, 1) {
			continue
		}
		n.shown++
		md, off, _ := p.Alloc.Locate(x.Phys)
		who := "nobody"
		if x.Found {
			who = fmt.Sprintf("volume %s, sector %d", n.volume(x.Volume), x.LBA)
		}
		n.r.add("data: pool %s, mdisk %s, byte %d (%s): the checksum is wrong; reads of it are medium errors until it is written again", p.Name(), p.Mdisks[md].Name(), off, who)
	}
}

// rest adds what has no line yet.
func (n *naming) rest() {
	if more := n.r.BadSectors - n.shown; more > 0 {
		n.r.add("data: %d more sectors have a wrong checksum", more)
	}
	n.Known(n.r.add)
}
