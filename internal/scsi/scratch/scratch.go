// Package scratch has memory that commands read into for themselves, to compare it, and counts what they have their device read
// into, to combine it. All commands of a target share the one or the other: a command has a piece at a time and then queues
// again, so that a long one does not keep others out, and an initiator has at most half of the pieces.
package scratch

import "slices"

const (
	// PieceLen is the length of a piece, in bytes.
	PieceLen       = 256 << 10
	maxPieces      = 16 // at a time
	maxOfInitiator = maxPieces / 2
)

// Borrower is a command that waits for a piece, or has one.
type Borrower interface {
	// Initiator returns the number of the initiator that the piece counts for.
	Initiator() uint32
	// Start goes on with the piece, which the borrower gives back.
	Start(piece []byte)
}

// Pools are the pools of a target. The zero value has nothing lent.
type Pools struct{ compare, combine Pool }

// Compare returns the pool of commands that read.
func (p *Pools) Compare() *Pool { return &p.compare }

// Combine returns the pool of commands whose device combines, with memory of its own: these pieces have none. A device may keep
// them until it has room for what it writes; that does not concern who reads.
func (p *Pools) Combine() *Pool {
	p.combine.bare = true
	return &p.combine
}

// Pool hands out pieces. Next is the oldest borrower of the initiator that has
// least. The zero value has nothing lent.
type Pool struct {
	bare    bool // pieces are permits: they have no memory
	free    [][]byte
	used    int
	of      []int      // pieces, by number of the initiator
	waiting []Borrower // oldest first
}

// Want queues a borrower, which is started when it has a piece: at once if it can.
func (p *Pool) Want(b Borrower) {
	p.waiting = append(p.waiting, b)
	p.serve()
}

// Give takes a borrower's piece back.
func (p *Pool) Give(b Borrower, piece []byte) {
	p.free = append(p.free, piece)
	p.used--
	p.of[b.Initiator()]--
	p.serve()
}

// Again queues a borrower that has a piece and takes that back. It queues before it gives its
// memory up, so that its turn counts.
func (p *Pool) Again(b Borrower, piece []byte) {
	p.waiting = append(p.waiting, b)
	p.Give(b, piece)
}

// Forget takes a borrower that ends out of the queue.
func (p *Pool) Forget(b Borrower) {
	if i := slices.Index(p.waiting, b); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}

func (p *Pool) serve() {
	for p.used < maxPieces {
		next, least := -1, maxOfInitiator
		for i, b := range p.waiting {
			if n := *p.count(b.Initiator()); n < least {
				next, least = i, n
			}
		}
		if next < 0 {
			return
		}
		b := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		piece := p.take()
		p.used++
		*p.count(b.Initiator())++
		b.Start(piece)
	}
}

// count returns how many pieces an initiator has. The pointer is good until the next call.
func (p *Pool) count(initiator uint32) *int {
	for uint32(len(p.of)) <= initiator {
		p.of = append(p.of, 0)
	}
	return &p.of[initiator]
}

func (p *Pool) take() []byte {
	n := len(p.free)
	switch {
	case n == 0 && p.bare:
		return []byte{}
	case n == 0:
		return make([]byte, PieceLen)
	}
	piece := p.free[n-1]
	p.free = p.free[:n-1]
	return piece
}
