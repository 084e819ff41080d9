// What offloads may hold of a partition. An offload that would hold more waits in a queue of its
// host, and hosts take turns; nobody waits behind it. When its turn comes, what it needs is booked
// at once, so that nothing overtakes it while it waits for room.

package admission

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/ticket"
)

// throttles is the offloads behind the budget of their partition or host, a queue a host.
type throttles struct {
	hosts []*hostQueue // that take turns
	turn  int
	sum   ticket.Sum // tickets in all of them
}

type hostQueue struct {
	host uint32
	ticket.Queue
}

func (b *throttles) empty() bool { return b.sum.N == 0 }

// of returns the queue of a host, nil if none of its offloads waits.
func (b *throttles) of(host uint32) *hostQueue {
	for _, q := range b.hosts {
		if q.host == host {
			return q
		}
	}
	return nil
}

// BudgetQueue returns the queue that a host's offloads wait in. Who queues there says Relieved.
func (p *Pool) BudgetQueue(host uint32) *ticket.Queue {
	b := &p.throttled
	q := b.of(host)
	if q == nil {
		q = &hostQueue{host: host, Queue: ticket.Queue{Of: ticket.Budget, Sum: &b.sum}}
		b.hosts = append(b.hosts, q)
	}
	return &q.Queue
}

// EachBudgetQueue calls fn with each host's queue.
func (p *Pool) EachBudgetQueue(fn func(*ticket.Queue)) {
	for _, q := range p.throttled.hosts {
		fn(&q.Queue)
	}
}

// Throttled reports whether an offload waits for its budget.
func (p *Pool) Throttled() bool { return !p.throttled.empty() }

// overBudget reports whether an offload has to wait: because its piece would exceed what
// offloads may hold, or because others wait for that already.
func (p *Pool) overBudget(c *Claim, head bool) bool {
	if !c.Origin.Undercover() || c.booked >= c.Pages {
		return false
	}
	if q := &p.throttled; !head && !q.empty() {
		if h := q.of(c.Host); p.g.cache.Policy().Budget.Percent > 0 || h != nil && !h.Empty() {
			return true
		}
	}
	return p.overOwn(c) || p.overAll(c.Pages)
}

// overAll reports whether pages more exceed the budget of the partition, overOwn whether a claim's
// piece exceeds that of its host.
func (p *Pool) overAll(pages int) bool {
	percent := p.g.cache.Policy().Budget.Percent
	return percent > 0 && p.Offloads() > 0 && p.Offloads()+pages > p.Limit()*percent/100
}

func (p *Pool) overOwn(c *Claim) bool {
	percent, n := p.g.cache.Policy().Budget.HostPercent, p.HostOffloads(c.Host)
	return percent > 0 && n > 0 && n+c.Pages > p.Limit()*percent/100
}

// nextThrottled returns the offload whose turn it is and that its budgets have room for, nil if
// there is none. One that the partition's budget has no room for lets nobody pass: a short one
// would always fit before a long one.
func (p *Pool) nextThrottled() *ticket.Ticket {
	b := &p.throttled
	for range len(b.hosts) {
		if b.turn >= len(b.hosts) {
			b.turn = 0
		}
		t := b.hosts[b.turn].Head()
		if t == nil {
			b.hosts = append(b.hosts[:b.turn], b.hosts[b.turn+1:]...)
			continue
		}
		if c := claimOf(t); !p.overOwn(c) {
			if p.overAll(c.Pages) {
				return nil
			}
			return t
		}
		b.turn++
	}
	return nil
}

// Relieved says that the partition's offloads hold less of their budget, or may hold more.
func (p *Pool) Relieved() {
	if g := p.g; !p.throttled.empty() && !slices.Contains(g.relieved, p) {
		g.relieved = append(g.relieved, p)
	}
}

// ServeBudgets lets offloads go on that their budgets have room for again, in the order of the
// partitions, and reports whether there were any.
func (g *Gate) ServeBudgets() (woke bool) {
	if len(g.relieved) == 0 {
		return false
	}
	slices.SortFunc(g.relieved, func(p, q *Pool) int { return cmp.Compare(p.ID(), q.ID()) })
	for len(g.relieved) > 0 {
		p := g.relieved[0]
		g.relieved = slices.Delete(g.relieved, 0, 1)
		for t := p.nextThrottled(); t != nil; t = p.nextThrottled() {
			p.throttled.turn++
			claimOf(t).book(g.cache.Policy().Budget.HostPercent > 0)
			t.Wake()
			woke = true
		}
	}
	return woke
}

// book counts the pages of an offload that waits for room as if it held them; Unbook ends that.
func (c *Claim) book(byHost bool) {
	c.booked, c.bookedHost = c.Pages, byHost
	c.Pool.Book(c.Host, c.booked, byHost)
}

// Unbook gives back what was promised to an offload, when it has its pages or does not need them
// any more.
func (c *Claim) Unbook() {
	if c.booked == 0 {
		return
	}
	p := c.Pool
	p.Book(c.Host, -c.booked, c.bookedHost)
	c.booked = 0
	p.g.Freed()
	p.Relieved()
}
