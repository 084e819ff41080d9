// Several copies of a meta store, each with its number and digest: which one a start reads, and
// that the others are made like it before the next batch goes to all. The store says which copies
// there are; here is which is good.

package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Known is what NVRAM knows of the meta store.
type Known struct {
	Least uint64 // number of the last batch that was durable, or less
	Some  bool   // there was one: a store without entries has lost them
}

// begun is the error of an array that cannot be opened once more.
type begun struct{ error }

// Unwrap returns the error.
func (b begun) Unwrap() error { return b.error }

// Begun marks the error of an array that had begun to work when it met it: there must not be another
// one over the same store, which would find the first one's writes among its own.
func Begun(err error) error { return begun{err} }

// unfit is the error of a copy that does not go with what else there is.
type unfit struct{ error }

// Unwrap returns the error.
func (u unfit) Unwrap() error { return u.error }

// Unfit marks the error of an array that cannot be opened because its copy does not go with NVRAM,
// though it may be whole: it may be from another time. Another copy has to go with NVRAM as well.
// Nothing has been changed then that another try would not find as it was.
func Unfit(err error) error { return unfit{err} }

// derivable is the error of an array whose account of space is wrong.
type derivable struct{ error }

// Unwrap returns the error.
func (d derivable) Unwrap() error { return d.error }

// Derivable marks what is wrong with an account of space: an array can be opened all the same that derives it from all
// pages. Nothing has been changed then that another try would not find as it was.
func Derivable(err error) error { return derivable{err} }

// torn is the error of a copy that was read as a whole, and is not, where no other one is: each page counts that it has.
type torn struct{ error }

// Unwrap returns the error.
func (t torn) Unwrap() error { return t.error }

// FromBest opens something from the newest copy of a meta store, or, when that one is damaged or
// Unfit, from another, unless the error is one of Begun. open gets the errors of the copies that are
// no good, by their number, see Mistrust. If there is no other error than one of Derivable, it is called once more with
// that, and is to derive the account of space.
//
// A copy that failed while the array ran is older than the rest, and NVRAM need not know that after
// a loss of power. So the number of the last batch decides, not the place.
func FromBest[T any](store block.MetaStore, known func() Known, open func(damaged []error, wrong error) (T, error)) (T, error) {
	copies, ok := store.(block.MetaCopies)
	if !ok {
		x, err := open(nil, nil)
		if errors.As(err, new(derivable)) {
			return open(nil, err)
		}
		return x, err
	}
	all := candidates(store, copies, known)
	var none T
	var first, wrong error
	best := 0 // the first copy whose account is wrong, and nothing else
	damaged := make([]error, len(all))
	for _, c := range all {
		damaged[c.i] = c.err
	}
	parts := false
	for n, c := range all {
		err := c.err
		if parts = parts || c.suspect && wrong == nil; parts && c.suspect {
			err = nil // those that nobody suspects are no good: most of these can be read, and what one lacks another may have
			for _, x := range all[n:] {
				if x.suspect {
					damaged[x.i] = torn{x.err}
				}
			}
		}
		if copies.Choose(c.i); err == nil {
			var x T
			if x, err = open(damaged, nil); err == nil {
				return x, nil
			}
			if errors.As(err, new(derivable)) {
				if wrong == nil {
					best, wrong = c.i, err
				}
				if verify(store, known().Least) == nil { // others have the same
					break
				}
			} else if errors.As(err, new(begun)) || // what is not the copy's fault another one does not mend
				!errors.As(err, new(unfit)) && verify(store, known().Least) == nil {
				return none, err
			}
		}
		damaged[c.i] = err
		if first == nil {
			first = err
		}
	}
	if wrong != nil {
		copies.Choose(best)
		damaged[best] = nil
		return open(damaged, wrong)
	}
	if errors.As(first, new(unfit)) { // then it is rather the log that is damaged
		return none, first
	}
	return none, fmt.Errorf("no copy of the checkpoints is good: %w", first)
}

// candidate is a copy that may be opened.
type candidate struct {
	i       int
	gen     uint64
	err     error
	suspect bool // err says that it was read as a whole, and is not
}

// candidates returns all copies, the one first that is to be tried first.
func candidates(store block.MetaStore, copies block.MetaCopies, known func() Known) []candidate {
	var all []candidate
	for i := range copies.Copies() {
		copies.Choose(i)
		s, err := stampOf(store)
		if err == nil && s.gen == 0 && known().Some {
			switch {
			case isEmpty(store):
				err = errors.New("there is nothing in it")
			case i > 0 && all[0].err != nil: // older formats had no numbers, and the first copy alone
				err = errors.New("it has no number: it may be a part")
			}
		}
		suspect := false
		if err == nil {
			err = isSuspect(store, known().Least)
			suspect = err != nil
		}
		all = append(all, candidate{i, s.gen, err, suspect})
	}
	slices.SortStableFunc(all, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), cmp.Compare(y.gen, x.gen))
	})
	return all
}

// rank orders candidates: those that are good as far as anybody knows, those that can be read in parts, and those that cannot.
func (c *candidate) rank() int {
	switch {
	case c.err == nil:
		return 0
	case c.suspect:
		return 1
	}
	return 2
}

// isEmpty reports whether a meta store has no entry.
func isEmpty(store block.MetaStore) bool {
	some := errors.New("there is one")
	return store.Load(nil, func(_, _ []byte) error { return some }) == nil
}

// Mistrust has SettleCopies make copies anew in any case: those with an error. errs is what FromBest gives.
func (l *Ledger) Mistrust(errs []error) {
	l.damaged = errs
	l.torn = slices.ContainsFunc(errs, isTorn)
	l.seen = l.seen || l.torn
}

