// Who could go on and was forgotten, for tests: the gate itself never looks for that. It changes
// nothing.

package admission

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array/ticket"
)

// Forgotten says who could go on although nobody wakes it, "" if nobody can. It looks at all who
// wait, which the gate itself never does, and changes nothing. pools are those that the gate has.
func (g *Gate) Forgotten(pools []*Pool) (what string) {
	if g.Given() {
		return "room or budgets were given to nobody"
	}
	waiters := 0
	for _, p := range pools {
		b := &p.throttled
		was := *b
		b.hosts = slices.Clone(b.hosts)
		next := p.nextThrottled()
		*b = was
		if next != nil {
			return fmt.Sprintf("an offload of pool %d has its budget", p.ID())
		}
		waiters += was.sum.N + p.waiting.fair.N
		for t := p.waiting.fifo.Head(); t != nil; t = t.Next() {
			waiters++
		}
	}
	if waiters != g.Waiters.N {
		return fmt.Sprintf("%d wait for room or a budget, %d are counted", waiters, g.Waiters.N)
	}
	return g.forgottenInLine()
}

// forgottenInLine is what Serve does, without giving anybody anything.
func (g *Gate) forgottenInLine() (what string) {
	lacks := g.lacks
	g.lacks, g.busy = 0, true
	for _, p := range g.pools {
		t, undo := p.peek()
		if t == nil {
			undo()
			continue
		}
		c := claimOf(t)
		was := *c
		said := g.Admit(c, true)
		now := c.lacks
		*c = was
		undo()
		if said == Admitted || said == NoBudget {
			what = fmt.Sprintf("pool %d has room for a piece of %d sectors", p.ID(), c.Sectors)
		}
		if said != NoRoom || now&lackPages != 0 {
			break
		}
		g.lacks |= now
	}
	g.lacks, g.busy = lacks, false
	return what
}

// peek returns the head of a partition's queue, and what takes back that it was looked for.
func (p *Pool) peek() (t *ticket.Ticket, undo func()) {
	was, stall := p.waiting, p.stall
	turns := make([]Turns, len(was.ring))
	ring := slices.Clone(was.ring)
	for i, v := range ring {
		turns[i] = *v
	}
	p.waiting.ring = slices.Clone(ring)
	return p.waiting.head(), func() {
		p.waiting, p.stall = was, stall
		p.waiting.ring = ring
		for i, v := range ring {
			v.deficit, v.inRing = turns[i].deficit, turns[i].inRing
		}
	}
}
