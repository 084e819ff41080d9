// Package rados keeps an array in a pool of a Ceph cluster: [Store] is a block.Store over [Cluster],
// which librados implements, and a simulated cluster for tests in virtual time. An array has a
// namespace of its own in the pool:
//
//	array            the head: format, epoch, mdisks; the lock of the owner          head.go owner.go
//	mI.N             extent N of mdisk number I: 4 MiB of data, then their checksums  medium.go
//	mI.map           which extents of it there are                                    objectmap.go
//	NAME, NAME.P.N   the log: its layout, and 4 MiB of part P of the NVRAM            region.go
//	meta, meta.N     the root of the metadata, and its 16 shards                      meta.go
//	meta.E.B.N       part N of batch B of the owner of epoch E                        meta.go
//	reserve.N        room for metadata in a full pool                                 reserve.go
//
// # Ownership
//
// One process owns the array: it holds the lock of the head and has raised the epoch that the head, the
// log and the metadata carry as an attribute, by which all writes to them are guarded. Who takes over
// from an owner that has died has the cluster refuse that one's operations first (blocklist), waits for
// the newest map of the OSDs, breaks the lock, raises the epoch and stamps the objects with it. What is
// written to mdisks is not guarded, for guards cost; there the blocklist does it.
//
// An owner that hears that it was replaced is fenced for good: everything ends with block.ErrFenced.
//
// # Concurrency
//
// What the contracts in package block have on the executor is there. Operations end on the cluster's
// side, where Store.mu guards all that is under way; who waits hears of it on the executor.
package rados

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/arraysim/arraysim/internal/block"
)

// The kinds of logs.
const (
	// LogLocal keeps the NVRAM in a file of this node: fast, and lost with the node.
	LogLocal = "local"
	// LogReplicated keeps the NVRAM in the pool: a write is acknowledged when the cluster has it.
	LogReplicated = "replicated"
)

// Regions makes the NVRAM of a local log.
type Regions interface {
	Region(name string, l block.RegionLayout) (r block.Region, fresh bool, err error)
	io.Closer
}

// Options configure a Store.
type Options struct {
	Log string
	// Local is where a local log is; the store closes it.
	Local Regions
	// Home identifies the place of a local log: an array whose log is elsewhere is not opened.
	Home string
	// Self describes this process to who finds the array taken.
	Self Owner
	// Dead reports whether an owner that still has the lock is known not to run any more. Then the store
	// takes over; nil: nobody ever is.
	Dead func(Owner) bool
	// Cookie tells the locks of one process from those of others. It has no blanks.
	Cookie string
	// ID is the array that the place of this process belongs to: another one is not opened, and none is made. "": any
	// may be, and if there is none, one with NewID is made.
	ID, NewID string
	// Lease is for how long an owner that nobody hears of keeps the array, in nanoseconds; 0: for ever. Clock is what it is
	// measured with, monotonic and in nanoseconds, and running while the machine sleeps; nil: the executor's.
	Lease int64
	Clock func() int64
	// Standby: an array that another process has is waited for, until Cancel, which may be nil, returns true.
	// Where it does before Opened is called, what the start and the recovery wait for ends with ErrCanceled.
	Standby bool
	Cancel  func() bool
	// Name is what an owner calls this process that hands it the array (HandTo); "": nothing. Eager, which may be nil, says
	// that the owner is about to leave: a standby looks often then.
	Name  string
	Eager func() bool
	// Lost is called once, on the executor, when the array has a new owner: this process must not serve it any more. It
	// may be nil.
	Lost func(error)
	// Region and Layout are what the replicated log will be opened with: a standby refuses another one's size before it takes
	// an array away from anybody. "": that is not known yet.
	Region string
	Layout block.RegionLayout
	// Wall is the time of the day in nanoseconds since 1970; nil: it is not asked. Where it goes further than Clock does
	// while a lease is good, the lease is over: Clock may have stood still.
	Wall func() int64
	// Waits hears every now and then of what a standby, or a start that has no answer, waits for. It may be nil, and must
	// not call the store.
	Waits func(Standby)
	// Patience is for how long a start and a stop wait for room in a full pool, and for answers, in nanoseconds; 0: a minute.
	Patience int64
	// Reserve is room in the pool that is kept for metadata to find when it is full, in bytes; 0: none.
	Reserve int
	// Notice hears in one line of what takes long, while the store opens, and of trouble later; it may be nil. Nothing is
	// held while it is called.
	Notice func(line string)
}

