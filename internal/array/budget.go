package array

import "github.com/arraysim/arraysim/internal/array/ticket"

// What offloads may hold of a partition. An offload that would hold more waits in a queue of its host,
// and hosts take turns; nobody waits behind it. When its turn comes, what it needs is booked at once,
// so that nothing overtakes it while it waits for room.

// brakeQueue is the offloads behind the budget of their pool or host, a FIFO a host.
type brakeQueue struct {
	hosts []*hostQueue // that take turns
	turn  int
	sum   ticket.Sum // ops in all of them
}

type hostQueue struct {
	host uint32
	ticket.Queue
}

func (b *brakeQueue) empty() bool { return b.sum.N == 0 }

// of returns the queue of a host, nil if none of its offloads waits.
func (b *brakeQueue) of(host uint32) *hostQueue {
	for _, q := range b.hosts {
		if q.host == host {
			return q
		}
	}
	return nil
}

func (b *brakeQueue) push(o *op) {
	q := b.of(o.host)
	if q == nil {
		q = &hostQueue{host: o.host, Queue: ticket.Queue{Of: ticket.Budget, Sum: &b.sum}}
		b.hosts = append(b.hosts, q)
	}
	o.await(&q.Queue)
}

// overBudget reports whether an offload has to wait: because more pages of it would exceed what
// offloads may hold, or because others wait for that already.
func (p *Pool) overBudget(o *op, pages int, head bool) bool {
	b, q := &p.a.opt.Policy.Budget, &p.part.braked
	if !o.origin.Undercover() || o.claim >= pages {
		return false
	}
	if !head && !q.empty() {
		if h := q.of(o.host); b.Percent > 0 || h != nil && !h.Empty() {
			return true
		}
	}
	return p.overOwn(o, pages) || p.overAll(pages)
}

// overAll reports whether pages more exceed the budget of the pool, overOwn that of the op's host.
func (p *Pool) overAll(pages int) bool {
	pt, percent := &p.part, p.a.opt.Policy.Budget.Percent
	return percent > 0 && pt.Offloads() > 0 && pt.Offloads()+pages > pt.Limit()*percent/100
}

func (p *Pool) overOwn(o *op, pages int) bool {
	pt, percent := &p.part, p.a.opt.Policy.Budget.HostPercent
	n := pt.HostOffloads(o.host)
	return percent > 0 && n > 0 && n+pages > pt.Limit()*percent/100
}

// nextBraked returns the offload whose turn it is and that its budgets have room for, nil if there
// is none. One that the pool's budget has no room for lets nobody pass: a short one would always fit
// before a long one.
func (p *Pool) nextBraked() *op {
	q := &p.part.braked
	for range len(q.hosts) {
		if q.turn >= len(q.hosts) {
			q.turn = 0
		}
		o := headOf(&q.hosts[q.turn].Queue)
		if o == nil {
			q.hosts = append(q.hosts[:q.turn], q.hosts[q.turn+1:]...)
			continue
		}
		pages := o.piecePagesOf(o.pieceLen())
		if !p.overOwn(o, pages) {
			if p.overAll(pages) {
				return nil
			}
			return o
		}
		q.turn++
	}
	return nil
}

// releaseBraked lets offloads go on that the budget has room for, and reports whether there were any.
func (p *Pool) releaseBraked() (woke bool) {
	for o := p.nextBraked(); o != nil; o = p.nextBraked() {
		p.part.braked.turn++
		o.book(o.piecePagesOf(o.pieceLen()))
		o.Wake()
		woke = true
	}
	return woke
}

// book counts pages of an offload that waits for room as if it held them; unbook ends that.
func (o *op) book(pages int) {
	o.claim, o.claimHost = pages, o.a.opt.Policy.Budget.HostPercent > 0
	o.v.pool.part.Book(o.host, o.claim, o.claimHost)
}

func (o *op) unbook() {
	if o.claim == 0 {
		return
	}
	o.v.pool.part.Unbook(o.host, o.claim, o.claimHost)
	o.claim = 0
	o.a.gaveRoom()
	o.v.pool.gaveBudget()
}
