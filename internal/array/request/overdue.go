// Who ends with an error because what it waits for does not come, before its host aborts it.

package request

import (
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// EndShared ends the commands that wait since a time for what pools share: it may be what others
// hold for an mdisk that does not take it. The hosts are told to try again.
func (e *Engine) EndShared(since int64) {
	for _, p := range e.set.Pools() {
		if p.Part.HeadLacks() {
			e.endQueued(p, block.Resources, since)
		}
	}
}

// LogStarves reports whether a request waits for room in the log.
func (e *Engine) LogStarves() bool { return !e.wakes.log.Empty() }

// EndLogWaiters ends the map edits that wait for room in the log.
func (e *Engine) EndLogWaiters(s block.Status) {
	for !e.wakes.log.Empty() {
		o := headOf(&e.wakes.log)
		o.unqueue()
		o.end(s)
	}
}

// endQueued ends the commands that wait since a time for room in the pool's partition.
func (e *Engine) endQueued(p *pool.Pool, s block.Status, since int64) {
	EndIdle(p.Part.FIFO(), since, s)
	for _, v := range p.Volumes() {
		EndIdle(Of(v).turns.Queue(), since, s)
	}
}

// EndWaiting ends these, and those that wait since then for their budget, or for space.
func (e *Engine) EndWaiting(p *pool.Pool, s block.Status, since int64) {
	e.endQueued(p, s, since)
	EndIdle(&p.SpaceWait, since, s)
	p.Part.EachBudgetQueue(func(q *ticket.Queue) { EndIdle(q, since, s) })
}

// EndWaiters ends these, and those whose writes wait for the back end: NVRAM keeps what they wrote.
func (e *Engine) EndWaiters(p *pool.Pool, s block.Status, since int64) {
	e.EndWaiting(p, s, since)
	for _, o := range idle(&e.settling.waiting, since) { // who is answered may end others
		if o.In(&e.settling.waiting) && o.v.Pool() == p && o.Since <= since {
			o.answer(s)
		}
	}
}

// EndIdle ends the requests of a queue that nothing has let go on since a time.
func EndIdle(q *ticket.Queue, since int64, s block.Status) {
	for _, o := range idle(q, since) { // who ends lets others begin, and may end others
		if !o.In(q) || o.Since == 0 || o.Since > since {
			continue
		}
		o.unqueue()
		o.stopWaiting()
		if o.unsettled > 0 { // the end of the op waits for that, its host does not
			o.status = s
			o.settle()
			o.answer(s)
		} else {
			o.end(s)
		}
	}
}

// idle returns the requests of a queue that nothing has let go on since a time.
func idle(q *ticket.Queue, since int64) (out []*op) {
	for t := q.Head(); t != nil; t = t.Next() {
		if t.Since != 0 && t.Since <= since {
			out = append(out, opOf(t))
		}
	}
	return out
}