// Store is an array's persistence in RADOS.
type Store struct {
	exec    block.Executor
	cluster Cluster
	opt     Options

	epoch  string // of this owner, as the attribute has it; constant once the store is open
	cookie string // of the lock
	locks  int    // tries to get it

	fenced  atomic.Bool  // the array has a new owner
	over    atomic.Bool  // the store was closed
	cut     atomic.Bool  // interrupted, for who does not hold mu
	until   atomic.Int64 // when the lease has run out, if it is not renewed
	overAt  atomic.Int64 // the same by Options.Wall
	evicted []fenced     // by this start
	taken   int          // leases that this start has tried to take away
	legacy  legacy

	mu          sync.Mutex
	dataLane    lane   // guarded by mu
	logLane     lane   // guarded by mu
	leaseLane   lane   // guarded by mu
	reserveLane lane   // guarded by mu
	lease       lease  // guarded by mu
	heir        string // for Close; guarded by mu
	released    bool   // the lease is not renewed any more; guarded by mu
	from        int64  // when the epoch was raised, by the time of the day; guarded by mu
	replaced    int    // former owners that this start has fenced; guarded by mu
	locked      bool   // this process has the lock; guarded by mu
	started     bool   // the start has ended, and nobody may cancel it any more; guarded by mu
	// interrupted: the start was canceled, and waits for nothing any more; guarded by mu.
	interrupted bool
	flights     []*Op    // under way while the start may be canceled; guarded by mu
	abandoned   bool     // Close has waited for long enough; guarded by mu
	endings     uint64   // operations that have ended, those of the lease apart; guarded by mu
	answers     answers  // guarded by mu
	standby     Standby  // as it was told last; written by the start, or with Trouble by tick; guarded by mu
	lines       []string // to be said when mu is free; guarded by mu
	lost        error    // the store was fenced or closed: nothing begins any more; guarded by mu
	stopping    bool     // nothing waits for room for long any more; guarded by mu
	closing     bool     // what nobody waits for ends; guarded by mu
	endedFn     func(*Op)

	ends     []ending // to be called on the executor; guarded by mu
	spare    []ending // only touched on the executor
	draining bool     // the executor was told of ends; guarded by mu
	drainFn  func()

	head    head // guarded by mu
	headers headWriter
	freeX   *xfer                 // guarded by mu
	maps    map[uint64]*objectMap // by the mdisk's number; guarded by mu
	// mapsLate is why object maps are not as they are to be, and metaLate why metadata are not where; guarded by mu.
	mapsLate, metaLate trouble
	meta               *meta
	reserve            reserve // guarded by mu
}

var _ block.Store = (*Store)(nil)

// ErrClosed is the error of all that is asked of a store that was closed.
var ErrClosed = errors.New("the store is closed")

// trouble is what the cluster does not do.
type trouble struct {
	what  string // "": there is none
	since int64  // the time of the day at which it began, in nanoseconds since 1970
}

// ending is a call that is due on the executor: of a transfer's Done, or of a function.
type ending struct {
	io  *block.IO
	fn  func(error)
	err error
}

// Open takes possession of the array in a namespace, which it creates if there is none. The cluster
// belongs to the store from here on, also if Open fails. Preconditions: the executor is not held.
func Open(exec block.Executor, cluster Cluster, opt Options) (*Store, error) {
	if opt.Patience == 0 {
		opt.Patience = 60e9
	}
	s := &Store{maps: map[uint64]*objectMap{}, exec: exec, cluster: cluster, opt: opt}
	s.dataLane = lane{maxOps: dataOps, maxBytes: dataBytes}
	s.logLane = lane{maxOps: logOps, maxBytes: logBytes}
	s.leaseLane = lane{maxOps: leaseOps, maxBytes: logBytes}
	s.reserveLane = lane{maxOps: 1, maxBytes: reservePart}
	s.endedFn, s.drainFn = s.ended, s.drain
	s.standby = Standby{Epoch: -1, Age: -1}
	if err := s.acquire(); err != nil {
		_ = s.Opened() // what has canceled it is in err
		failed := cluster.Close()
		if errors.Is(err, ErrCanceled) { // what has no answer was why
			return nil, err
		}
		return nil, also(err, failed)
	}
	return s, nil
}

func (s *Store) notice(format string, args ...any) {
	if s.opt.Notice != nil {
		s.opt.Notice(fmt.Sprintf(format, args...))
	}
}

// say is notice for those who hold mu: the line is said when they leave. Preconditions: mu is held.
func (s *Store) say(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *Store) enter() { s.mu.Lock() }

// leave lets others in, says what was to be said, and tells the executor of what has ended meanwhile.
func (s *Store) leave() {
	tell := len(s.ends) > 0 && !s.draining
	if tell {
		s.draining = true
	}
	lines := s.lines
	s.lines = nil
	s.mu.Unlock()
	for _, line := range lines {
		s.notice("%s", line)
	}
	if tell {
		s.exec.Post(s.drainFn)
	}
}

