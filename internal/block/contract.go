package block

import (
	"errors"
	"fmt"
)

// Timer is a pending call that a Clock made.
type Timer interface {
	// Stop withdraws the call; it tells whether it was still pending.
	Stop() bool
}

// Clock is the only source of time in the deterministic core. Now is in
// nanoseconds from an arbitrary origin and never goes back. It may stand still while the executor is
// held, but for what was posted: what begins and ends within one hold has taken no time, and a call that
// is set from Now comes early by as much as the hold has lasted. Who does not hold the executor may be told
// a time from before, by a hold at the most. Calls with equal
// times run in the order in which they were set, on the executor.
type Clock interface {
	Now() int64
	At(t int64, fn func()) Timer
}

// Executor serialises one I/O group. The daemon's is [Live] (wall clock), the
// simulator's is [Virtual] (an event queue).
//
// Lock/Unlock bracket a batch of work from outside. Post hands fn to the
// executor from any goroutine, also from one that holds it; posted functions run
// in order, after the present batch.
type Executor interface {
	Clock
	Lock()
	Unlock()
	Post(fn func())
}

// Asider is an Executor that has more than one processor work for it: what moves bytes, and needs
// nothing of the core meanwhile, is done beside it.
type Asider interface {
	Executor
	// Aside has work, which moves so many bytes, called while the executor is not held, and then done
	// while it is. Preconditions: the executor is held.
	Aside(bytes uint64, work, done func())
	// Long reports whether so many bytes are to have a turn of the executor before them and one behind.
	Long(bytes uint64) bool
	// Crowded reports whether somebody else is likely to want the executor now. Where nobody is, what
	// is short is done sooner by who holds it.
	Crowded() bool
}

// KV is one entry of a MetaStore batch; a nil Value deletes the key.
type KV struct {
	Key   []byte
	Value []byte
}

// MetaStore keeps checkpoints and the objects of an array: an ordered map with
// atomic, durable batches of bounded size.
type MetaStore interface {
	// Limit is how many bytes the keys and values of a batch may have together: at the least 16 MiB. It is
	// constant. A store names what it can apply atomically: its own limit, or that of whoever keeps it.
	Limit() int
	// Commit applies the batch atomically and durably and then calls done on the
	// executor, never from inside. The slices belong to the store until then. Batches are applied in
	// the order of the calls. Of a batch above Limit nothing is applied, and the error is ErrBatch. After
	// any other error nobody knows whether the batch was applied; those behind it may be all the same.
	Commit(batch []KV, done func(error))
	// CommitNow is Commit that waits; only used while an array is being opened.
	CommitNow(batch []KV) error
	// Get returns the value of a key, nil if there is none. The value belongs to the caller. It sees what
	// was committed before. It waits, and is only used while an array is being opened: who needs few keys
	// of many does not load them all.
	Get(key []byte) ([]byte, error)
	// Read is Get while an array runs: it calls done on the executor, never from inside, and sees what was
	// committed before the call. The key belongs to the store until then, the value to the caller.
	Read(key []byte, done func(value []byte, err error))
	// Load calls fn for every entry whose key has the prefix, in key order.
	// Only used while an array is being opened; key and value are valid in fn only.
	Load(prefix []byte, fn func(key, value []byte) error) error
}

// MetaCopies is a MetaStore that keeps several copies of everything. Commit goes to all of them, and is done when it is
// durable in all that still work.
type MetaCopies interface {
	MetaStore
	Copies() int
	// Choose makes copy i the one that Load reads; a copy that cannot be read fails then.
	Choose(i int)
	Chosen() int
	// ReadFrom is Read of copy i. A copy that lacks batches, see Behind, may give an older value.
	ReadFrom(i int, key []byte, done func(value []byte, err error))
	// Behind reports whether a copy lacks something that Commit has ended well for. Alone, it looks like one that is whole.
	Behind() bool
	// Renew makes copy i anew; why says in a few words what was wrong with it. entries calls fn for all that it is to have, in
	// any order, and may read copies meanwhile: copy i is as it was until the new one is whole and durable. If that fails,
	// or entries does, the files of the copy stay as they were, it is left alone, and Behind says so.
	Renew(i int, why error, entries func(fn func(key, value []byte) error) error)
}

// ErrFull is the error of a write for which the store has no room now.
var ErrFull = errors.New("the file system of the data folder is full")

// ErrFenced is the error of all that is asked of a store whose array has a new owner. It is final: this
// process must not serve the array any more.
var ErrFenced = errors.New("the array has a new owner, and this process must no longer serve it")

// ErrBatch is the error of a batch that is larger than the MetaStore takes.
var ErrBatch = errors.New("the batch is larger than the meta store accepts at once")

// CheckBatch returns nil, or ErrBatch with both sizes if a batch is larger than a limit in bytes.
func CheckBatch(batch []KV, limit int) error {
	n := 0
	for _, e := range batch {
		n += len(e.Key) + len(e.Value)
	}
	if n > limit {
		return fmt.Errorf("%w: %d bytes, and not %d", ErrBatch, limit, n)
	}
	return nil
}

// ErrSize is the error of a Region that was made with another size.
var ErrSize = errors.New("it was created with a different size")

// Store makes the parts of an array's persistence. Opening is synchronous: it
// happens before the array runs.
type Store interface {
	// Medium opens or creates the mdisk with this name and size in bytes.
	Medium(name string, size uint64) (Medium, error)
	// FindMedium returns an error, which says how to mend it, unless there is an mdisk of this name. It
	// changes nothing. Who knows that there was one asks before Medium, which would make one that is empty.
	FindMedium(name string) error
	// Vacant calls done on the executor, with an error that says what to do about it if the store has an
	// mdisk of this name. It changes nothing. Who makes one of a name that is new to him asks first: there
	// may be another array's, whose other parts are not there.
	Vacant(name string, done func(error))
	// MakeMedium makes an mdisk that no pool has, so that Medium then opens it without waiting for a
	// disk. What a crash left under the name is removed first. It calls done on the executor; on an
	// error nothing is left of the mdisk.
	MakeMedium(name string, size uint64, done func(error))
	// RemoveMedium ends an mdisk and deletes its bytes, then calls done on the executor. Nothing uses
	// it any more, and until done nobody makes one of this name.
	RemoveMedium(name string, done func(error))
	// Region opens or creates the NVRAM with these parts; fresh tells whether it holds nothing yet,
	// and is all zeros. What it takes is allocated: a write there never lacks room.
	Region(name string, l RegionLayout) (r Region, fresh bool, err error)
	Meta() (MetaStore, error)
	// Payload tells whether bytes are kept. A store that keeps none answers
	// reads with zeros, and the array copies no data for it.
	Payload() bool
	// Close ends all that the store has handed out. The executor is not held, and
	// nothing is under way.
	Close() error
}
