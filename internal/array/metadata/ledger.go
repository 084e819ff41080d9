// Package metadata keeps the books of an array's meta store: batches go there one at a time, each
// with a number and with a digest of all that the store holds then, so that a start knows whether
// it has everything, and of several copies which is the newest that is whole. What the entries mean
// is the array's business.
//
// # Who owns what
//
//	Ledger   the order of batches, their numbers, the digest, what is in doubt    ledger.go digest.go checksums.go
//	copies   which copy is read, and that the others are made anew                copies.go
//	reads    of an entry once more, held against what the books say of it         read.go
//	rescue   pages that a copy has which is about to be made anew                 rescue.go
//	suspect  that a copy has a damaged page, for the next start                   suspect.go
//	Sweep    how far a scrub of all entries is                                    sweep.go
//
// # Keys
//
// The first byte of a key says whose entry it is. Each owner alone reads and writes its entries;
// whoever needs another one adds a row here.
//
//	a  what pages refer to in an extent   account/encode.go
//	b  the list of bad sectors            pool.KeyBad, backend/bad.go
//	c  the position where replay begins   checkpoint/batch.go
//	g  number and digest of the batch     digest.go, here; not in the digest
//	l  the entry of a page of a map       node/entry.go; its checksum is digest.go's
//	n  a page of a map                    extent.KeyNode, node/encode.go; in the digest up to version 2
//	o  the document of the objects        directory/directory.go
//	r  the root of a map                  extent.KeyRoot, node/root.go
//	v  a copy is to be read as a whole    suspect.go, here
//
// # Concurrency
//
// Everything runs with the executor held. There is no goroutine and no wall clock here.
package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

var le = binary.LittleEndian

// Hooks are what a Ledger asks and tells its user.
type Hooks struct {
	// Durable: the batch of this number is durable. Who waited for it has not heard of that yet.
	Durable func(gen uint64)
	// Keep remembers outside of the store that the batch of this number is durable, and calls done
	// when that survives a loss of power, or cannot be made to. Only then the batch counts as durable.
	Keep func(gen uint64, done func(error))
	// Again returns what an entry is now of which nobody knows whether the store has it: the entry
	// itself is good unless it speaks of something that was taken back.
	Again func(e block.KV) []block.KV
}

// Ledger is a meta store with its books.
//
// Invariants: one batch is under way at a time. What held says is what the store has if the last
// batch that has ended well was its last; of the entries in doubt it may have each or not, and the
// next batch has all of them.
type Ledger struct {
	store   block.MetaStore
	exec    block.Executor
	hooks   Hooks
	gen     uint64 // number of the last batch that went to the store
	leap    uint64 // numbers that the next batch leaves out
	held    digest
	parts   bool // pages are verified by their entries
	derived bool // the account of space is derived
	suspect
	doubt   []block.KV          // entries of the batches that have failed since one was durable
	sent    []block.KV          // of the batch that is under way
	watched map[string]*watched // entries that sweeps are reading, by key
	queue   []batch             // that wait for their turn
	busy    bool
	closed  bool
	ends    uint64
	asked   int64 // when the batch that is under way went to the store, 0: the store has none to answer

	damaged []error // of the copies that are no good, by their number

	lookups map[string]*lookup // entries that are being read, by key, where there are copies
	silent  []bool             // copies that have not answered one of these for long, and nothing since
}

// batch is one that waits for its turn.
type batch struct {
	fill func() []block.KV
	done func(error)
}

// New returns the books of a store of which nothing is known yet: Get, Load, Check.
func New(store block.MetaStore, exec block.Executor, hooks Hooks) *Ledger {
	return &Ledger{store: store, exec: exec, hooks: hooks}
}

// Generation returns the number of the last batch that went to the store.
func (l *Ledger) Generation() uint64 { return l.gen }

// Limit returns how many bytes a batch may have that Commit is asked for: a fraction of what the
// store takes, so that the entries in doubt of another one have room beside it.
func (l *Ledger) Limit() int { return l.store.Limit() / 4 }

// Busy reports whether a batch is under way.
func (l *Ledger) Busy() bool { return l.busy }

// Asked returns since when the store has not answered for a batch, 0: it has none to answer for.
func (l *Ledger) Asked() int64 { return l.asked }

// InDoubt reports whether nobody knows which value the store has of a key: a batch with it has
// failed, and none was durable since.
func (l *Ledger) InDoubt(key string) bool {
	return slices.ContainsFunc(l.doubt, func(e block.KV) bool { return string(e.Key) == key })
}

// Ends returns how many batches have ended, well or not.
func (l *Ledger) Ends() uint64 { return l.ends }

// Closed reports whether Close was called.
func (l *Ledger) Closed() bool { return l.closed }

// Close has what waits for its turn refused, and all that comes.
func (l *Ledger) Close() { l.closed = true }

var errStopped = errors.New("the array has stopped")

// Commit commits the batch that fill returns when those before it are durable or have failed:
// number and digest of a batch say what the store has had until then. done gets block.ErrBatch when
// it is larger than the store takes; then the store has nothing of it.
func (l *Ledger) Commit(fill func() []block.KV, done func(error)) {
	l.queue = append(l.queue, batch{fill, done})
	if !l.busy {
		l.next()
	}
}

