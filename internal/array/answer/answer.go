// Package answer keeps the requests that have ended until they are answered: all of a step in one event,
// and not before what is in NVRAM then survives the death of the process.
//
// # Concurrency
//
// Everything runs with the executor held. There is no goroutine and no wall clock here.
package answer

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// Config is what Answers work with.
type Config struct {
	Exec block.Executor
	// Local: what is in NVRAM survives the death of the process by itself.
	Local bool
	// Newest returns the number of the log's newest record.
	Newest func() uint64
	// Committed calls done when all records that there are survive the death of the process, or cannot.
	Committed func(done func(error))
	// Broke: the log could not be committed.
	Broke func(why string)
}

// Answers are the requests that have ended, until they are answered.
type Answers struct {
	Config
	ended []*block.Request
	sent  bool             // an event that answers them is on its way
	fn    func()           // that event
	sure  uint64           // the last record that survives the death of the process, where that is not local
	saw   []*block.Request // of the ended ones, those that have seen what may not
}

// Start gives them what they work with.
func (a *Answers) Start(c Config) {
	a.Config = c
	a.fn = a.complete
}

// Sure returns the last record that survives the death of the process, where NVRAM is not local.
func (a *Answers) Sure() uint64 { return a.sure }

// Saw notes that a request that is about to end has seen what may not survive.
func (a *Answers) Saw(r *block.Request) { a.saw = append(a.saw, r) }

// Finish queues a request's completion.
func (a *Answers) Finish(r *block.Request, s block.Status) {
	r.Status = s
	a.ended = append(a.ended, r)
	if !a.sent {
		a.sent = true
		a.Exec.Post(a.fn)
	}
}

// complete answers what has ended, writes and what has read them alike, when what is in NVRAM now
// survives the death of the process: at once where it is local.
func (a *Answers) complete() {
	a.sent = false
	batch := a.ended
	a.ended = nil
	if a.Local {
		a.acknowledge(batch)
		return
	}
	saw, newest := a.saw, a.Newest()
	a.saw = nil
	a.Committed(func(err error) {
		if err != nil {
			a.refuse(batch, saw, err)
		} else {
			a.sure = max(a.sure, newest)
		}
		a.acknowledge(batch)
	})
}

// refuse makes errors of the writes in a batch, which may not survive, and of those that saw such
// ones: a compare that has found a difference, too. What else was read stays good. So does a
// reference to a point in time: what it is used for has a commit of its own in this log, which fails,
// and what other arrays use it for is refused (copying.Lender.Intact).
func (a *Answers) refuse(batch, saw []*block.Request, err error) {
	a.Broke(fmt.Sprintf("the log could not be committed: %v", err))
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

func (a *Answers) acknowledge(batch []*block.Request) {
	for i, r := range batch {
		batch[i] = nil
		r.Done(r)
	}
	if a.ended == nil {
		a.ended = batch[:0]
	}
}
