// Package checkpoint puts what the log's records changed since the last checkpoint into the meta
// store, in durable batches, and moves the log's tail with the last of them.
//
// A checkpoint is fuzzy: nodes of the maps are written as they are when their turn comes, a few at
// a time, between commands. As edits are blind, replaying the log from where the checkpoint began
// brings every node to the same end.
//
// Batches are bounded, because the meta store's are. After a crash between two of them the old
// position counts, over nodes of which some are newer: replaying from there ends in the same map,
// too. What has to be written before what for that is extent.Checkpoint's, the order and the books
// of batches are metadata.Ledger's; the batches and the positions are owned here.
//
// # Keys
//
//	c        seq u64, tail u64: where replay begins; last u64: the last record it may have
//	r, n, l  roots and pages of the maps, and the entries of pages, see extent and node
//	a        the account of space, see account
//
// Integers in values are little endian. What else a checkpoint has the user adds: see Hooks.Add.
//
// # Concurrency
//
// Everything runs with the executor held. There is no goroutine and no wall clock here.
package checkpoint

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// BatchBytes bounds a batch: far below the 4 GiB that Pebble takes, and what it takes of memory.
const BatchBytes = 32 << 20

// stepNodes is what Config.StepNodes is without another value.
const stepNodes = 48

// Hooks are what a Checkpointer asks and tells its user.
type Hooks struct {
	// Add adds what is not of the maps to the batch with the new position.
	Add func(put func(key, value []byte))
	// Sent: a batch is on its way to the meta store. Since says so until it has ended.
	Sent func()
	// Turned: a batch takes too long, or one that did has ended.
	Turned func()
	// Trimmed: the log has room again.
	Trimmed func()
	// Failed: a checkpoint cannot be had, and the log will not get room any more.
	Failed func(why string)
	// Stepped: a batch has ended outside of a step of the user.
	Stepped func()
}

// Config is what a Checkpointer works with.
type Config struct {
	Exec    block.Executor
	Log     *nvlog.Log
	Flusher *nvlog.Flusher
	Meta    *metadata.Ledger
	Maps    *extent.Checkpoint
	// BatchBytes is what a batch has, about; it is no more than the meta store takes.
	BatchBytes int
	// StepNodes is the number of nodes that one step writes: 48, some 50 us of work.
	StepNodes int
	// RetryAfter is when a flush that failed is asked for again, in nanoseconds.
	RetryAfter int64
	Hooks      Hooks
}

// Checkpointer writes checkpoints, one at a time. It is the only one that moves the log's tail.
//
// Invariant: base is the position that the meta store has. While a checkpoint runs, the log has all
// records from base on.
type Checkpointer struct {
	Config
	running  bool
	stopping bool // nothing is tried again
	sealed   bool // the batch with the new position is complete, and may be on its way or committed
	first    bool // the one that ends a recovery
	batch    []block.KV
	bytes    int        // of it
	out      []block.KV // a batch that is complete
	at       Position   // of the one that runs
	base     Position
	count    uint64 // checkpoints that were committed
	since    int64  // when the batch went to the meta store, 0: none is there
	late     bool   // the user was told that it takes too long
}

// New returns a checkpointer that knows of no position yet: see Load and Start.
func New(cfg Config) *Checkpointer {
	cfg.BatchBytes = min(cfg.BatchBytes, cfg.Meta.Limit())
	if cfg.StepNodes == 0 {
		cfg.StepNodes = stepNodes
	}
	return &Checkpointer{Config: cfg}
}

// Running reports whether a checkpoint is under way.
func (c *Checkpointer) Running() bool { return c.running }

// Count returns how many were committed since the start that gave the log room.
func (c *Checkpointer) Count() uint64 { return c.count }

// Since returns since when a batch is on its way to the meta store, or kept in NVRAM, 0: none is.
func (c *Checkpointer) Since() int64 { return c.since }

// Silence returns for how long the meta store has not answered while a batch waits for it, in
// nanoseconds. What the batch waits for NVRAM, and for those ahead of it, does not count.
func (c *Checkpointer) Silence(now int64) int64 {
	asked := c.Meta.Asked()
	if c.since == 0 || asked == 0 {
		return 0
	}
	return now - max(c.since, asked)
}

