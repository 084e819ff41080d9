// Reading what the books know, once more: each value is held against its checksum, and where it
// differs another copy is read.

package metadata

import (
	"errors"
	"fmt"

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
// store has the entry, durably, and no batch with it is under way or in doubt until done is called.
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
	chosen, n, tried := copies.Chosen(), copies.Copies(), 0
	var first error
	var try func(i int)
	try = func(i int) {
		copies.ReadFrom(i, key, func(value []byte, err error) {
			switch tried++; {
			case err == nil && l.good(key, value):
				l.seen = l.seen || tried > 1
				done(value, nil)
				return
			case err == nil:
				err = errEntry
			}
			if first == nil {
				first = fmt.Errorf("copy %d: %w", i+1, err)
			}
			if tried == n {
				done(nil, first)
				return
			}
			try((i + 1) % n)
		})
	}
	try(chosen)
}

// ReadNow is Read that waits; only used while an array is being opened, or checked with nobody served.
func (l *Ledger) ReadNow(key []byte) ([]byte, error) {
	value, err := l.store.Get(key)
	if err == nil && l.good(key, value) {
		return value, nil
	}
	if err == nil {
		err = errEntry
	}
	if copies, ok := l.store.(block.MetaCopies); ok {
		chosen := copies.Chosen()
		defer copies.Choose(chosen)
		for i := range copies.Copies() {
			if copies.Choose(i); i == chosen {
				continue
			}
			if value, err := l.store.Get(key); err == nil && l.good(key, value) {
				l.seen = true
				return value, nil
			}
		}
	}
	return nil, err
}

// LoadAgain is Load of entries that were loaded before, and may have changed since: fn hears of those
// that are as the books say. It waits; only used while an array is being opened.
func (l *Ledger) LoadAgain(prefix []byte, fn func(key, value []byte) error) error {
	return l.store.Load(prefix, func(k, v []byte) error {
		if !l.good(k, v) {
			return fmt.Errorf("%w: it has changed since it was read", errEntry)
		}
		return fn(k, v)
	})
}
