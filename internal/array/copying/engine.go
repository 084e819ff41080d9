// Package copying has what copies that move data share: the bounds of what is under way, buffers, and sources that other
// I/O groups hold.
//
// A copy runs in the array of its destination. Where its source is in another one, that lends it a
// [Source], and each piece is a [Fetch]: a message there, a read there into the piece's buffer, and
// a message back. Neither side ever waits for the other's executor. A fetch that is given up leaves its buffer with the
// message until that comes back, if it does.
package copying

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// Limits bound the pieces of copies that move data.
type Limits struct {
	Pieces int   // of one copy, under way
	Bytes  int64 // of all copies together, under way; 0: any
	Reads  int   // sources of all copies that are read; 0: any
}

// Engine bounds the pieces of all moves of an array together, and has their buffers. Who asks for
// more waits by the priority of its command. It is used with the array's executor held.
type Engine struct {
	Limits  Limits
	Moves   ticket.Queue // for another piece
	Reads   ticket.Queue // pieces, for the read of their source
	Out     int64        // bytes of pieces under way
	Reading int          // sources
	Held    Held
	bufs    [][]byte
	fetches *Fetch // that are free
	owing   []arrears
}

// Room reports whether the engine takes another piece.
func (e *Engine) Room() bool {
	most := e.Limits.Bytes
	return most == 0 || e.Out == 0 || e.Out+layout.PieceSectors*block.SectorSize <= most
}

// ReadRoom reports whether it may read another source.
func (e *Engine) ReadRoom() bool { return e.Limits.Reads == 0 || e.Reading < e.Limits.Reads }

// WakeReads and WakeMoves let those go on that the engine has room for now, and report whether
// there were any.
func (e *Engine) WakeReads() (woke bool) {
	for !e.Reads.Empty() && e.ReadRoom() {
		woke = true
		e.Reads.Head().Wake()
	}
	return woke
}

// WakeMoves is WakeReads of those that wait for another piece.
func (e *Engine) WakeMoves() (woke bool) {
	for !e.Moves.Empty() && e.Room() {
		woke = true
		e.Moves.Head().Wake()
	}
	return woke
}

// Buf returns a buffer of n bytes for a piece, PutBuf takes it back.
func (e *Engine) Buf(n int) []byte {
	if k := len(e.bufs); k > 0 {
		b := e.bufs[k-1]
		e.bufs = e.bufs[:k-1]
		return b[:n]
	}
	return make([]byte, n, layout.PieceSectors*block.SectorSize)
}

// PutBuf takes a buffer of a piece back.
func (e *Engine) PutBuf(b []byte) {
	if cap(b) >= layout.PieceSectors*block.SectorSize {
		e.bufs = append(e.bufs, b)
	}
}
