// What of a volume may not survive the death of the process yet, over NVRAM that is not local.
// Whoever has seen it is answered behind the commit that makes it survive, and with an error when
// that fails: a start may find what was there before.
//
// Invariant: the marks are in the order of their records. A range of which no mark tells survives.

package nvlog

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// maxMarks bounds the marks of a volume; what is more is told coarser.
const maxMarks = 256

// mark is a range that the record of a number, or an earlier one, has changed.
type mark struct {
	block.Range
	seq uint64
}

// Unsure is the ranges of a volume that were changed since the last commit that has ended well, or
// some more.
type Unsure struct {
	marks []mark
}

// forget drops what records up to a number have changed: they survive.
func (u *Unsure) forget(sure uint64) {
	n := 0
	for n < len(u.marks) && u.marks[n].seq <= sure {
		n++
	}
	u.marks = slices.Delete(u.marks, 0, n)
}

// Note says that the record of a number has changed a range. sure is the last one that survives.
func (u *Unsure) Note(r block.Range, seq, sure uint64) {
	u.forget(sure)
	if n := len(u.marks); n > 0 && u.marks[n-1].End() == r.Start {
		u.marks[n-1].Count += r.Count
		u.marks[n-1].seq = seq
		return
	}
	if len(u.marks) == maxMarks {
		all := mark{r, seq}
		for _, m := range u.marks {
			start := min(all.Start, m.Start)
			all.Range = block.Range{Start: start, Count: max(all.End(), m.End()) - start}
		}
		u.marks = append(u.marks[:0], all)
		return
	}
	u.marks = append(u.marks, mark{r, seq})
}

// Has reports whether something of a range may not survive. sure is the last record that does.
func (u *Unsure) Has(r block.Range, sure uint64) bool {
	u.forget(sure)
	return slices.ContainsFunc(u.marks, func(m mark) bool { return m.Overlaps(r) })
}
