// A scrub of the store: all that the books know is read once, in each copy, while the array runs.

package metadata

import (
	"bytes"
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

	answers []bool // copies that have answered
	errs    []int  // reads of a copy that have ended with an error while one was known to have failed

	// Bad is how many entries each copy has not as the books say, or cannot read. Those of a copy that has failed as a whole
	// are not among them.
	Bad []int
}

// sweepKeys is how many entries a step reads: hosts' reads wait in the same line.
const sweepKeys = 16

// NewSweep returns a sweep that has not begun.
func (l *Ledger) NewSweep() *Sweep {
	n := 1
	if copies, ok := l.store.(block.MetaCopies); ok {
		n = copies.Copies()
	}
	return &Sweep{l: l, families: slices.Sorted(maps.Keys(l.held.of.families)), answers: make([]bool, n), errs: make([]int, n), Bad: make([]int, n)}
}

// Step reads the next entries, and calls done on the executor, never from inside, with the bytes that were read and whether
// there is more. Where a copy does not answer, that is when it does; one that is known not to is not asked.
func (s *Sweep) Step(done func(read int64, more bool)) {
	l, left, read := s.l, 1, int64(0)
	ended := func() {
		if left--; left > 0 {
			return
		}
		if len(s.families) == 0 {
			s.end()
		}
		done(read, len(s.families) > 0)
	}
	for _, key := range s.keys() {
		for i := range s.Bad {
			if i < len(l.silent) && l.silent[i] {
				continue
			}
			left++
			s.compare(i, key, func(n int) {
				read += int64(n)
				ended()
			})
		}
	}
	l.exec.Post(ended)
}

// compare reads an entry of a copy, and calls done with the number of bytes that were read. What the store has is known by the
// books but for entries of the batch that is under way, or of one that has failed.
func (s *Sweep) compare(i int, key []byte, done func(n int)) {
	l := s.l
	want, ok := l.held.of.get(key)
	if !ok { // it is gone
		l.exec.Post(func() { done(0) })
		return
	}
	gen, unknown := l.gen, [...][]block.KV{l.sent, l.doubt}
	s.ask(i, key, func(value []byte, err error) {
		if s.answers[i] = s.answers[i] || err == nil; err == nil && value != nil && checksumOf(value) == want {
			done(len(value))
			return
		}
		now, still := l.held.of.get(key)
		switch {
		case !still || now != want || has(unknown[0], key) || has(unknown[1], key) || has(l.doubt, key):
		case l.gen > gen+1: // one batch may have removed it, and the next one put it again
			s.compare(i, key, func(n int) { done(n + len(value)) })
			return
		case err != nil && l.Alone():
			s.errs[i]++
		default:
			s.bad(i, 1)
		}
		done(len(value))
	})
}

// has reports whether there is an entry of a key.
func has(entries []block.KV, key []byte) bool {
	return slices.ContainsFunc(entries, func(e block.KV) bool { return bytes.Equal(e.Key, key) })
}

// bad counts entries that a copy has not as the books say.
func (s *Sweep) bad(i, n int) {
	s.Bad[i] += n
	s.l.seen = s.l.seen || len(s.Bad) > 1
}

// end counts what a copy could not read that is not the one that has failed.
func (s *Sweep) end() {
	for i, n := range s.errs {
		if s.answers[i] && n > 0 {
			s.bad(i, n)
		}
		s.errs[i] = 0
	}
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
	for ; len(s.families) > 0; s.families, s.next = s.families[1:], 0 {
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
	return list
}
