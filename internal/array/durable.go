package array

import "github.com/arraysim/arraysim/internal/array/nvlog"

// What the array does for the rules of the package nvlog about a loss of power: which pages may go
// to the back end, and what becomes of those that nothing needs any more. A page that was
// overwritten or dropped waits in cache.cooling for a flush; then, or when it is destaged and its
// mdisk synced, it gets a tombstone and waits in cache.buried for the next one; then it is free.
type durable struct {
	// What the flush under way lets go.
	coolFlush, buryFlush []uint32
}

// flushedPage tells whether a page's record survives a loss of power, and those that have dropped
// sectors of it: without the drop, the back end would have to have these, too.
func (a *Array) flushedPage(i uint32) bool {
	return !a.payload || a.cache.nv.Descriptor(i).Seq() <= a.flusher.Flushed() &&
		(a.cache.pages[i].flags&flagDropped == 0 || a.cache.rare[i].dropped <= a.flusher.Flushed())
}

// flushBegun notes which pages the flush that begins lets go.
func (a *Array) flushBegun() {
	c := a.cache
	a.coolFlush, c.cooling = c.cooling, a.coolFlush[:0]
	a.buryFlush, c.buried = c.buried, a.buryFlush[:0]
}

// flushEnded lets these pages go, or has them wait for the next flush.
func (a *Array) flushEnded(end nvlog.Outcome) {
	c := a.cache
	if end.Err != nil {
		a.watch()
	}
	if end.Turned {
		a.tellHealth()
	}
	if end.Err != nil {
		c.cooling = append(c.cooling, a.coolFlush...)
		c.buried = append(c.buried, a.buryFlush...)
	} else {
		if end.Advanced {
			a.destageFlushed()
		}
		for _, i := range a.buryFlush {
			c.giveFree(i)
		}
		a.gaveRoom()
		for _, i := range a.coolFlush {
			a.bury(i, nvlog.Superseded)
		}
	}
	a.coolFlush, a.buryFlush = a.coolFlush[:0], a.buryFlush[:0]
}

// destageFlushed has pools look again for pages that may be destaged: more of them may now.
func (a *Array) destageFlushed() {
	for _, p := range a.pools {
		if p != nil && (p.part.dirty > 0 || p.anyDirect()) {
			a.needDestage(p)
		}
	}
}

// bury puts a tombstone on a page's descriptor: what it describes is elsewhere, or nothing.
func (a *Array) bury(i uint32, mark nvlog.Tombstone) {
	c := a.cache
	if !a.payload {
		c.giveFree(i)
		a.gaveRoom()
		return
	}
	c.nv.Retire(i, mark)
	c.pages[i].state = pageCooling
	c.buried = append(c.buried, i)
}

// cycle frees what is written: it syncs the mdisks and flushes NVRAM. One sync and one
// flush run at a time; force starts them however little there is to free.
func (a *Array) cycle(force bool) {
	c := a.cache
	n := len(a.written) + len(c.cooling) + len(c.buried)
	due := force || n >= len(c.pages)/64 || c.freeCount <= len(c.pages)/8 || a.wakes.waiters.N > 0
	if len(a.written) > 0 && due && !a.cycling {
		a.syncMdisks()
	}
	// Twice, for what a flush that took no time has buried.
	for range 2 {
		a.flusher.Poll(due && len(c.cooling)+len(c.buried) > 0)
	}
	if n > 0 && !due && !a.cycleTimer {
		a.cycleTimer = true
		a.exec.At(a.exec.Now()+cycleInterval, a.cycleFn)
	}
}

func (a *Array) syncMdisks() {
	a.cycling = true
	// What a redo will write again waits for it.
	a.cycleBatch = a.cycleBatch[:0]
	kept := a.written[:0]
	for _, i := range a.written {
		if a.redos == 0 || a.mdiskOf(i).redo == nil {
			a.cycleBatch = append(a.cycleBatch, i)
		} else {
			kept = append(kept, i)
		}
	}
	a.written = kept
	a.cycleLeft = 1
	for _, p := range a.pools {
		if p == nil {
			continue
		}
		for _, d := range p.mdisks {
			if d.unsynced && d.redo == nil {
				d.unsynced = false
				a.cycleLeft++
				d.medium.Sync(func(err error) {
					if err != nil {
						d.failing.err = err
						d.lost, a.cycleFailed = true, true
					}
					a.cycleSynced()
				})
			}
		}
	}
	a.cycleSynced()
}

func (a *Array) cycleSynced() {
	if a.cycleLeft--; a.cycleLeft > 0 {
		return
	}
	a.cycling = false
	if a.cycleFailed {
		a.cycleFailed = false
		lost := map[*mdisk][]uint32{}
		kept := a.cycleBatch[:0]
		for _, i := range a.cycleBatch {
			if d := a.mdiskOf(i); d.lost {
				lost[d] = append(lost[d], i)
			} else {
				kept = append(kept, i)
			}
		}
		a.cycleBatch = kept
		for _, p := range a.Pools() {
			for _, d := range p.mdisks {
				if d.lost {
					d.lost = false
					a.lose(d, lost[d])
				}
			}
		}
	}
	a.buryWritten(a.cycleBatch)
	a.cycleBatch = a.cycleBatch[:0]
	a.endStep()
}

// buryWritten buries pages that are on the back end for good.
func (a *Array) buryWritten(pages []uint32) {
	c := a.cache
	var keys [32]pageKey
	for len(pages) > 0 {
		n := min(len(pages), len(keys))
		// These pages and their slots left the processor's caches long ago. Nothing in the first
		// two loops waits for a miss, so that they are all under way at once.
		for j, i := range pages[:n] {
			keys[j] = c.pages[i].key
		}
		c.touch(keys[:n])
		for j, i := range pages[:n] {
			c.removeKnown(i, keys[j])
			pool := a.poolByID(keys[j].Pool())
			pool.meter()
			a.leavePartition(pool, i)
			a.bury(i, nvlog.Destaged)
		}
		pages = pages[n:]
	}
}
