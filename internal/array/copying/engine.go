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

const (
	// MaxLent is how many buffers there are for the pieces of all moves, beside one for each move
	// (Engine.Spare), MaxKept how many of them are kept while nobody has them.
	MaxLent = 128 << 20 / bufLen
	MaxKept = 16 << 20 / bufLen

	bufLen = layout.PieceSectors * block.SectorSize // of a piece, however short
)

// Limits bound the pieces of copies that move data.
type Limits struct {
	Pieces int   // of one copy, under way
	Bytes  int64 // of all copies together, under way; 0: any
	Reads  int   // sources of all copies that are read; 0: any
}

// Engine bounds the pieces of all moves of an array together, and has their buffers. Who asks for
// more waits by the priority of its command. It is used with the array's executor held.
//
// With payload, a piece has a buffer from the read of its source on, until it ends. Nothing waits in
// a queue for a buffer, so nothing that others need is held meanwhile: each move may have one piece,
// and where Spare denies it more, its own pieces bring it back.
type Engine struct {
	Limits  Limits
	Moves   ticket.Queue // for another piece
	Reads   ticket.Queue // pieces, for the read of their source
	Asking  ticket.Sum   // those that wait there, which have no buffer yet
	Out     int64        // bytes of pieces under way
	Reading int          // sources
	Held    Held
	bufs    [][]byte // that are free
	lent    int      // that pieces have, or fetches that were given up
	fetches *Fetch   // that are free
	owing   []arrears
}

// Room reports whether the engine takes another piece.
func (e *Engine) Room() bool {
	most := e.Limits.Bytes
	return most == 0 || e.Out == 0 || e.Out+layout.PieceSectors*block.SectorSize <= most
}

// ReadRoom reports whether it may read another source.
func (e *Engine) ReadRoom() bool { return e.Limits.Reads == 0 || e.Reading < e.Limits.Reads }

// Spare reports whether a move that has some pieces under way, with payload, may have another one:
// if it has fewer than there are buffers left. So a move that comes late finds some, however many
// others have. Bytes would be no bound: a piece may be one sector, and its buffer is as long as all.
func (e *Engine) Spare(pieces int) bool { return pieces < MaxLent-e.lent-e.Asking.N }

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
	e.lent++
	if k := len(e.bufs); k > 0 {
		b := e.bufs[k-1]
		e.bufs[k-1], e.bufs = nil, e.bufs[:k-1]
		return b[:n]
	}
	return make([]byte, n, bufLen)
}

// PutBuf takes a buffer of a piece back.
func (e *Engine) PutBuf(b []byte) {
	if cap(b) < bufLen {
		return
	}
	if e.lent--; len(e.bufs) < MaxKept {
		e.bufs = append(e.bufs, b)
	}
}

// Buffers returns how many buffers pieces, or fetches that were given up, have, and how many are
// kept.
func (e *Engine) Buffers() (lent, kept int) { return e.lent, len(e.bufs) }