func isTorn(err error) bool { return errors.As(err, new(torn)) }

// SettleCopies makes the copies anew that are not as new as the one that was loaded, before the
// next batch goes to all, each entry from the copy that has it. One that cannot be made is left alone, see Alone. It may have a batch that
// the loaded one lacks, as a death between the two leaves it, so that the next number leaps over it:
// no number stands for two batches. What the loaded one has lost of pages, and one that is made anew has, stays. Where
// another one is whole and as new, the loaded one is made anew instead. Where each has lost something, one is made of both, and then
// the loaded one of that.
func (l *Ledger) SettleCopies() error {
	copies, ok := l.store.(block.MetaCopies)
	if !ok {
		return nil
	}
	defer l.held.of.rest()
	if l.seen {
		l.takeWhole(copies)
	}
	rescued := l.renew(copies)
	if l.torn && l.takeWhole(copies) {
		l.torn, rescued = false, l.renew(copies)
	}
	if copies.Behind() {
		l.leap = leap
	}
	return l.putBack(rescued)
}

// renew makes the copies anew that are no good beside the chosen one, and returns the pages that this one is to get back from them.
func (l *Ledger) renew(copies block.MetaCopies) (rescued []block.KV) {
	chosen := copies.Chosen()
	defer copies.Choose(chosen)
	for i := range copies.Copies() {
		copies.Choose(i)
		s, err := stampOf(l.store)
		if err == nil && s != l.held.stamp(l.gen, l.parts) {
			err = fmt.Errorf("it is at change %d, not at %d", s.gen, l.gen)
		}
		if err == nil && i < len(l.damaged) { // its last batch can be read, and what is older cannot
			err = l.damaged[i]
		}
		if i == chosen || err == nil {
			continue
		}
		copies.Choose(chosen)
		pages, unknown := l.rescue(copies, chosen, i)
		rescued = append(rescued, pages...)
		switch {
		case !isTorn(err):
		case unknown: // it would be left alone for a page that may be lost in both, and has others
			continue
		case len(pages) == 0 && !l.gains(copies, chosen, i): // each start would make it once more, as it is
			continue
		}
		copies.Renew(i, err, l.whole(copies, i))
		if l.torn {
			l.damaged[i] = nil // takeWhole looks
		}
	}
	return rescued
}

// takeWhole chooses a copy that is as new as the one that was loaded, and whole, where pages of the latter had to be read
// from another one: so that is made anew. If there is none, which it reports, the next start tries again.
func (l *Ledger) takeWhole(copies block.MetaCopies) bool {
	loaded := copies.Chosen()
	damaged := make([]error, copies.Copies())
	copy(damaged, l.damaged)
	for i := range damaged {
		if i == loaded || damaged[i] != nil {
			continue
		}
		copies.Choose(i)
		if s, err := stampOf(l.store); err == nil && s == l.held.stamp(l.gen, l.parts) && verify(l.store, l.gen) == nil {
			damaged[loaded] = errors.New("a page of it is damaged")
			l.damaged, l.seen = damaged, false
			return true
		}
	}
	copies.Choose(loaded)
	return false
}

// leap is more batches than one copy can have before the others.
const leap = 1 << 20

// Alone reports whether a copy has failed, so that the others have what it lacks.
func (l *Ledger) Alone() bool {
	copies, ok := l.store.(block.MetaCopies)
	return ok && copies.Behind()
}

// verify reads all of a meta store.
func verify(store block.MetaStore, least uint64) error {
	s, err := stampOf(store)
	if err != nil {
		return err
	}
	var all, entries sums // of what there is, and of what the entries of pages say
	if err := store.Load(nil, func(k, v []byte) error {
		if string(k) != keyGen {
			all.add(k, checksumOf(v), 1)
		}
		if page, sum, ok := pageOf(k, v); ok {
			entries.add(page, sum, 1)
		}
		return nil
	}); err != nil {
		return err
	}
	switch {
	case s.gen < least:
		return fmt.Errorf("its last %d changes are lost", least-s.gen)
	case s.gen != 0 && (s != all.stamp(s.gen, s.parts) || s.parts && all.pages != entries.pages):
		return fmt.Errorf("parts of it are missing or older than the rest")
	}
	return nil
}

// Entries calls fn for all entries of a meta store, in the order of their keys, as of one moment.
type Entries func(fn func(key, value []byte) error) error

// CheckCopies reads all copies of the meta store and names those that are damaged, a line each. One that is not is read
// once more by whole, if there is one. It may only be called before the array serves. The next start makes the damaged ones
// anew.
func (l *Ledger) CheckCopies(whole func(Entries)) (lines []string) {
	entries := func(fn func(key, value []byte) error) error { return l.store.Load(nil, fn) }
	copies, ok := l.store.(block.MetaCopies)
	if !ok {
		if err := verify(l.store, 0); err != nil {
			return []string{fmt.Sprintf("the checkpoints are damaged: %v", err)}
		}
		whole(entries)
		return nil
	}
	defer copies.Choose(copies.Chosen())
	good := -1
	for i := range copies.Copies() {
		copies.Choose(i)
		if err := verify(l.store, 0); err != nil {
			l.seen = true
			lines = append(lines, fmt.Sprintf("copy %d of the checkpoints is damaged: %v", i+1, err))
		} else if good < 0 {
			good = i
		}
	}
	if good >= 0 {
		copies.Choose(good)
		whole(entries)
	}
	return lines
}
