// Reading what the books know, once more: each value is held against its checksum, and where it
// differs another copy is read.

package metadata

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// errEntry says that an entry is not what the books say.
var errEntry = errors.New("an entry of the checkpoints is damaged")

// good reports whether a value is what the books say that the store has of a key.
func (l *Ledger) good(key, value []byte) bool {
	sum, ok := l.held.of.get(key)
	return ok && value != nil && checksumOf(value) == sum
}

// Read reads an entry while the array runs, from the copy that was loaded, or from another one where that
// does not have it as the books say. It calls done on the executor, never from inside. Preconditions: the
// store has the entry, durably, no batch with it is under way or in doubt until done is called, and nobody
// else reads it.
func (l *Ledger) Read(key []byte, done func(value []byte, err error)) {
	copies, ok := l.store.(block.MetaCopies)
	if !ok {
		l.store.Read(key, func(value []byte, err error) {
			if err == nil && !l.good(key, value) {
				err = errEntry
			}
			done(value, err)
		})
		return
	}
	x := &lookup{l: l, copies: copies, key: key, done: done, next: l.answering(copies), left: copies.Copies()}
	if l.lookups == nil {
		l.lookups, l.silent = map[string]*lookup{}, make([]bool, x.left)
	}
	l.lookups[string(key)] = x
	x.ask()
}

// Hurry says that the answer to Read of an entry does not come: another copy is asked, too, if there is one, and the one that
// does not answer is asked first by nobody before it does.
func (l *Ledger) Hurry(key []byte) {
	if x := l.lookups[string(key)]; x != nil {
		l.silent[x.asked] = true
		if x.left > 0 {
			x.ask()
		}
	}
}

// Silent reports whether a copy does not answer.
func (l *Ledger) Silent() bool { return slices.Contains(l.silent, true) }

// answering returns the copy that was loaded, or the next one that answers.
func (l *Ledger) answering(copies block.MetaCopies) int {
	chosen := copies.Chosen()
	for n := range l.silent {
		if i := (chosen + n) % len(l.silent); !l.silent[i] {
			return i
		}
	}
	return chosen
}

// lookup is an entry that is being read, from one copy after the other.
type lookup struct {
	l      *Ledger
	copies block.MetaCopies
	key    []byte
	done   func(value []byte, err error) // nil when it was called
	next   int                           // copy that is asked next
	asked  int                           // the one that was asked last
	left   int                           // how many were not asked
	out    int                           // how many have not answered
	first  error
	bad    bool // a copy that has not failed as a whole has it otherwise, or cannot read it
}

// ask asks the next copy.
func (x *lookup) ask() {
	i := x.next
	x.asked, x.next = i, (i+1)%x.copies.Copies()
	x.left--
	x.out++
	x.copies.ReadFrom(i, x.key, func(value []byte, err error) {
		x.out--
		x.l.silent[i] = false
		if x.done == nil { // another one was faster
			return
		}
		if err == nil && x.l.good(x.key, value) {
			x.l.seen = x.l.seen || x.bad
			x.end(value, nil)
			return
		}
		if x.bad = x.bad || err == nil || !x.l.Alone(); err == nil {
			err = errEntry
		}
		x.first = cmp.Or(x.first, fmt.Errorf("copy %d: %w", i+1, err))
		switch {
		case x.left > 0:
			x.ask()
		case x.out == 0:
			x.end(nil, x.first)
		}
	})
}

func (x *lookup) end(value []byte, err error) {
	done := x.done
	x.done = nil
	delete(x.l.lookups, string(x.key))
	done(value, err)
}

// ReadNow is Read that waits; only used while an array is being opened, or checked with nobody served.
func (l *Ledger) ReadNow(key []byte) ([]byte, error) {
	value, err := l.lookNow(key)
	if err == nil && value == nil {
		err = errEntry
	}
	return value, err
}

// lookNow reads an entry as the books say, from the copy that is loaded or else from another one. It returns nil and no
// error where no copy has the entry.
func (l *Ledger) lookNow(key []byte) ([]byte, error) {
	get := func() ([]byte, error) {
		value, err := l.store.Get(key)
		if err == nil && value != nil && !l.good(key, value) {
			err = errEntry
		}
		return value, err
	}
	value, err := get()
	copies, ok := l.store.(block.MetaCopies)
	if !ok || err == nil && value != nil {
		return value, err
	}
	chosen := copies.Chosen()
	defer copies.Choose(chosen)
	for i := range copies.Copies() {
		if copies.Choose(i); i == chosen {
			continue
		}
		other, e := get()
		if e == nil && other != nil {
			l.seen = true
			return other, nil
		}
		err = cmp.Or(err, e)
	}
	return nil, err
}

// LoadAgain is Load of pages that were loaded before. It waits; only used while an array is being opened.
func (l *Ledger) LoadAgain(prefix []byte, fn func(key, value []byte) error) error {
	return l.loadPages(prefix, false, fn)
}

// LoadReadable is LoadAgain, and leaves out what no copy has as the books say.
func (l *Ledger) LoadReadable(prefix []byte, fn func(key, value []byte) error) error {
	return l.loadPages(prefix, true, fn)
}

// loadPages calls fn for the entries that the books have with a prefix, in the order of their keys. One that the
// loaded copy has not as the books say, or that lies behind what can be read there, comes from another copy. Those that no
// copy has are left out: whoever knows how many there have to be counts them. So are, if it is to, those that no copy has as the
// books say, or can read; else that is an error. An entry that the books do not have is one.
func (l *Ledger) loadPages(prefix []byte, leaveOut bool, fn func(key, value []byte) error) error {
	return l.compare(prefix, leaveOut, fn, func(key []byte) error {
		value, err := l.lookNow(key)
		switch {
		case err == nil && value != nil:
			return fn(key, value)
		case err != nil && !leaveOut:
			return fmt.Errorf("a page is not as its entry says: %w", err)
		}
		return nil
	}, func() error { return fmt.Errorf("%w: a page has no entry", errEntry) })
}

// compare goes through the entries that the books have with a prefix, in the order of their keys, and calls has for those that the
// loaded copy has as the books say, and lacks for the others, which are also those behind what can be read there. stray is
// called for what the books do not have. An error of these ends it; so does one of the store if that has no other copy, unless
// goesOn.
func (l *Ledger) compare(prefix []byte, goesOn bool, has func(key, value []byte) error, lacks func(key []byte) error, stray func() error) error {
	want := l.held.of.walk(prefix)
	var ended error
	err := l.store.Load(prefix, func(k, v []byte) error {
		for want.more && ended == nil && bytes.Compare(want.key, k) < 0 {
			ended = lacks(want.key)
			want.next()
		}
		switch {
		case ended != nil:
			return ended
		case !want.more || !bytes.Equal(want.key, k):
			ended = stray()
			return ended
		case checksumOf(v) == want.sum:
			ended = has(k, v)
		default:
			ended = lacks(want.key)
		}
		if ended == nil {
			want.next()
		}
		return ended
	})
	if ended != nil {
		return ended
	}
	_, ok := l.store.(block.MetaCopies)
	if !ok && err != nil && !goesOn {
		return err
	}
	l.seen = l.seen || ok && err != nil
	for ; want.more && ended == nil; want.next() {
		ended = lacks(want.key)
	}
	return ended
}
