package array

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// When NVRAM is flushed and the mdisks are synced, so that pages of the write cache become free:
// package wcache knows which ones, and package nvlog the rules about a loss of power.

const cycleInterval = 200_000_000

// durable is what the array knows of the meta store's batches.
type durable struct {
	gen     uint64 // number of the last batch that went to the meta store
	stored  digest
	inDoubt []block.KV // entries of the batches that have failed since one was durable
}

// flushEnded hears that a flush has ended.
func (a *Array) flushEnded(end nvlog.Outcome) {
	if end.Err != nil {
		a.watch()
	}
	if end.Turned {
		a.tellHealth()
	}
	a.cache.FlushEnded(end)
}

// cycle frees what is written: it syncs the mdisks and flushes NVRAM. One sync and one
// flush run at a time; force starts them however little there is to free.
func (a *Array) cycle(force bool) {
	c := a.cache
	n := c.Unsynced() + c.Unflushed()
	due := force || c.Scarce() || a.gate.Waiters.N > 0
	if c.Unsynced() > 0 && due && !a.back.Syncing() {
		c.BeginSync()
		a.back.Sync()
	}
	// Twice, for what a flush that took no time has buried.
	for range 2 {
		a.flusher.Poll(due && c.Unflushed() > 0)
	}
	if n > 0 && !due && !a.cycleTimer {
		a.cycleTimer = true
		a.exec.At(a.exec.Now()+cycleInterval, a.cycleFn)
	}
}
