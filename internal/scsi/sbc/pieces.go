package sbc

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/scratch"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// pieces is the state of a command that goes to the device in pieces, and has a part of the target's
// scratch memory for each. It is the command's continuation and scratch.Borrower. Who begins one
// holds it and wants memory for it. Whoever ends gives that back, or leaves the queue (Release).
type pieces struct {
	task    *server.Task
	pool    *scratch.Pool      // that the memory is of
	rest    block.Range        // what is not done
	start   func(*server.Task) // submits the next piece, at the end of which next is called
	scratch []byte             // while a piece is under way; nil while the command waits for memory
}

// Piecewise implements server.Piecewise: who keeps the unit for itself waits for the command's end. Memory comes back from devices
// alone, none of which waits for that.
func (p *pieces) Piecewise() {}

// Release implements server.Continuation.
func (p *pieces) Release(*server.Task) {
	if b := p.scratch; b != nil {
		p.scratch = nil
		p.pool.Give(p, b)
		return
	}
	p.pool.Forget(p)
}

// Initiator implements scratch.Borrower.
func (p *pieces) Initiator() uint32 { return p.task.Nexus().HostID() }

// Start implements scratch.Borrower.
func (p *pieces) Start(b []byte) {
	p.scratch = b
	p.start(p.task)
}

// next takes the piece that has ended, of the task's request, off what is left. It ends the task, or
// queues it for its next piece.
func (p *pieces) next() {
	n := p.task.Request().Range.Count
	p.rest.Start += n
	p.rest.Count -= n
	b := p.scratch
	p.scratch = nil
	if p.rest.Count == 0 {
		p.pool.Give(p, b)
		p.task.Good()
		return
	}
	p.pool.Again(p, b)
}
