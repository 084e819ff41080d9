// What survives a loss of power: flushes of NVRAM, one at a time, those who wait for one, and the
// state block that says up to where. The Flusher is its only owner.

package nvlog

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// Hooks are what a Flusher tells its user.
type Hooks struct {
	// Begun: a flush begins. What is in NVRAM now is durable when it ends.
	Begun func()
	// Ended: it has ended; nobody who waited for it has heard of that yet. It may use NVRAM, and
	// ask for a flush.
	Ended func(Outcome)
	// Heard: all who waited have heard, and the next flush has begun if somebody waits for one.
	Heard func()
}

// Outcome is how a flush has ended.
type Outcome struct {
	Err      error
	Advanced bool // more records survive a loss of power than before
	Turned   bool // the one before failed and this one did not, or the other way round
}

// Flusher makes NVRAM survive a loss of power and is the owner of the state block, which says what
// does. One flush runs at a time; all who ask while it does share the next. A flush that failed is
// repeated after RetryAfter, unless somebody asks before.
//
// Invariants: flushed is at most the number of the log's newest record, and never gets smaller.
// From before a flush begins until one has ended well the state says so: when it fails, the kernel
// may take for clean what is not on the medium, and the process may die before it hears of that.
type Flusher struct {
	nv         *NVRAM
	log        *Log
	exec       block.Executor
	hooks      Hooks
	retryAfter int64 // ns

	flushed    uint64 // number of the last record that survives a loss of power
	generation uint64 // number of the last batch of the meta store that is durable
	other      bool   // which of the two state blocks was written last
	unsaved    bool   // that one was written since the last flush began, so that only the other is durable
	waits      bool   // the state is to be written when the flush under way has ended
	failing    int64  // since when no flush has succeeded, 0: the last one did

	wanted  bool // somebody cannot go on without a flush
	running bool
	flying  bool   // NVRAM is being flushed; it is false, and running is not, while those who waited hear of it
	since   int64  // when the one under way began
	held    bool   // one failed; it is tried again when the timer says so
	ends    uint64 // flushes that have ended
	upTo    uint64 // newest record when the one under way began
	next    []func(error)
	now     []func(error) // those of the one under way
	endFn   func(error)
	last    func(error) // what the last flush calls, once it is asked for: none begins behind it
}

// NewFlusher returns the flusher of a region and its log. retryAfter is in nanoseconds.
func NewFlusher(nv *NVRAM, log *Log, exec block.Executor, retryAfter int64, hooks Hooks) *Flusher {
	f := &Flusher{nv: nv, log: log, exec: exec, hooks: hooks, retryAfter: retryAfter}
	f.endFn = f.ended
	return f
}

// Flushed returns the number of the last record that survives a loss of power.
func (f *Flusher) Flushed() uint64 { return f.flushed }

// FailingSince returns since when no flush has succeeded, 0 if the last one did.
func (f *Flusher) FailingSince() int64 { return f.failing }

// Silence returns for how long the flush that is under way has not ended, in nanoseconds; 0: none is.
func (f *Flusher) Silence(now int64) int64 {
	if !f.running {
		return 0
	}
	return now - f.since
}

// Ends returns how many flushes have ended.
func (f *Flusher) Ends() uint64 { return f.ends }

// Running reports whether a flush is under way.
func (f *Flusher) Running() bool { return f.running }

// Generation returns the number of the last batch of the meta store that is known to be durable.
func (f *Flusher) Generation() uint64 { return f.generation }

// SetGeneration notes that a batch of the meta store is durable.
func (f *Flusher) SetGeneration(n uint64) {
	f.generation = max(f.generation, n)
	f.save()
}

// save writes the state block: over the one that no flush has made durable, if there is one, so that
// the other one is whole and durable when the process dies within the write and then the power fails.
// Neither is touched while a flush is under way, which may read it half written.
func (f *Flusher) save() {
	if f.waits = f.flying; f.waits {
		return
	}
	if !f.unsaved {
		f.other, f.unsaved = !f.other, true
	}
	f.nv.saveState(f.other, f.flushed, f.generation, f.nv.region.Boot())
}

// After calls fn when all that is in NVRAM now survives a loss of power, or cannot be made to.
// Those who come while a flush is under way share the next one.
func (f *Flusher) After(fn func(error)) {
	if f.last != nil && !f.running { // the last one has ended
		f.exec.Post(func() { fn(errLast) })
		return
	}
	f.next = append(f.next, fn)
	if !f.running {
		f.start()
	}
}

var errLast = errors.New("NVRAM is no longer flushed: the array has stopped")

// Want notes that somebody cannot go on without a flush. Poll starts it.
func (f *Flusher) Want() { f.wanted = true }

// Wanted reports whether somebody waits for Poll to start a flush.
func (f *Flusher) Wanted() bool { return f.wanted }

// Poll starts a flush if somebody wants one, or if it is due, unless one is under way or held back.
func (f *Flusher) Poll(due bool) {
	if !f.running && !f.held && f.last == nil && (f.wanted || due) {
		f.start()
	}
}

