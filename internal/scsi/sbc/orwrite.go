// Handler of ORWRITE. A device combines what comes with what it reads, into memory that nobody is
// charged for. So a command goes there in pieces, and each needs its part of the memory that VERIFY
// reads into: that bounds what devices hold for all of them, and initiators take turns. A piece is
// carried out as one with regard to all others. The command as a whole is not, and need not be:
// like a WRITE of that length.

package sbc

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/scratch"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// combination is the state of an ORWRITE.
type combination struct {
	task    *server.Task
	rest    block.Range // what is not yet submitted
	data    [][]byte    // what belongs there
	scratch []byte      // while a piece is at the device; nil while the command waits for memory
}

// OrWrite serves ORWRITE(16).
func OrWrite(t *server.Task) {
	bytes, ok := transfer(t, block.OpOrWrite)
	if !ok || !dataOut(t, bytes) {
		return
	}
	r := t.Request()
	c := &combination{task: t, rest: r.Range, data: r.Data}
	t.Hold(c)
	t.Target().Scratch().Want(c)
}

// Release implements server.Continuation.
func (c *combination) Release(t *server.Task) {
	if b := c.scratch; b != nil {
		c.scratch = nil
		t.Target().Scratch().Give(c, b)
		return
	}
	t.Target().Scratch().Forget(c)
}

// Initiator implements scratch.Borrower.
func (c *combination) Initiator() uint32 { return c.task.Nexus().HostID() }

// Start implements scratch.Borrower: it submits the next piece. The device has memory of its own,
// and b stands for it. Pieces end where those of the array do, so that each is one record of its log.
func (c *combination) Start(b []byte) {
	const piece = scratch.PieceLen >> block.SectorShift
	c.scratch = b
	r := c.task.Request()
	r.Range = block.Range{Start: c.rest.Start, Count: min(c.rest.Count, piece-c.rest.Start%piece)}
	r.Data, c.data = sgl.Split(c.data, r.Range.Bytes())
	c.rest.Start += r.Range.Count
	c.rest.Count -= r.Range.Count
	c.task.Submit(combined)
}

// combined ends the task, or queues it for its next piece.
func combined(t *server.Task) {
	c := t.Held().(*combination)
	if c.rest.Count == 0 {
		t.Good()
		return
	}
	b := c.scratch
	c.scratch = nil
	t.Target().Scratch().Again(c, b)
}
