// The answers to requests that have ended, all of a step in one event.

package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// complete answers what has ended, writes and what has read them alike, when what is in NVRAM now
// survives the death of the process: at once where it is local.
func (a *Array) complete() {
	a.completeSent = false
	batch := a.completed
	a.completed = nil
	if nv := a.cache.NV; !nv.Local() {
		nv.Commit(func(err error) {
			if err != nil {
				a.refuse(batch, err)
			}
			a.acknowledge(batch)
		})
		return
	}
	a.acknowledge(batch)
}

// refuse makes errors of the writes in a batch, which may not survive.
func (a *Array) refuse(batch []*block.Request, err error) {
	a.breakDown(fmt.Sprintf("the log could not be committed: %v", err))
	for _, r := range batch {
		if r.Status == block.OK && r.Op != block.OpRead && r.Op != block.OpStatus && r.Op != block.OpHold {
			r.Status = block.Hardware
		}
	}
}

func (a *Array) acknowledge(batch []*block.Request) {
	for i, r := range batch {
		batch[i] = nil
		r.Done(r)
	}
	if a.completed == nil {
		a.completed = batch[:0]
	}
}
