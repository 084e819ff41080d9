// When NVRAM is flushed and the mdisks are synced, so that pages of the write cache become free:
// package wcache knows which ones, and package nvlog the rules about a loss of power.

package array

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

const cycleInterval = 200_000_000

// cycles begins syncs of the mdisks and flushes of NVRAM. One sync and one flush run at a time.
type cycles struct {
	exec    block.Executor
	cache   *wcache.Cache
	gate    *admission.Gate
	back    *backend.Backend
	flusher *nvlog.Flusher
	fn      func()
	timer   bool // both are due in any case
}

// run frees what is written: it syncs the mdisks and flushes NVRAM. force starts them however
// little there is to free.
func (y *cycles) run(force bool) {
	c := y.cache
	n := c.Unsynced() + c.Unflushed()
	if n == 0 && !y.flusher.Wanted() { // nothing to free, as after a read
		return
	}
	due := force || c.Scarce() || y.gate.Waiters.N > 0
	if c.Unsynced() > 0 && due && !y.back.Syncing() && !y.back.Stopped() {
		c.BeginSync()
		y.back.Sync()
	}
	// Twice, for what a flush that took no time has retired.
	for range 2 {
		y.flusher.Poll(due && c.Unflushed() > 0)
	}
	if n > 0 && !due && !y.timer {
		y.timer = true
		y.exec.At(y.exec.Now()+cycleInterval, y.fn)
	}
}

// flushEnded hears that a flush has ended.
func (a *Array) flushEnded(end nvlog.Outcome) {
	if end.Err != nil {
		a.watchdog.watch()
	}
	if end.Turned {
		a.set.TellHealth()
	}
	a.cache.FlushEnded(end)
}
