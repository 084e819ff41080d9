// A scrub of the store: all that the books know is read once, in each copy, while the array runs.

package metadata

import (
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Sweep reads each entry of the store in all copies and compares it with its checksum, a few at a time. What batches change
// meanwhile is left out. It mends nothing: the next batch says that a copy is damaged, and the next start makes that anew.
type Sweep struct {
	l        *Ledger
	families []string // that are left, the one first where it is
	next     int      // the least last byte there that is left

	// Bad is how many entries each copy has not as the books say, or cannot read.
	Bad []int
}

// sweepKeys is how many entries a step reads: hosts' reads wait in the same line.
const sweepKeys = 16

// NewSweep returns a sweep that has not begun.
func (l *Ledger) NewSweep() *Sweep {
	s := &Sweep{l: l, families: slices.Sorted(maps.Keys(l.held.of.families)), Bad: make([]int, 1)}
	if copies, ok := l.store.(block.MetaCopies); ok {
		s.Bad = make([]int, copies.Copies())
	}
	return s
}

// Step reads the next entries, and calls done on the executor, never from inside, with the bytes that were read and whether
// there is more. Where a copy does not answer, that is when it does; one that is known not to is not asked.
func (s *Sweep) Step(done func(read int64, more bool)) {
	l, left, read := s.l, 1, int64(0)
	ended := func() {
		if left--; left == 0 {
			done(read, len(s.families) > 0)
		}
	}
	for _, key := range s.keys() {
		for i := range s.Bad {
			if i < len(l.silent) && l.silent[i] {
				continue
			}
			left++
			want, sure := l.sumOf(key)
			gen := l.gen
			s.ask(i, key, func(value []byte, err error) {
				read += int64(len(value))
				now, still := l.sumOf(key)
				good := err == nil && value != nil && checksumOf(value) == want
				if !good && sure && still && gen == l.gen && now == want {
					s.Bad[i]++
					l.seen = l.seen || len(s.Bad) > 1
				}
				ended()
			})
		}
	}
	l.exec.Post(ended)
}

// ask reads an entry of a copy.
func (s *Sweep) ask(i int, key []byte, done func([]byte, error)) {
	if copies, ok := s.l.store.(block.MetaCopies); ok {
		copies.ReadFrom(i, key, done)
		return
	}
	s.l.store.Read(key, done)
}

// keys returns the keys of the next entries that there are.
func (s *Sweep) keys() (list [][]byte) {
	for ; len(s.families) > 0 && !s.l.Alone(); s.families, s.next = s.families[1:], 0 {
		f := s.l.held.of.families[s.families[0]]
		for ; f != nil && s.next < 256; s.next++ {
			if len(list) == sweepKeys {
				return list
			}
			if _, ok := f.place(byte(s.next)); ok {
				list = append(list, append([]byte(s.families[0]), byte(s.next)))
			}
		}
	}
	s.families = nil // a copy that has failed is known to lack some
	return list
}

// sumOf returns the checksum of an entry; sure is false where nobody knows whether the store has it so.
func (l *Ledger) sumOf(key []byte) (sum uint32, sure bool) {
	sum, sure = l.held.of.get(key)
	return sum, sure && !l.busy && len(l.doubt) == 0
}
