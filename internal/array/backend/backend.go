// All mdisks of an executor, and what they tell upwards. The mdisks own their state; here is only
// which of them there are and what a whole batch or sync is.

package backend

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// Hooks are what a Backend tells its user. All of them are set, once, and called with the executor
// held. A hook may start operations; it may not submit. Nothing is told of an mdisk that is
// detached, but the end of its operations.
type Hooks struct {
	// Read: an operation of Mdisk.Read has ended, see IO.Err. The Op is reused after it.
	Read func(*Op)
	// Abandoned: an operation of Mdisk.Read has waited too long for a medium that is silent. It is
	// waited for no more, and its buffers are the caller's again.
	Abandoned func(*Op)
	// Unwanted reports whether nobody wants any more what an operation of Mdisk.Read reads.
	Unwanted func(*Op) bool
	// Written: an operation of Mdisk.Write has ended.
	Written func(*Op)
	// Turned: an mdisk has begun to fail or to be silent, or has ended that.
	Turned func(*Mdisk)
	// Overdue: an mdisk has not done for as long as anybody waits what they wait for. The status is
	// theirs.
	Overdue func(*Mdisk, block.Status)
	// Watch: Look has something to look at; it is to be called in a second, and then again while it
	// says so.
	Watch func()
	// Lost: an mdisk's sync has failed, and it redoes from now on: what was written since its last
	// good sync may be lost.
	Lost func(*Mdisk)
	// Synced: a Sync has ended. All that was written before it survives a loss of power, but for
	// what is Lost.
	Synced func()
	// Late: an mdisk has not ended its sync for so long that the Sync that it belongs to ends without
	// it, as those do that begin until it is not late any more.
	Late func(d *Mdisk, late bool)
	// Rewrite returns what a redo of the mdisk has to write, in its order: all that has been
	// written since its last good sync. False: something is on its way to the mdisk still, which
	// has to be written again, too.
	Rewrite func(*Mdisk) ([]Rewrite, bool)
	// Rewritten: the redo has ended, and what Rewrite returned survives a loss of power. Whether the mdisk
	// Works the user says, who knows of what there is no room for.
	Rewritten func(*Mdisk)
	// Step: something has come from outside and is done with. What it caused is to be done now.
	Step func()
}

// Backend is the mdisks of one executor.
//
// Invariant: waitedFor is the sum of the mdisks' lists of reads.
type Backend struct {
	exec  block.Executor
	rows  *nvlog.Rows
	hooks Hooks

	mdisks []*Mdisk // attached ones, by pool
	free   *Op
	// batch has what Submit hands to the media; spare is its other buffer.
	batch, spare []*block.IO
	stopped      bool // nothing is written by itself any more
	answered     uint64
	submitting   bool // what ends now ends inside Submit of its medium
	waitedFor    int  // reads that somebody waits for
	instant      []instant
	instantFn    func() // countInstant
	syncing      bool
	syncLeft     int // mdisks whose sync is under way, and one for the start of them
}

// New returns a back end without mdisks. Its counters are in rows.
func New(exec block.Executor, rows *nvlog.Rows, hooks Hooks) *Backend {
	b := &Backend{exec: exec, rows: rows, hooks: hooks}
	b.instantFn = b.countInstant
	return b
}

// Attach takes an mdisk in: it is looked at and synced with the others from now on.
func (b *Backend) Attach(d *Mdisk) {
	at, _ := slices.BinarySearchFunc(b.mdisks, d.pool+1, func(x *Mdisk, pool uint16) int { return cmp.Compare(x.pool, pool) })
	b.mdisks = slices.Insert(slices.Clone(b.mdisks), at, d) // who walks over them goes on with the old list
}

// Detach takes an mdisk out whose pool is gone. What it still does is counted no more.
func (b *Backend) Detach(d *Mdisk) {
	d.detached = true
	b.mdisks = slices.DeleteFunc(slices.Clone(b.mdisks), func(x *Mdisk) bool { return x == d })
}

// Stop has the back end begin nothing by itself any more: no try of a redo, no sync, and nothing that
// waits for the limits of its mdisk, which never ends then. Whoever writes stops, too; see Busy.
func (b *Backend) Stop() { b.stopped = true }

// Stopped reports whether Stop was called.
func (b *Backend) Stopped() bool { return b.stopped }

// Busy reports whether a sync is under way, or a medium has a transfer or a discard, of an mdisk that is not silent.
func (b *Backend) Busy() bool {
	now := b.exec.Now()
	for _, d := range b.mdisks {
		if (d.out > 0 || d.sync.since != 0) && !d.silent(now, Patience) {
			return true
		}
		if d.discards.out > 0 && now-d.discards.moved < Patience {
			return true
		}
	}
	return false
}

// Answered returns how many transfers, discards and syncs the media have ended.
func (b *Backend) Answered() uint64 { return b.answered }

// Pending reports whether there are operations for Submit.
func (b *Backend) Pending() bool { return len(b.batch) > 0 }

// WaitedFor returns the number of reads under way that somebody waits for.
func (b *Backend) WaitedFor() int { return b.waitedFor }

// Syncing reports whether a Sync is under way.
func (b *Backend) Syncing() bool { return b.syncing }
