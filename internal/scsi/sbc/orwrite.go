// Handler of ORWRITE. A device combines what comes with what it reads, into memory that nobody is
// charged for. So a command goes there in pieces, and each needs a permit, of as many as VERIFY has pieces
// of memory: that bounds what devices hold for all of them, and initiators take turns. A piece is
// carried out as one with regard to all others. A command of more than one is not, and need not be:
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
	pieces
	data [][]byte // what belongs to what is not yet submitted
}

// OrWrite serves ORWRITE(16).
func OrWrite(t *server.Task) {
	bytes, ok := transfer(t, block.OpOrWrite)
	if !ok || !dataOut(t, bytes) {
		return
	}
	r := t.Request()
	c := &combination{pieces: pieces{task: t, pool: t.Target().Scratch().Combine(), rest: r.Range, start: combinePiece}, data: r.Data}
	t.Hold(c)
	c.pool.Want(&c.pieces)
}

// combinePiece submits the next piece. Of more than one, they end where those of the array do, so that
// each is one record of its log.
func combinePiece(t *server.Task) {
	const piece = scratch.PieceLen >> block.SectorShift
	c, r := t.Held().(*combination), t.Request()
	n := c.rest.Count
	if n > piece {
		n = piece - c.rest.Start%piece
	}
	r.Range = block.Range{Start: c.rest.Start, Count: n}
	r.Data, c.data = sgl.Split(c.data, r.Range.Bytes())
	t.Submit(combined)
}

func combined(t *server.Task) { t.Held().(*combination).next() }
