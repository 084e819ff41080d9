// A scrub of the store: all that the books know is read once, in each copy, while the array runs. What one copy lacks, and
// another one has, is written once more.

package metadata

import (
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Sweep reads each entry of the store in all copies and compares it with its checksum, a few at a time. What batches change
// meanwhile is left out. An entry that a copy has not as the books say, and another one has, goes to all with a batch of its own:
// the copy can be read there again. That does not mend what is damaged under it, so the batch says that a copy is damaged, and the
// next start makes that anew.
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

// swept is an entry that is being read in all copies.
type swept struct {
	key, value []byte // value: as the books say; nil: no copy has said so yet
	bad        bool   // a copy has it otherwise
}

// Step reads the next entries, and calls done on the executor, never from inside, with the bytes that were read and whether
// there is more. Where a copy does not answer, that is when it does; one that is known not to is not asked.
func (s *Sweep) Step(done func(read int64, more bool)) {
	l, left, read := s.l, 1, int64(0)
	var all []*swept
	ended := func() {
		if left--; left == 0 {
			s.rewrite(all, func() { done(read, len(s.families) > 0) })
		}
	}
	for _, key := range s.keys() {
		x := &swept{key: key}
		all = append(all, x)
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
				switch good := err == nil && value != nil && checksumOf(value) == want; {
				case good:
					x.value = value
				case sure && still && gen == l.gen && now == want:
					s.Bad[i]++
					x.bad = true
					l.seen = l.seen || len(s.Bad) > 1
				}
				ended()
			})
		}
	}
	l.exec.Post(ended)
}

// rewrite has all copies get the entries that one has not as the books say, and another one has, and calls done when they have, or
// cannot. Batches take turns, so that these are still right when theirs comes, or are left out. The objects are left out in any
// case: once a batch with them has failed their owner says what they are.
func (s *Sweep) rewrite(all []*swept, done func()) {
	var list []block.KV
	for _, x := range all {
		if x.bad && x.value != nil && x.key[0] != keyObjects {
			list = append(list, block.KV{Key: x.key, Value: x.value})
		}
	}
	l := s.l
	if len(list) == 0 || l.closed || l.Alone() {
		done()
		return
	}
	l.Commit(func() []block.KV {
		return slices.DeleteFunc(list, func(e block.KV) bool { return !l.good(e.Key, e.Value) || l.InDoubt(string(e.Key)) })
	}, func(error) { done() })
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
