// Who waits for room in a partition: one queue, or a queue for each of those that take turns by
// bytes.

package admission

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/array/ticket"
)

// Turns is one of those that take turns: a volume.
type Turns struct {
	queue   ticket.Queue // for room
	inRing  bool
	deficit uint64 // sectors that its turn still lets in
}

// Queue returns those who wait for room in turns.
func (v *Turns) Queue() *ticket.Queue { return &v.queue }

// queue is who waits for room in a partition.
type queue struct {
	fifo  ticket.Queue
	fair  ticket.Sum // who waits in the queues of those that take turns
	ring  []*Turns
	turn  int
	given bool // whose turn it is has got its quantum
}

func (w *queue) empty() bool { return w.fifo.Empty() && w.fair.N == 0 }

// push queues a claim, in front of its likes if it stood there before.
func (w *queue) push(c *Claim, t *ticket.Ticket, front, fair bool) {
	q := &w.fifo
	q.Sum = w.fair.Up
	if fair {
		v := c.Owner
		q = &v.queue
		q.Sum = &w.fair
		if !v.inRing {
			v.inRing, v.deficit = true, 0
			w.ring = append(w.ring, v)
		}
	}
	q.Of = ticket.Room
	if front {
		q.PushFront(t)
	} else {
		q.Push(t)
	}
}

// head returns the ticket that is next in line, nil if nobody waits.
func (w *queue) head() *ticket.Ticket {
	if !w.fifo.Empty() {
		return w.fifo.Head()
	}
	for len(w.ring) > 0 {
		if w.turn >= len(w.ring) {
			w.turn = 0
		}
		v := w.ring[w.turn]
		if v.queue.Empty() {
			v.inRing = false
			w.ring = append(w.ring[:w.turn], w.ring[w.turn+1:]...)
			w.given = false
			continue
		}
		if !w.given {
			w.given = true
			v.deficit += layout.PieceSectors
		}
		if t := v.queue.Head(); claimOf(t).Sectors <= v.deficit {
			return t
		}
		w.given = false
		w.turn++
	}
	return nil
}

// took books what the ticket that head returned was admitted for.
func (w *queue) took(t *ticket.Ticket, c *Claim) {
	if v := c.Owner; t.In(&v.queue) {
		v.deficit -= c.Sectors
	}
}

func claimOf(t *ticket.Ticket) *Claim { return t.Waiter().(Writer).Claim() }

// Wait queues a writer for room; front says that it stood at the head there.
func (p *Pool) Wait(c *Claim, t *ticket.Ticket, front bool) {
	p.waiting.push(c, t, front, p.g.cache.Policy().Admission == policy.AdmitFair)
	p.g.join(p)
	p.g.Freed()
}

// Waiting reports whether somebody waits for room in the partition.
func (p *Pool) Waiting() bool { return !p.waiting.empty() }

// FIFO returns those who wait for room one after the other.
func (p *Pool) FIFO() *ticket.Queue { return &p.waiting.fifo }

// HeadLacks reports whether who is next waits for what all share.
func (p *Pool) HeadLacks() bool {
	t := p.waiting.head()
	return t != nil && claimOf(t).lacks != 0
}
