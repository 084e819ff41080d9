// The answers to requests that have ended, all of a step in one event.

package request

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// answers are the requests that have ended, until they are answered.
type answers struct {
	ended []*block.Request
	sent  bool   // an event that answers them is on its way
	fn    func() // that event

	local bool             // what is in NVRAM survives the death of the process by itself
	sure  uint64           // the last record that survives it, where it is not
	saw   []*block.Request // of the ended ones, those that have seen what may not
}

// changed notes that a volume was changed by the log's newest record.
func (e *Engine) changed(v *Volume, r block.Range) {
	if !e.answers.local {
		v.unsure.Note(r, e.link.Newest(), e.answers.sure)
	}
}

// finishRead queues the completion of a request that has seen a range of a volume.
func (e *Engine) finishRead(v *Volume, r *block.Request, seen block.Range, s block.Status) {
	if !e.answers.local && v.unsure.Has(seen, e.answers.sure) {
		e.answers.saw = append(e.answers.saw, r)
	}
	e.finish(r, s)
}

// finish queues a request's completion.
func (e *Engine) finish(r *block.Request, s block.Status) {
	r.Status = s
	e.answers.ended = append(e.answers.ended, r)
	if !e.answers.sent {
		e.answers.sent = true
		e.exec.Post(e.answers.fn)
	}
}

// complete answers what has ended, writes and what has read them alike, when what is in NVRAM now
// survives the death of the process: at once where it is local.
func (e *Engine) complete() {
	e.answers.sent = false
	batch := e.answers.ended
	e.answers.ended = nil
	if e.answers.local {
		e.acknowledge(batch)
		return
	}
	saw, newest := e.answers.saw, e.link.Newest()
	e.answers.saw = nil
	e.link.Committed(func(err error) {
		if err != nil {
			e.refuse(batch, saw, err)
		} else {
			e.answers.sure = max(e.answers.sure, newest)
		}
		e.acknowledge(batch)
	})
}

// refuse makes errors of the writes in a batch, which may not survive, and of those that saw such
// ones: a compare that has found a difference, too. What else was read stays good. So does a
// reference to a point in time: what it is used for has a commit of its own in this log, which fails,
// and what other arrays use it for is refused (ref.Intact).
func (e *Engine) refuse(batch, saw []*block.Request, err error) {
	e.BreakDown(fmt.Sprintf("the log could not be committed: %v", err))
	for _, r := range batch {
		switch r.Op {
		case block.OpRead, block.OpStatus, block.OpHold:
			continue
		}
		if r.Status == block.OK || r.Status == block.Miscompare {
			r.Status = block.Hardware
		}
	}
	for _, r := range saw {
		if r.Status == block.OK {
			r.Status = block.Hardware
		}
	}
}

func (e *Engine) acknowledge(batch []*block.Request) {
	for i, r := range batch {
		batch[i] = nil
		r.Done(r)
	}
	if e.answers.ended == nil {
		e.answers.ended = batch[:0]
	}
}
