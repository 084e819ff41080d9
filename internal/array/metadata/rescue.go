// A start does not read all pages of the copy that it loads. Before another copy is made anew from that one it does: the
// other one may have pages that this one has lost.

package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// rescueBytes is what a batch of pages has, about, that the loaded copy gets back.
const rescueBytes = 1 << 20

// rescue returns the pages that copy i, which is about to be made anew, has as the books say, and the chosen one has not. There
// are none where the chosen one is whole. unknown says that copy i cannot say whether it has one that the chosen one has not. Each
// page is looked for by its key: a place that cannot be read would hide from a walk all that lies behind it.
//
// Whole finds these pages as well. But it ends where copy i is not made anew, and behind that copy i is not read any more: the array
// would do without all of them until its next start.
func (l *Ledger) rescue(copies block.MetaCopies, chosen, i int) (pages []block.KV, unknown bool) {
	if !l.parts || verify(l.store, 0) == nil {
		return nil, false
	}
	defer copies.Choose(chosen)
	for w := l.held.of.walk([]byte{keyPage}); w.more; w.next() {
		copies.Choose(chosen)
		if v, err := l.store.Get(w.key); err == nil && l.good(w.key, v) {
			continue
		}
		copies.Choose(i)
		v, err := l.store.Get(w.key)
		switch {
		case err != nil:
			unknown = true
		case l.good(w.key, v):
			pages = append(pages, block.KV{Key: bytes.Clone(w.key), Value: v})
		}
	}
	return pages, unknown
}

// gains reports whether copy i, made anew, would have what it has not, or no longer what the books do not have: where both copies have
// lost the same it need not.
func (l *Ledger) gains(copies block.MetaCopies, chosen, i int) bool {
	defer copies.Choose(chosen)
	does := errors.New("it does")
	lacks := func(key []byte) error {
		copies.Choose(chosen)
		defer copies.Choose(i)
		if v, err := l.store.Get(key); err != nil || !l.good(key, v) {
			return nil
		}
		return does
	}
	copies.Choose(i)
	for _, first := range l.held.of.firsts() {
		if l.compare([]byte{first}, true, func(_, _ []byte) error { return nil }, lacks, func() error { return does }) != nil {
			return true
		}
	}
	return false
}

// whole returns what copy i is to have that is made anew: all that the books know, as they say, from the loaded copy, or else as
// copy i still has it. It fails where copy i cannot say whether it has what the loaded one lacks: then nobody may remove it. What
// neither has the new one gets as damaged as it is in the loaded one, or not at all.
func (l *Ledger) whole(copies block.MetaCopies, i int) Entries {
	return func(fn func(key, value []byte) error) error {
		chosen := copies.Chosen()
		defer copies.Choose(chosen)
		defer l.held.of.rest()
		lacks := func(key []byte) error {
			l.seen = true // the loaded copy is damaged itself: it is for the next start
			value, err := l.store.Get(key)
			if err == nil && l.good(key, value) {
				return fn(key, value)
			}
			copies.Choose(i)
			old, e := l.store.Get(key)
			copies.Choose(chosen)
			switch {
			case e == nil && l.good(key, old):
				return fn(key, old)
			case e != nil:
				return fmt.Errorf("an entry that the other copy lacks cannot be read in it; repair its disk, or remove it to do without that entry: %w", e)
			case err == nil && value != nil:
				return fn(key, value)
			}
			return nil
		}
		for _, first := range l.held.of.firsts() {
			if err := l.compare([]byte{first}, true, fn, lacks, func() error { return nil }); err != nil {
				return err
			}
		}
		number, err := l.store.Get([]byte(keyGen))
		if err != nil || number == nil {
			return err
		}
		return fn([]byte(keyGen), number)
	}
}

// putBack has all copies get pages that were rescued. Each batch has the digest of what the store has of the account, be
// it damaged; so it says that it is not right.
func (l *Ledger) putBack(pages []block.KV) error {
	for len(pages) > 0 {
		n, size := 0, 0
		for n < len(pages) && size < rescueBytes {
			size += len(pages[n].Value)
			n++
		}
		batch := slices.Clip(pages[:n])
		if l.derived {
			batch = append(batch, block.KV{Key: []byte{keyAccount}, Value: []byte{1}})
		}
		if err := l.CommitNow(batch); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return nil
}
