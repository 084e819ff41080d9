// A scrub of the store: all that the books know is read once, in each copy, while the array runs. What one copy lacks, and
// another one has, is written once more.

package metadata

import (
	"bytes"
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

	// While a copy is known to have failed: which copies have answered since, and how many reads of each have ended with an error.
	answers []bool
	errs    []int

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
		if left--; left > 0 {
			return
		}
		if len(s.families) == 0 {
			s.end()
		}
		s.rewrite(all, func() { done(read, len(s.families) > 0) })
	}
	for _, key := range s.keys() {
		x := &swept{key: key}
		all = append(all, x)
		for i := range s.Bad {
			if i < len(l.silent) && l.silent[i] {
				continue
			}
			left++
			s.compare(i, x, func(n int) {
				read += int64(n)
				ended()
			})
		}
	}
	l.exec.Post(ended)
}

// compare reads an entry of a copy, and calls done with the number of bytes that were read. What the store has is known by the
// books but for entries of the batch that is under way, or of one that has failed. An entry of one that goes to the store
// meanwhile is left out: a slow disk may answer after many.
func (s *Sweep) compare(i int, x *swept, done func(n int)) {
	l, key := s.l, x.key
	want, ok := l.held.of.get(key)
	if !ok { // it is gone
		l.exec.Post(func() { done(0) })
		return
	}
	sent, doubt, alone := l.sent, l.doubt, l.Alone()
	writes := l.watch(key)
	s.ask(i, key, func(value []byte, err error) {
		written := l.unwatch(key) != writes
		s.answers[i] = s.answers[i] || err == nil && alone
		switch {
		case err == nil && value != nil && checksumOf(value) == want:
			x.value = value
		case written || has(sent, key) || has(doubt, key):
		case err != nil && l.Alone():
			s.errs[i]++
		default:
			x.bad = true
			s.bad(i, 1)
		}
		done(len(value))
	})
}

// watched is a key that is being read by sweeps.
type watched struct {
	readers int
	writes  int // batches with it that have gone to the store
}

// watch begins to count the batches with a key, and returns how many there were so far. Preconditions: unwatch follows.
func (l *Ledger) watch(key []byte) (writes int) {
	w := l.watched[string(key)]
	if w == nil {
		if l.watched == nil {
			l.watched = map[string]*watched{}
		}
		w = &watched{}
		l.watched[string(key)] = w
	}
	w.readers++
	return w.writes
}

// unwatch ends that, and returns how many there are now.
func (l *Ledger) unwatch(key []byte) (writes int) {
	w := l.watched[string(key)]
	if w.readers--; w.readers == 0 {
		delete(l.watched, string(key))
	}
	return w.writes
}

// sends counts a batch that goes to the store.
func (l *Ledger) sends(entries []block.KV) {
	l.sent = entries
	if len(l.watched) == 0 {
		return
	}
	for _, e := range entries {
		if w := l.watched[string(e.Key)]; w != nil {
			w.writes++
		}
	}
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