// post has a function called on the executor. Preconditions: mu is held.
func (s *Store) post(fn func(error), err error) {
	s.ends = append(s.ends, ending{fn: fn, err: err})
}

// drain calls what is due, on the executor, in its order.
func (s *Store) drain() {
	for {
		s.mu.Lock()
		list := s.ends
		s.ends = s.spare[:0]
		s.draining = len(list) > 0
		s.mu.Unlock()
		if s.spare = list; len(list) == 0 {
			return
		}
		for i := range list {
			e := list[i]
			list[i] = ending{}
			if e.io != nil {
				e.io.Err = e.err
				e.io.Done(e.io)
				continue
			}
			e.fn(e.err)
		}
	}
}

// judge draws the consequences of an operation's error. Preconditions: mu is held.
func (s *Store) judge(op *Op) {
	if errors.Is(op.Err, ErrGuard) && !op.trial || errors.Is(op.Err, block.ErrFenced) {
		s.fence(op.Err)
		op.Err = s.lost
	}
}

// fence ends the store for good. Preconditions: mu is held.
func (s *Store) fence(why error) {
	if s.lost != nil {
		return
	}
	s.lost = block.ErrFenced
	if !errors.Is(why, block.ErrFenced) {
		s.lost = fmt.Errorf("%w: %w", block.ErrFenced, why)
	}
	s.fenced.Store(true)
	if s.opt.Lost != nil {
		s.post(s.opt.Lost, s.lost)
	}
}

// settle has the executor do what was posted.
func (s *Store) settle() {
	s.exec.Lock()
	defer s.exec.Unlock()
}

// Payload is true: RADOS keeps everything.
func (s *Store) Payload() bool { return true }

// ID returns which array it is.
func (s *Store) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head.ID
}

// Epoch returns the number of this ownership, for what shows it.
func (s *Store) Epoch() string { return s.epoch }

// Waited returns how many operations had to wait for the window so far. Safe for concurrent use.
func (s *Store) Waited() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dataLane.waited + s.logLane.waited
}

// StopWaiting says that the array stops: from now on what is to be written waits for room in a full pool only for so long as
// Options say, and then fails with ErrFull. Nothing is lost by that: the log has it. Safe for concurrent use.
func (s *Store) StopWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
}

// Close waits for what is under way, gives the lock back and ends the connection. A fenced store has
// nothing to wait for, nor one whose start was canceled, or is canceled meanwhile: who opens the array next has that one's
// operations refused. So it is when nothing ends for as long as Options.Patience says; that is an error, as
// an object map is that the cluster does not take.
// Preconditions: the executor is not held.
func (s *Store) Close() error {
	s.enter()
	was := s.lost
	s.closing = true
	if was != ErrClosed {
		s.bound(s.endings, s.now())
	}
	s.leave()
	if was == ErrClosed {
		return ErrClosed
	}
	idle := func() bool {
		return s.lost != nil || s.abandoned || s.dataLane.ops+s.logLane.ops+s.reserveLane.ops == 0 && s.headers.idle() && (s.meta == nil || s.meta.idle())
	}
	if s.wait(idle); s.meta != nil {
		s.enter()
		if !s.abandoned {
			s.meta.finish()
		}
		s.leave()
		s.wait(idle)
	}
	s.settle() // who waited hears of the end
	err := s.finishMaps(idle)
	s.enter()
	if s.lost == nil && !s.abandoned { // nothing is under way: the next owner has nobody to fence
		s.head.Address = ""
		s.change(nil, nil)
	}
	s.leave()
	s.wait(idle)
	s.mu.Lock()
	s.released = true // a renewal that is under way must not find the lock free, and a successor behind it
	s.mu.Unlock()
	s.over.Store(true) // nor somebody else this process serving
	s.wait(func() bool { return s.lost != nil || s.abandoned || s.leaseLane.ops == 0 })
	s.until.Store(0)
	s.overAt.Store(0)
	s.nameHeir()
	s.mu.Lock()
	fenced := s.lost != nil && !s.interrupted
	s.mu.Unlock()
	if !fenced { // where that has no answer, bound ends it
		err = also(err, wrap("the array's lock cannot be released", s.cluster.Unlock(headObject, lockName, s.cookie)))
	}
	s.enter()
	interrupted, abandoned := s.interrupted, s.abandoned
	s.lost, s.started, s.flights = ErrClosed, true, nil
	s.leave()
	failed := s.cluster.Close()
	switch {
	case abandoned: // what has no answer is said once
		err = fmt.Errorf("%w for %d s: operations in progress are left to the next start of the array", ErrUnanswered, s.opt.Patience/1e9)
	case interrupted:
		err = nil
	default:
		err = also(err, failed)
	}
	if s.opt.Local != nil {
		err = also(err, s.opt.Local.Close())
	}
	return err
}