// Stop has the one that runs fail instead of waiting for a flush: the next start has all that it
// needs in the log.
func (c *Checkpointer) Stop() { c.stopping = true }

// Stopping reports whether Stop was called.
func (c *Checkpointer) Stopping() bool { return c.stopping }

// Due begins a checkpoint when the log is half full, or when it is forced or the log starves, and
// there is anything to write.
func (c *Checkpointer) Due(force bool) {
	if c.running || c.Meta.Closed() {
		return
	}
	if used := c.Log.Used(); used < c.Log.Size()/2 && !((force || c.Log.Starved()) && used > 0) {
		return
	}
	c.begin()
	c.Exec.At(c.Exec.Now(), c.steps)
}

func (c *Checkpointer) begin() {
	c.running, c.sealed = true, false
	c.at.Seq, c.at.Tail = c.Log.BeginCheckpoint()
	c.batch, c.bytes = nil, 0
	c.Maps.Begin(c.put)
}

func (c *Checkpointer) steps() {
	if !c.fill(c.StepNodes) {
		c.Exec.At(c.Exec.Now(), c.steps)
		return
	}
	c.Flusher.After(c.commit)
}

// commit commits a batch when NVRAM was flushed behind the last edit in it.
func (c *Checkpointer) commit(err error) {
	if err != nil {
		if c.stopping {
			c.fail("NVRAM could not be flushed: %v", err)
			return
		}
		c.Exec.At(c.Exec.Now()+c.RetryAfter, func() { c.Flusher.After(c.commit) })
		return
	}
	c.since = max(1, c.Exec.Now())
	c.Hooks.Sent()
	c.Meta.Commit(c.complete, func(err error) {
		c.since = 0
		if c.late {
			c.late = false
			c.Hooks.Turned()
		}
		if err != nil {
			c.fail("the checkpoint could not be written: %v", err)
			return
		}
		c.done()
		if c.running {
			c.Exec.At(c.Exec.Now(), c.steps)
		}
		c.Hooks.Stepped()
	})
}

// fail ends a checkpoint that cannot be had, and with it all changes.
func (c *Checkpointer) fail(format string, err error) {
	c.running, c.out = false, nil
	c.Maps.Abort()
	c.Hooks.Failed(fmt.Sprintf(format, err))
}

func (c *Checkpointer) complete() []block.KV { return c.out }

// done hears that the batch is durable.
func (c *Checkpointer) done() {
	c.out = nil
	c.Maps.Durable()
	if !c.sealed {
		return
	}
	if c.base != c.at || c.Log.Tail() != c.at.Tail {
		c.base = c.at
		c.Log.Trim(c.at.Tail)
		c.Hooks.Trimmed()
		c.count++
	}
	c.running = c.Maps.MoreRemovals()
}

// Late says that a batch does not come back. Turned hears of it once.
func (c *Checkpointer) Late() {
	if !c.late {
		c.late = true
		c.Hooks.Turned()
	}
}

// First commits the state after a recovery, before anything is served: with a new run of sequence
// numbers. It waits.
func (c *Checkpointer) First() error {
	c.begin()
	for c.first = true; c.running; c.done() {
		for !c.fill(1 << 20) {
		}
		if err := c.Meta.CommitNow(c.out); err != nil {
			return fmt.Errorf("the first checkpoint could not be written: %w", err)
		}
	}
	return nil
}

// Last begins a checkpoint and commits its batches, without a pause and without trying again.
// Preconditions: none is running.
func (c *Checkpointer) Last(done func(error)) {
	c.begin()
	c.last(done)
}

func (c *Checkpointer) last(done func(error)) {
	for !c.fill(1 << 20) {
	}
	c.Flusher.After(func(err error) {
		if err != nil {
			done(err)
			return
		}
		c.Meta.Commit(c.complete, func(err error) {
			if err != nil {
				done(err)
				return
			}
			if c.done(); c.running {
				c.last(done)
				return
			}
			done(nil)
		})
	})
}