func (f *Flusher) start() {
	f.running, f.wanted, f.since = true, false, f.exec.Now()
	f.now, f.next = f.next, f.now[:0]
	f.hooks.Begun()
	f.upTo = f.log.seq
	f.nv.setBegun(f.nv.region.Boot())
	f.flying = true
	f.nv.flush(f.endFn)
}

func (f *Flusher) ended(err error) {
	f.ends++
	f.flying, f.unsaved = false, f.unsaved && err != nil
	was := f.failing != 0
	switch {
	case err == nil:
		f.failing = 0
	case !was:
		f.failing = max(1, f.exec.Now())
	}
	advanced := err == nil && f.upTo > f.flushed
	if advanced {
		f.flushed = f.upTo
	}
	if advanced || f.waits {
		f.save()
	}
	if err == nil {
		f.nv.setBegun(0)
	}
	f.hooks.Ended(Outcome{Err: err, Advanced: advanced, Turned: was != (err != nil)})
	if err != nil {
		f.hold()
	}
	now := f.now
	f.now = nil
	for i, fn := range now {
		now[i] = nil
		fn(err)
	}
	f.now = now[:0]
	switch f.running = false; {
	case f.last != nil:
		f.startLast()
	case len(f.next) > 0:
		f.start()
	}
	f.hooks.Heard()
}

// hold has those wait a while who wait for a flush without asking for one.
func (f *Flusher) hold() {
	if f.held {
		return
	}
	f.held = true
	f.exec.At(f.exec.Now()+f.retryAfter, func() {
		f.held, f.wanted = false, true
		f.hooks.Heard()
	})
}

// Restore takes over what the state block says at a start.
func (f *Flusher) Restore(s Saved) {
	f.flushed, f.generation, f.other = s.Flushed, s.Generation, s.other
	if s.boot == 0 || s.unheard || f.nv.version == 1 { // which says nothing of flushes that have failed
		f.nv.region.Distrust()
	}
}

// FlushNow flushes and waits; only used during a start. The first flush of a process may hear of an
// error that the kernel met behind the death of the one before; the second writes everything.
func (f *Flusher) FlushNow() error {
	f.nv.setBegun(f.nv.region.Boot())
	err := f.nv.flushNow()
	if err != nil {
		err = f.nv.flushNow()
	}
	if err != nil { // the next start finds that no flush has ended well since one began
		return fmt.Errorf("the write cache file cannot be flushed: %w", err)
	}
	f.unsaved = false
	f.nv.setBegun(0)
	return nil
}

// Truncate makes what was replayed durable and ends the log behind it. generation is that of the
// meta store. It waits.
func (f *Flusher) Truncate(generation uint64) error {
	f.log.clearHead()
	f.nv.setNewest(f.log.seq) // before the flush, behind which nobody knows that what is behind the head was undone
	// Only then may the state say so: it can survive alone. It is durable before a page is retired for
	// one that is newer: the next start might undo that one's record.
	if err := f.FlushNow(); err != nil {
		return err
	}
	f.settle(generation)
	return f.FlushNow()
}

// Upgrade says in a region of version 2 that the meta store may have entries of version 3, before it has: a program of
// version 2 would not keep them. It waits.
func (f *Flusher) Upgrade() error {
	if f.nv.version != 2 {
		return nil
	}
	f.nv.writeHeader()
	return f.FlushNow()
}

// Commission makes the state after a recovery durable, of which the meta store has a checkpoint,
// and brings a region of an older format to the present one. It waits.
func (f *Flusher) Commission(generation uint64) error {
	f.settle(generation)
	if f.nv.version != Version {
		f.nv.writeHeader()
	}
	if f.nv.Miscounted() { // the meta store has an account again that was derived
		f.nv.SetMiscounted(false)
	}
	return f.FlushNow()
}

// settle states that everything is durable.
func (f *Flusher) settle(generation uint64) {
	f.flushed, f.generation = f.log.seq, generation
	f.nv.setNewest(f.log.seq)
	f.save()
}

// Last flushes once more, behind the flush that is under way, and calls done when none is any more.
// It writes nothing to NVRAM but that it has begun, and that it has ended well; the number of a batch
// that ends meanwhile is written behind it. Who has waited shares it, and who comes later hears of an
// error.
func (f *Flusher) Last(done func(error)) {
	if f.last = done; !f.running {
		f.startLast()
	}
}

func (f *Flusher) startLast() {
	now := f.next
	f.running, f.flying, f.next, f.since = true, true, nil, f.exec.Now()
	f.nv.setBegun(f.nv.region.Boot())
	f.nv.flush(func(err error) {
		f.ends++
		f.flying, f.unsaved = false, f.unsaved && err != nil
		if f.waits {
			f.save()
		}
		if err == nil {
			f.nv.setBegun(0)
		}
		late := f.next
		f.running, f.next = false, nil
		for _, fn := range now {
			fn(err)
		}
		for _, fn := range late { // it has not what they came with
			fn(errLast)
		}
		f.last(err)
	})
}
