// How an array comes to rest, and stops.

package array

import "errors"

// lifetime is since when an array runs, and who waits for it to come to rest.
type lifetime struct {
	started int64
	drained []func() // who waits for nothing to be dirty any more
}

// Drain destages everything that is dirty and calls done when nothing is.
func (a *Array) Drain(done func()) {
	a.drained = append(a.drained, done)
	a.cache.Drain(true)
	a.engine.EndStep()
	a.checkDrained()
}

// Dirty returns the bytes that are not on the back end yet.
func (a *Array) Dirty() int64 {
	n := int64(0)
	for _, v := range a.set.Vols {
		if v != nil {
			n += v.Cached.Dirty()
		}
	}
	return n
}

// Ended returns a number that grows with all that a Stop waits for one after the other: what mdisks answer, flushes of NVRAM,
// and batches of checkpoints. As long as it grows, a Stop makes progress.
func (a *Array) Ended() uint64 { return a.back.Answered() + a.flusher.Ends() + a.meta.Ends() }

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

// StopWaiting has changes fail from now on that can only be kept when NVRAM can be flushed again,
// instead of waiting for that. It comes before Stop, and before whoever waits for changes.
func (a *Array) StopWaiting() { a.ckpt.Stop() }

// Stop has the array begin nothing by itself any more, waits for what its mdisks have, and writes a last
// checkpoint; the caller may then close the store. Dirty data stays in NVRAM, where the next start
// finds it; call Drain first to have none. Requests under way must have ended. An mdisk that is silent
// is waited for as long as anybody waits for one: what it answers later changes nothing. So is a page of a map that does not
// come.
func (a *Array) Stop(done func(error)) {
	a.engine.Stop()
	a.back.Stop()
	a.ckpt.Stop()
	a.arena.Rest() // the next start removes what is left
	for a.arena.Collectable() {
		a.arena.Collect(1 << 20)
	}
	reads := a.arena.Demand()
	if reads.Timely() > 0 || a.ckpt.Running() || a.engine.Filling() || a.back.Busy() || a.flusher.Running() {
		a.exec.At(a.exec.Now()+1_000_000, func() { a.Stop(done) })
		return
	}
	reads.Close()
	last := func(err error) {
		a.flusher.Last(func(last error) {
			a.meta.Close() // what waits for its turn is refused
			a.afterBatches(func() { done(errors.Join(err, last)) })
		})
	}
	if a.engine.Broken() != "" { // the next start has all that it needs in the log
		last(errors.New(a.engine.Broken()))
		return
	}
	a.ckpt.Last(last)
}

// afterBatches calls fn when the meta store has no batch under way: its end writes to NVRAM.
func (a *Array) afterBatches(fn func()) {
	if a.meta.Busy() {
		a.exec.At(a.exec.Now()+1_000_000, func() { a.afterBatches(fn) })
		return
	}
	fn()
}
