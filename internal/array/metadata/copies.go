// Several copies of a meta store, each with its number and digest: which one a start reads, and
// that the others are made like it before the next batch goes to all. The store says which copies
// there are; here is which is good.

package metadata

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// FromBest opens something from the newest copy of a meta store, or, when that one is damaged, from
// another. least returns the number of the last batch that NVRAM knows of.
//
// A copy that failed while the array ran is older than the rest, and NVRAM need not know that after
// a loss of power. So the number of the last batch decides, not the place.
func FromBest[T any](store block.MetaStore, open func() (T, error), least func() uint64) (T, error) {
	copies, ok := store.(block.MetaCopies)
	if !ok {
		return open()
	}
	type candidate struct {
		i   int
		gen uint64
		err error
	}
	var all []candidate
	for i := range copies.Copies() {
		copies.Choose(i)
		gen, _, err := generation(store)
		all = append(all, candidate{i, gen, err})
	}
	slices.SortStableFunc(all, func(x, y candidate) int {
		if (x.err == nil) == (y.err == nil) {
			return cmp.Compare(y.gen, x.gen)
		} else if x.err == nil {
			return -1
		}
		return 1
	})
	var none T
	var first error
	for k, c := range all {
		copies.Choose(c.i)
		x, err := open()
		if err == nil {
			return x, nil
		}
		if k == 0 {
			first = err
		}
		// What is not the copy's fault another one does not mend.
		if verify(store, least()) == nil {
			return none, err
		}
	}
	return none, first
}

// SettleCopies makes the copies anew that are not as new as the one that was loaded, before the
// next batch goes to all.
func (l *Ledger) SettleCopies() error {
	copies, ok := l.store.(block.MetaCopies)
	if !ok {
		return nil
	}
	chosen := copies.Chosen()
	defer copies.Choose(chosen)
	for i := range copies.Copies() {
		copies.Choose(i)
		gen, sum, err := generation(l.store)
		if err == nil && (gen != l.gen || sum != l.held.sum) {
			err = fmt.Errorf("it is at change %d, not at %d", gen, l.gen)
		}
		if i == chosen || err == nil {
			continue
		}
		copies.Choose(chosen)
		if err := copies.Renew(i, err); err != nil {
			return err
		}
	}
	return nil
}

// verify reads all of a meta store.
func verify(store block.MetaStore, least uint64) error {
	gen, sum, err := generation(store)
	if err != nil {
		return err
	}
	var d digest
	if err := store.Load(nil, func(k, v []byte) error {
		if string(k) != keyGen {
			d.sum += digestOf(k, v)
		}
		return nil
	}); err != nil {
		return err
	}
	switch {
	case gen < least:
		return fmt.Errorf("its last %d changes are lost", least-gen)
	case gen != 0 && sum != d.sum:
		return fmt.Errorf("parts of it are missing or older than the rest")
	}
	return nil
}

// CheckCopies reads all copies of the meta store and names those that are damaged, a line each. It
// may only be called before the array serves. The next start makes them anew.
func (l *Ledger) CheckCopies() (lines []string) {
	copies, ok := l.store.(block.MetaCopies)
	if !ok {
		return nil
	}
	defer copies.Choose(copies.Chosen())
	for i := range copies.Copies() {
		copies.Choose(i)
		if err := verify(l.store, 0); err != nil {
			lines = append(lines, fmt.Sprintf("copy %d of the checkpoints is damaged: %v", i+1, err))
		}
	}
	return lines
}
