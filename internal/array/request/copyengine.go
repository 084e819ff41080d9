// The copy engine: it owns how many pieces of moves are under way, and their buffers.

package request

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// CopyLimits bound the pieces of copies that move data.
type CopyLimits struct {
	Pieces int   // of one copy, under way
	Bytes  int64 // of all copies together, under way; 0: any
	Reads  int   // sources of all copies that are read; 0: any
}

// copyEngine bounds the pieces of all moves together, and has their buffers. Who asks for more
// waits by the priority of its command.
type copyEngine struct {
	limits  CopyLimits
	moves   ticket.Queue // for another piece
	reads   ticket.Queue // pieces, for the read of their source
	out     int64        // bytes of pieces under way
	reading int          // sources
	bufs    [][]byte
}

// room reports whether the engine takes another piece.
func (e *copyEngine) room() bool {
	most := e.limits.Bytes
	return most == 0 || e.out == 0 || e.out+layout.PieceSectors*block.SectorSize <= most
}

// readRoom reports whether it may read another source.
func (e *copyEngine) readRoom() bool { return e.limits.Reads == 0 || e.reading < e.limits.Reads }

// wakeReads and wakeMoves let those go on that the engine has room for now, and report whether
// there were any.
func (e *copyEngine) wakeReads() (woke bool) {
	for !e.reads.Empty() && e.readRoom() {
		woke = true
		e.reads.Head().Wake()
	}
	return woke
}

func (e *copyEngine) wakeMoves() (woke bool) {
	for !e.moves.Empty() && e.room() {
		woke = true
		e.moves.Head().Wake()
	}
	return woke
}

// getBuf returns a buffer of n bytes for a piece, putBuf takes it back.
func (e *copyEngine) getBuf(n int) []byte {
	if k := len(e.bufs); k > 0 {
		b := e.bufs[k-1]
		e.bufs = e.bufs[:k-1]
		return b[:n]
	}
	return make([]byte, n, layout.PieceSectors*block.SectorSize)
}

func (e *copyEngine) putBuf(b []byte) {
	if cap(b) >= layout.PieceSectors*block.SectorSize {
		e.bufs = append(e.bufs, b)
	}
}