func (l *Ledger) next() {
	next := l.queue[0]
	l.queue[0] = batch{}
	l.queue = l.queue[1:]
	l.busy = true
	marked := l.marked
	entries := l.mark(l.settleDoubt(next.fill()))
	unbook := l.held.undo(entries)
	sealed := l.seal(entries)
	l.sends(entries)
	gen := l.gen
	ended := func(err error) {
		l.ends++
		l.sent = nil
		switch {
		case err == nil:
			l.doubt = nil
			l.hooks.Durable(gen)
		case errors.Is(err, block.ErrBatch): // what was in doubt before still is
			l.marked = marked
			unbook()
		default:
			l.doubt = entries
			unbook()
		}
		next.done(err)
		if l.busy = len(l.queue) > 0; l.busy {
			l.next()
		}
	}
	if l.closed {
		l.exec.Post(func() { ended(errStopped) })
		return
	}
	l.asked = max(1, l.exec.Now())
	l.store.Commit(sealed, func(err error) {
		l.asked = 0
		// A copy that lacks the batch looks like one that is whole when the others cannot be read.
		if err == nil && l.Alone() {
			l.hooks.Keep(gen, ended)
			return
		}
		ended(err)
	})
}

// CommitNow is Commit that waits; only used while an array is being opened.
func (l *Ledger) CommitNow(entries []block.KV) error {
	return l.store.CommitNow(l.seal(l.mark(entries)))
}

// seal adds the next number and the digest to a batch.
func (l *Ledger) seal(entries []block.KV) []block.KV {
	for _, e := range entries {
		l.held.set(e.Key, e.Value)
	}
	l.gen += 1 + l.leap
	l.leap = 0
	return append(slices.Clip(entries), block.KV{Key: []byte(keyGen), Value: l.held.stamp(l.gen, l.parts).encode()})
}

// settleDoubt adds to a batch what is in doubt since one has failed: the store may have it or not,
// and the digest must be right in either case. Entries of a checkpoint are good as they were: the
// log has all that came behind the position before, and nothing overwrites that until a checkpoint
// is durable.
func (l *Ledger) settleDoubt(entries []block.KV) []block.KV {
	if len(l.doubt) == 0 {
		return entries
	}
	has := map[string]bool{}
	for _, e := range entries {
		has[string(e.Key)] = true
	}
	entries = slices.Clip(entries)
	for _, e := range l.doubt {
		if !has[string(e.Key)] {
			entries = append(entries, l.hooks.Again(e)...)
		}
	}
	return entries
}

// Get returns the value of a key, nil if there is none, and books it. It waits; only used while an
// array is being opened.
func (l *Ledger) Get(key string) ([]byte, error) {
	value, err := l.store.Get([]byte(key))
	if err == nil && value != nil {
		l.held.set([]byte(key), value)
	}
	return value, err
}

// Load calls fn for the entries whose keys have a prefix, and books them. Where pages are verified by parts, the
// entries of pages come before pages, and a page that is not as its entry says is read from another copy; see loadPages.
// It waits; only used while an array is being opened.
func (l *Ledger) Load(prefix string, fn func(key, value []byte) error) error {
	if l.parts && prefix != "" && prefix[0] == keyPage {
		return l.loadPages([]byte(prefix), false, fn)
	}
	return l.store.Load([]byte(prefix), func(k, v []byte) error {
		l.held.set(k, v)
		if page, sum, ok := pageOf(k, v); ok && l.parts {
			l.held.expect(page, sum)
		}
		return fn(k, v)
	})
}

// Parts reports whether the store is one whose pages are verified by parts. It waits; it is asked before anything is
// loaded.
func (l *Ledger) Parts() (bool, error) {
	s, err := stampOf(l.store)
	l.parts = s.parts
	return s.parts, err
}

// VerifyByParts says that behind the next batch each page has its entry: pages are verified by parts from then on.
func (l *Ledger) VerifyByParts() { l.parts = true }

// Check compares what was read, which has to be all that there is but for pages that are verified by parts, with the number and the digest
// of the last batch. least is the number that NVRAM knows of. It is no error that the account is another one where that is
// derived; else it is one of Derivable.
func (l *Ledger) Check(least uint64, derived bool) error {
	if v, err := l.Get(keySuspect); err != nil {
		return err
	} else if v != nil { // all copies were read, see FromBest
		l.marked = true
	}
	want, err := stampOf(l.store)
	l.parts, l.gen, l.derived = want.parts, want.gen, derived
	held := l.held.stamp(want.gen, want.parts)
	if want.gen == 0 {
		want = held
	}
	switch {
	case err != nil:
		return err
	case l.gen < least:
		return fmt.Errorf("the checkpoints in meta/ have lost their last %d changes; restore meta/ from a copy made at the same time as the other files", least-l.gen)
	case want.sum != held.sum:
		return fmt.Errorf("the checkpoints in meta/ are damaged: parts of them are missing or older than the rest; restore meta/ from a copy made at the same time as the other files")
	case want.account != held.account && !derived:
		return Derivable(errors.New("parts of it are missing or older than the rest"))
	}
	return nil
}
