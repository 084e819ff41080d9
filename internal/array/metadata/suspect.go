// A page that is damaged in one copy is found when it is read, or by a check. The next start reads all of each copy
// then, and rebuilds it.

package metadata

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// keySuspect is the key of what says so, in all copies:
//
//	v    1 u8
const keySuspect = "v"

// suspect is whether a copy has something that is not as the books say.
type suspect struct {
	seen   bool // it was found since the start
	torn   bool // each has, and none could be made of them
	marked bool // the store says so
}

// Damaged reports whether a copy is known to have something that is not as the books say, and whether each of them has, so that
// what one lacks the other one may lack, too.
func (s *suspect) Damaged() (one, each bool) { return s.seen, s.torn }

// mark adds to a batch what has the store say so, or no longer say so.
func (s *suspect) mark(entries []block.KV) []block.KV {
	if s.seen == s.marked {
		return entries
	}
	e := block.KV{Key: []byte(keySuspect)}
	if s.marked = s.seen; s.seen {
		e.Value = []byte{1}
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(x block.KV) bool { return string(x.Key) == keySuspect })
	return append(entries, e)
}

// isSuspect returns why a copy of a meta store is not to be taken that says that one is damaged: nil if it does not, or
// is whole.
func isSuspect(store block.MetaStore, least uint64) error {
	if v, err := store.Get([]byte(keySuspect)); err != nil || v == nil {
		return err
	}
	return verify(store, least)
}
