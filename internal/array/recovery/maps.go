// Maps and the account of space from the last checkpoint. Where the store has the account, and an entry
// of each page, a start reads these and the pages above the leaves; leaves are absent then. Else it reads
// all pages, derives the account, and has the first checkpoint store what is missing.

package recovery

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/node"
)

// loadMaps builds the maps from the checkpoint, and keeps no page beside them. Pages that no root leads to are
// what a checkpoint had no time to remove.
func (r *run) loadMaps() error {
	parts, err := r.Meta.Parts()
	if err != nil {
		return err
	}
	unmarked, err := r.distrust(parts)
	if err != nil {
		return err
	}
	sure := !r.derive
	l := r.Set.Arena.NewLoader()
	if !sure && r.Set.Payload {
		l.Derive(!parts, parts && unmarked)
	}
	if err := r.loadAccount(l, sure); err != nil {
		return err
	}
	if err := r.Meta.Load(extent.KeyRoot, l.AddRoot); err != nil {
		return err
	}
	for _, v := range r.Set.Volumes() {
		if err := v.Map.TakeRoot(l); err != nil {
			return fmt.Errorf("%w of volume %q; restore the data folder from a copy", err, v.Spec.Name)
		}
	}
	pages := 0 // that have entries
	levels, err := r.loadEntries(l, parts)
	if err != nil {
		return err
	}
	if sure {
		err = r.loadUpper(l, levels)
	} else if err = r.Meta.Load(extent.KeyNode, l.AddNode); err == nil && parts { // the digest says nothing of pages
		for _, x := range levels {
			pages += x.pages
		}
		err = missing(pages - l.Nodes())
	}
	if err != nil {
		return r.behind(err)
	}
	l.End()
	for _, v := range r.Set.Volumes() {
		v.Map.Grow(v.Spec.Sectors)
	}
	r.found.MapPages, r.found.PagesRead = l.Nodes(), l.Pages
	return nil
}

// distrust finds out why the account is to be derived, if it is, and whether the store does not say that it is not known to be
// right. One that has too much is derived where that can be done; else nothing is lost with it but space.
func (r *run) distrust(parts bool) (unmarked bool, err error) {
	v, err := r.Meta.Get(account.Prefix)
	if err != nil && r.Wrong == nil {
		return false, metadata.Derivable(err)
	}
	switch mark := account.MarkOf(v); {
	case r.Wrong != nil:
		r.found.Derived = r.Wrong.Error()
	case !parts: // it was never stored
	case mark == account.NotKnown:
		r.found.Derived = "it was found to be wrong"
	case r.Set.Cache.NV.Miscounted():
		r.found.Derived = "the array died when it met something wrong in it"
	case mark == account.TooMuch && r.readable():
		r.found.Derived = "pages were removed that could not be read"
	case mark == account.TooMuch:
		r.Set.Arena.Account().Over()
	}
	r.derive = !parts || r.found.Derived != ""
	return account.MarkOf(v) != account.NotKnown, nil
}

// readable reports whether all pages of maps can be read that have entries. It reads them.
func (r *run) readable() bool {
	pages := 0
	err := r.Meta.Load(node.EntryPrefix, func(_, _ []byte) error { pages++; return nil })
	if err == nil {
		err = r.Meta.Load(extent.KeyNode, func(_, _ []byte) error { pages--; return nil })
	}
	return err == nil && pages == 0
}

// loadAccount takes the account over, if it is sure; else it is put again. What cannot be read of one that is derived
// is left.
func (r *run) loadAccount(l *extent.Loader, sure bool) error {
	a := r.Set.Arena.Account()
	if !r.Set.Payload {
		return nil
	}
	for _, p := range r.Set.Pools() {
		a.OpenPool(p.ID(), p.Alloc)
	}
	err := r.Meta.Load(account.Prefix, func(key, value []byte) (err error) {
		known := string(key) == account.Prefix // it says that the account is not sure
		switch {
		case known:
		case sure:
			known, err = a.Load(key, value)
		default:
			known = a.Leftover(key)
		}
		if !known && err == nil {
			l.Missing().Remove(key)
		}
		return err
	})
	switch {
	case err == nil || r.Wrong != nil:
		return nil
	case sure || r.found.Derived != "":
		err = metadata.Derivable(err)
	}
	return err
}

// level is a level of a volume of which there are pages.
type level struct {
	vol    uint32
	height uint8
	pages  int
}

// loadEntries books the entries of pages, and returns of which levels there are some. What there is of entries
// before each page has one is for the pages that come.
func (r *run) loadEntries(l *extent.Loader, parts bool) (levels []level, err error) {
	return levels, r.Meta.Load(node.EntryPrefix, func(key, value []byte) error {
		e, ok := node.DecodeEntry(key, value)
		switch {
		case !ok || e.Key.Vol >= directory.MaxVolumeID:
			return fmt.Errorf("the entry of a map page is damaged")
		case !parts:
			l.Missing().Leftover(key)
			return nil
		}
		if n := len(levels); n == 0 || levels[n-1].vol != e.Key.Vol || levels[n-1].height != e.Key.Level {
			levels = append(levels, level{vol: e.Key.Vol, height: e.Key.Level})
		}
		levels[len(levels)-1].pages++
		return nil
	})
}

// loadUpper reads the pages above the leaves, and makes the leaves absent by their entries.
func (r *run) loadUpper(l *extent.Loader, levels []level) error {
	for _, x := range levels {
		prefix, add := node.LevelPrefix(x.vol, x.height), l.AddNode
		if x.height == 0 {
			prefix, add = node.EntryKey(prefix), l.AddEntry
		}
		before := l.Nodes()
		if err := r.Meta.Load(string(prefix), add); err != nil {
			return err
		}
		if err := missing(x.pages - (l.Nodes() - before)); err != nil {
			return err
		}
	}
	return nil
}

// missing returns an error if so many pages are missing that have entries.
func missing(pages int) error {
	if pages == 0 {
		return nil
	}
	return fmt.Errorf("the checkpoints in meta/ are damaged: %d map pages are missing; restore meta/ from a copy made at the same time as the other files", pages)
}
