package scratch

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// reader borrows pieces, and knows the one that it has.
type reader struct {
	initiator uint32
	number    int // in the order of queueing
	piece     []byte
	started   func(*reader)
}

func (r *reader) Initiator() uint32 { return r.initiator }

func (r *reader) Start(piece []byte) {
	r.piece = piece
	r.started(r)
}

// TestShares holds the law of a pool after random calls, whether it has memory or permits: no piece has two readers, no
// initiator has more than its part, nobody waits for whom there is a piece, and of the initiators that wait, one that has least
// is served, its oldest reader first.
func TestShares(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+100; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		var all Pools
		p, length := all.Compare(), PieceLen
		if seed%2 == 1 {
			p, length = all.Combine(), 0
		}
		var waiting, reading []*reader
		held := map[uint32]int{}
		queued := 0
		remove := func(list []*reader, r *reader) []*reader {
			for i := range list {
				if list[i] == r {
					return append(list[:i:i], list[i+1:]...)
				}
			}
			t.Fatalf("seed %d: a reader is not where it should be", seed)
			return nil
		}
		started := func(r *reader) {
			for _, w := range waiting {
				if held[w.initiator] < held[r.initiator] || w.initiator == r.initiator && w.number < r.number {
					t.Fatalf("seed %d: reader %d of initiator %d (has %d) before %d of %d (has %d)",
						seed, r.number, r.initiator, held[r.initiator], w.number, w.initiator, held[w.initiator])
				}
			}
			waiting = remove(waiting, r)
			reading = append(reading, r)
			held[r.initiator]++
		}
		for range 400 {
			switch op := rng.IntN(5); {
			case op < 2:
				r := &reader{initiator: uint32(1 + rng.IntN(3)), number: queued, started: started}
				queued++
				waiting = append(waiting, r)
				p.Want(r)
			case op == 2 && len(waiting) > 0:
				r := waiting[rng.IntN(len(waiting))]
				waiting = remove(waiting, r)
				p.Forget(r)
			case op > 2 && len(reading) > 0:
				r := reading[rng.IntN(len(reading))]
				reading = remove(reading, r)
				held[r.initiator]--
				piece := r.piece
				r.piece = nil
				if op == 3 {
					p.Give(r, piece)
					continue
				}
				r.number = queued
				queued++
				waiting = append(waiting, r)
				p.Again(r, piece)
			}
			have := map[*byte]bool{}
			for _, r := range reading {
				if r.piece == nil || len(r.piece) != length {
					t.Fatalf("seed %d: a piece of %d bytes, want %d", seed, len(r.piece), length)
				}
				if length == 0 {
					continue
				}
				if have[&r.piece[0]] {
					t.Fatalf("seed %d: a piece has two readers", seed)
				}
				have[&r.piece[0]] = true
			}
			for i, n := range held {
				if n > maxOfInitiator {
					t.Fatalf("seed %d: initiator %d has %d pieces", seed, i, n)
				}
			}
			for _, w := range waiting {
				if len(reading) < maxPieces && held[w.initiator] < maxOfInitiator {
					t.Fatalf("seed %d: initiator %d waits with %d pieces, %d are lent", seed, w.initiator, held[w.initiator], len(reading))
				}
			}
			if p.used != len(reading) || len(p.waiting) != len(waiting) {
				t.Fatalf("seed %d: %d lent, %d wait; want %d and %d", seed, p.used, len(p.waiting), len(reading), len(waiting))
			}
		}
	}
}
