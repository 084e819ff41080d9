// Which dirty data of a partition goes first: the orders of the policy, and one that asks somebody.

package wcache

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/lab/plug"
)

// order is an order of destaging. What it knows of a partition is there.
type order interface {
	// enlist puts a dirty page of an owner for an mdisk on its list.
	enlist(p *Partition, v *Owner, md int, i uint32)
	// next returns whose page goes next, NoPage if its mdisks are busy, and with how many; blocked could not go just now.
	next(p *Partition, blocked int) (v *Owner, first uint32, credit int)
	// sent books so many pages of what next returned.
	sent(p *Partition, v *Owner, pages int)
	// again reports whether another one may be next when so many could not go.
	again(p *Partition, v *Owner, blocked int) bool
}

// setRules gives a partition its order and its pace by the policy of its cache.
func (p *Partition) setRules() {
	c := p.c
	pol := &c.policy
	p.pace.start = 0
	if pol.Destage != nil {
		if _, ok := p.order.(*asked); !ok { // else it goes on with the state that it has
			by := pol.Destage(p.id)
			p.order, p.pace.by = &asked{by: by}, by
		}
		return
	}
	p.order, p.pace.by = turns{}, &pol.Ramp
	if pol.Order == policy.LRU {
		p.order = byAge{}
	}
	if len(pol.Ramp.Points) == 0 {
		p.pace.by, p.pace.start = policy.Threshold(c.destageStart), c.destageStart
	}
}

// turns is policy.RoundRobin.
type turns struct{}

func (turns) enlist(p *Partition, v *Owner, md int, i uint32) { p.queue(v, md, i) }

func (turns) next(p *Partition, _ int) (*Owner, uint32, int) {
	v := p.turnOf()
	return v, p.oldest(v.dirty), min(v.credit, quantumPages)
}

func (turns) sent(p *Partition, v *Owner, pages int) {
	if v.credit -= pages; v.credit <= 0 {
		p.nextTurn()
	}
}

func (turns) again(p *Partition, _ *Owner, blocked int) bool {
	if blocked > len(p.ring) {
		return false
	}
	p.nextTurn()
	return true
}

// byAge is policy.LRU.
type byAge struct{}

func (byAge) enlist(p *Partition, _ *Owner, md int, i uint32) {
	p.c.pages[i].to(Ordered)
	p.c.push(&p.lru[md], i)
}

func (byAge) next(p *Partition, _ int) (*Owner, uint32, int) {
	return nil, p.oldest(p.lru), quantumPages
}
func (byAge) sent(*Partition, *Owner, int)       {}
func (byAge) again(*Partition, *Owner, int) bool { return false }

// asked is an order of somebody else's.
type asked struct {
	by      plug.Destage
	list    []plug.DirtyVolume // who can destage, as by sees it
	owners  []*Owner           // the same
	blocked []*Owner           // who could not when they were chosen
}

func (*asked) enlist(p *Partition, v *Owner, md int, i uint32) { p.queue(v, md, i) }

func (a *asked) next(p *Partition, blocked int) (*Owner, uint32, int) {
	if blocked == 0 {
		a.blocked = a.blocked[:0]
	}
	a.list, a.owners = a.list[:0], a.owners[:0]
	kept := p.ring[:0]
	for _, v := range p.ring {
		if v.pages == 0 {
			v.inRing = false
			continue
		}
		kept = append(kept, v)
		if first := p.oldest(v.dirty); first != NoPage && !slices.Contains(a.blocked, v) {
			a.owners = append(a.owners, v)
			a.list = append(a.list, plug.DirtyVolume{Volume: int(v.id), Dirty: int64(v.pages) * layout.PageBytes, Age: int(p.age - p.c.pages[first].age)})
		}
	}
	p.ring = kept
	if len(a.list) == 0 {
		return nil, NoPage, 0
	}
	v := a.owners[a.by.Next(a.list)]
	return v, p.oldest(v.dirty), quantumPages
}

func (*asked) sent(*Partition, *Owner, int) {}

func (a *asked) again(_ *Partition, v *Owner, _ int) bool {
	a.blocked = append(a.blocked, v)
	return v != nil
}

// queue puts a dirty page on the list of its owner, who gets a place in the ring.
func (p *Partition) queue(v *Owner, md int, i uint32) {
	p.c.pages[i].to(Queued)
	p.c.push(&v.dirty[md], i)
	v.pages++
	if !v.inRing {
		v.inRing = true
		p.ring = append(p.ring, v)
	}
}

// takes reports whether an mdisk takes another destage, or would if it were there.
func (p *Partition) takes(mdisk int) bool {
	l := &p.lanes[mdisk]
	return l.out-l.refused < p.c.policy.DestageDepth || l.sent-l.refusedPages < p.c.policy.DestagePages || l.away
}

// oldest returns the oldest page on lists by mdisk whose mdisk takes another: a busy one must not hold up the others.
func (p *Partition) oldest(lists []list) uint32 {
	best, age := NoPage, uint32(0)
	for md := range lists {
		l := &lists[md]
		if l.head == NoPage || !p.takes(md) {
			continue
		}
		if best == NoPage || int32(l.age-age) < 0 {
			best, age = l.head, l.age
		}
	}
	return best
}

// turnOf returns the owner whose turn it is. Preconditions: one has dirty pages.
func (p *Partition) turnOf() *Owner {
	for {
		if p.turn >= len(p.ring) {
			p.turn = 0
		}
		v := p.ring[p.turn]
		if v.pages > 0 {
			if !p.begun {
				p.begun = true
				v.credit = min(v.credit+quantumPages, maxCredit)
			}
			return v
		}
		v.inRing, v.credit = false, 0
		p.ring = append(p.ring[:p.turn], p.ring[p.turn+1:]...)
		p.begun = false
	}
}

func (p *Partition) nextTurn() {
	p.turn++
	p.begun = false
}
