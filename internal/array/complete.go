// The answers to requests that have ended, all of a step in one event.

package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// answers are the requests that have ended, until they are answered.
type answers struct {
	ended []*block.Request
	sent  bool   // an event that answers them is on its way
	fn    func() // that event
}

// finish queues a request's completion.
func (e *engine) finish(r *block.Request, s block.Status) {
	r.Status = s
	e.answers.ended = append(e.answers.ended, r)
	if !e.answers.sent {
		e.answers.sent = true
		e.exec.Post(e.answers.fn)
	}
}

// complete answers what has ended, writes and what has read them alike, when what is in NVRAM now
// survives the death of the process: at once where it is local.
func (e *engine) complete() {
	e.answers.sent = false
	batch := e.answers.ended
	e.answers.ended = nil
	if nv := e.cache.NV; !nv.Local() {
		nv.Commit(func(err error) {
			if err != nil {
				e.refuse(batch, err)
			}
			e.acknowledge(batch)
		})
		return
	}
	e.acknowledge(batch)
}

// refuse makes errors of the writes in a batch, which may not survive.
func (e *engine) refuse(batch []*block.Request, err error) {
	e.breakDown(fmt.Sprintf("the log could not be committed: %v", err))
	for _, r := range batch {
		if r.Status == block.OK && r.Op != block.OpRead && r.Op != block.OpStatus && r.Op != block.OpHold {
			r.Status = block.Hardware
		}
	}
}

func (e *engine) acknowledge(batch []*block.Request) {
	for i, r := range batch {
		batch[i] = nil
		r.Done(r)
	}
	if e.answers.ended == nil {
		e.answers.ended = batch[:0]
	}
}
