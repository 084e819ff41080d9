package link

import (
	"io"

	"github.com/arraysim/arraysim/internal/block"
)

// What the copies of one initiator have of the window of a link between arrays: as much as they leave to other initiators
// (block.Left), for the reason that hostWindow has. A piece cannot be taken back once it was sent, though its copy may have ended:
// the other array answers it when the mdisk does that it is read from.

// copyPiece is a read of a part of a reference.
type copyPiece struct {
	of   *copyRef
	head pieceHead
	buf  []byte
	p    block.Piece
}

// want has a piece wait for the window. Preconditions: mu is held.
func (l *copyLink) want(x *copyPiece) {
	u := x.of.u.by
	u.waiting.push(x)
	if !u.turning {
		u.turning = true
		l.turns.push(u)
	}
	l.pump()
}

// leaves reports whether an initiator leaves enough of the window to others with one more piece. The first goes however large it
// is. Preconditions: mu is held.
func (l *copyLink) leaves(u *copyUser, n int) bool {
	return u.pieces == 0 || block.Left(u.pieces, len(l.pieces), l.mostPieces) > 0 && block.Left(int(u.bytes), int(l.bytes), int(l.window)) >= n
}

// pump sends pieces that the window has room for, of all initiators in turn. Preconditions: mu is held.
func (l *copyLink) pump() {
	for passed := 0; passed < l.turns.len(); {
		u := *l.turns.first()
		x := *u.waiting.first()
		if n := len(x.buf); len(l.pieces) >= l.mostPieces || len(l.pieces) > 0 && l.bytes+int64(n) > l.window {
			return // it keeps its turn
		} else if l.turns.pop(); l.leaves(u, n) {
			u.waiting.pop()
			l.ask(x)
			passed = 0
		} else {
			passed++
		}
		if u.turning = u.waiting.len() > 0; u.turning {
			l.turns.push(u)
		}
	}
}

// ask sends a piece. Preconditions: mu is held, there is room.
func (l *copyLink) ask(x *copyPiece) {
	for l.last++; l.pieces[l.last] != nil; l.last++ {
	}
	x.head.id = l.last
	l.pieces[l.last] = x
	l.booked(x, 1)
	l.out = x.head.append(l.out)
	l.sent()
}

// booked counts a piece that was sent, or with -1 one that has been answered. Preconditions: mu is held.
func (l *copyLink) booked(x *copyPiece, by int) {
	u, n := x.of.u.by, int64(by*len(x.buf))
	l.bytes += n
	u.bytes += n
	u.pieces += by
}

// heardData takes the data of a piece, which is read into its place.
func (l *copyLink) heardData(body []byte) error {
	id, s, n, err := parseData(body)
	if err != nil {
		return err
	}
	l.c.mu.Lock()
	x := l.pieces[id]
	if x == nil || s == block.OK && int(n) != len(x.buf) {
		l.c.mu.Unlock()
		return broke("%d bytes for piece %d", n, id)
	}
	delete(l.pieces, id)
	l.booked(x, -1)
	l.gives(x.of.u.by, 0, 0)
	l.pump()
	l.c.mu.Unlock()
	if s == block.OK {
		if _, err = io.ReadFull(l.br, x.buf); err != nil {
			s = block.Offline
		} else {
			l.c.pieces.Add(1)
			l.c.bytes.Add(uint64(n))
		}
	}
	x.p.Served(s)
	return err
}

// withdrawn goes on when pieces of an initiator wait no more that were not sent: there may be room for those behind them, and who has
// no other has no turn. Preconditions: mu is held.
func (l *copyLink) withdrawn(u *copyUser) {
	if u.waiting.len() == 0 {
		u.turning = false
		for range l.turns.len() {
			x := *l.turns.first()
			if l.turns.pop(); x != u {
				l.turns.push(x)
			}
		}
	}
	l.pump()
}

// unsent takes all pieces that were not sent. Preconditions: mu is held.
func (l *copyLink) unsent() (out []*copyPiece) {
	for ; l.turns.len() > 0; l.turns.pop() {
		u := *l.turns.first()
		for u.turning = false; u.waiting.len() > 0; u.waiting.pop() {
			out = append(out, *u.waiting.first())
		}
	}
	return out
}
