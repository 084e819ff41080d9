// The order of the parts of a copy. Who copies within one unit part by part must read each part of
// the source before an earlier part of the copy overwrites it: then the result is as if the whole
// source was read first, whatever overlaps.

package lun

import "github.com/arraysim/arraysim/internal/block"

// move is a part of a copy: count sectors from src to dst. back: its pieces are copied last first,
// because it overlaps itself towards the end.
type move struct {
	src, dst, count uint64
	back            bool
}

func (m move) from() block.Range { return block.Range{Start: m.src, Count: m.count} }
func (m move) to() block.Range   { return block.Range{Start: m.dst, Count: m.count} }

// take cuts off the piece that is copied next, of at most so many sectors.
func (m *move) take(most uint64) (piece move) {
	n := min(m.count, most)
	piece = move{src: m.src, dst: m.dst, count: n}
	if m.count -= n; m.back {
		piece.src, piece.dst = m.src+m.count, m.dst+m.count
		return piece
	}
	m.src, m.dst = m.src+n, m.dst+n
	return piece
}

// moves appends what makes to of the ranges of a reference from sector skip on to a list. ok is
// false when the reference is too short.
func moves(list []move, ranges []block.Range, skip uint64, to block.Range) (all []move, ok bool) {
	for _, g := range ranges {
		k := min(skip, g.Count)
		skip -= k
		n := min(g.Count-k, to.Count)
		if n == 0 {
			continue
		}
		list = append(list, move{src: g.Start + k, dst: to.Start, count: n})
		to.Start, to.Count = to.Start+n, to.Count-n
	}
	return list, to.Count == 0
}

// arrange puts the moves of a copy within one unit into an order in which none reads what an
// earlier one has written. It returns false when there is none.
func arrange(list []move) bool {
	for i := range list {
		rest := list[i:]
		k := 0
		for k < len(rest) && !last(rest, k) {
			k++
		}
		if k == len(rest) {
			return false
		}
		m := &rest[k]
		m.back = m.dst > m.src && m.to().Overlaps(m.from())
		rest[0], rest[k] = rest[k], rest[0]
	}
	return true
}

// last reports whether no other move of the list reads what the k-th one writes.
func last(list []move, k int) bool {
	for i := range list {
		if i != k && list[k].to().Overlaps(list[i].from()) {
			return false
		}
	}
	return true
}
