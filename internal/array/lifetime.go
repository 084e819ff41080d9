package array

import "errors"

// Drain destages everything that is dirty and calls done when nothing is.
func (a *Array) Drain(done func()) {
	a.drained = append(a.drained, done)
	a.cache.Drain(true)
	a.endStep()
	a.checkDrained()
}

// Dirty returns the bytes that are not on the back end yet.
func (a *Array) Dirty() int64 {
	n := int64(0)
	for _, v := range a.vols {
		if v != nil {
			n += v.cached.Dirty()
		}
	}
	return n
}

func (a *Array) checkDrained() {
	// What an offline mdisk pins stays; the NVRAM keeps it.
	if !a.cache.Draining() || !a.cache.Drained() {
		return
	}
	a.cache.Drain(false)
	done := a.drained
	a.drained = nil
	for _, fn := range done {
		a.exec.Post(fn)
	}
}

// Stop writes a last checkpoint; the caller may then close the store. Dirty data stays in
// NVRAM, where the next start finds it; call Drain first to have none. Requests
// under way must have ended.
func (a *Array) Stop(done func(error)) {
	a.stopped = true
	for a.arena.Collect(1 << 20) {
	}
	if a.ckpt.running || a.back.Syncing() || a.flusher.Running() {
		a.exec.At(a.exec.Now()+1_000_000, func() { a.Stop(done) })
		return
	}
	last := func(err error) {
		a.flusher.Last(func(last error) {
			a.meta = nil // what waits for its turn is refused
			a.afterBatches(func() { done(errors.Join(err, last)) })
		})
	}
	if a.broken != "" { // the next start has all that it needs in the log
		last(errors.New(a.broken))
		return
	}
	a.beginCheckpoint()
	a.lastCheckpoint(last)
}

// afterBatches calls fn when the meta store has no batch under way: its end writes to NVRAM.
func (a *Array) afterBatches(fn func()) {
	if a.metaBusy {
		a.exec.At(a.exec.Now()+1_000_000, func() { a.afterBatches(fn) })
		return
	}
	fn()
}

// lastCheckpoint commits the batches of the checkpoint that has begun, without a pause and without trying again.
func (a *Array) lastCheckpoint(done func(error)) {
	for !a.fillBatch(1 << 20) {
	}
	a.flusher.After(func(err error) {
		if err != nil {
			done(err)
			return
		}
		a.commitMeta(a.checkpointBatch, func(err error) {
			if err != nil {
				done(err)
				return
			}
			if a.batchDone(); a.ckpt.running {
				a.lastCheckpoint(done)
				return
			}
			done(nil)
		})
	})
}
