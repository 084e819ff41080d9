// Failures, silence and absence of an mdisk, and how long anybody waits for it. Silence is looked
// for once a second, by the array's watchdog.

package backend

import (
	"cmp"
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// What an mdisk does not do: writes and syncs that fail are tried again, less and less often; reads
// that a medium does not answer are given up; and who waits for an mdisk hears in time that it is
// silent, away, or fails. What they had in mind stays in NVRAM, so that loses nothing.
const (
	// RetryTime is the time until something that failed is tried again, and from one Look to the
	// next.
	RetryTime    = 1_000_000_000
	maxRetryTime = 30_000_000_000
	// Patience is what a command waits for an mdisk that fails: less than the 30 s after which
	// Linux aborts it.
	Patience = 20_000_000_000
	// AbortPatience is the same for a command that was aborted: open-iscsi waits 15 s for the
	// answer to an abort, and then drops the session.
	AbortPatience = 5_000_000_000
)

// failing is the state of an mdisk whose writes fail.
type failing struct {
	since int64 // 0: it works
	err   error
}

// Failing returns since when writes and syncs of the mdisk fail and the last error; 0: it works.
func (d *Mdisk) Failing() (since int64, err error) { return d.failing.since, d.failing.err }

// Failed notes that a write or a sync failed, and returns how long to wait until it is tried again.
func (d *Mdisk) Failed(err error) (wait int64) {
	f := &d.failing
	d.failures++
	now := max(1, d.b.exec.Now())
	f.err = err
	if f.since == 0 {
		f.since = now
		d.turned()
		d.b.hooks.Watch()
	}
	return BackOff(now - f.since)
}

// BackOff returns how long to wait until something is tried again that has failed for so long.
func BackOff(long int64) int64 { return min(max(RetryTime, long/2), maxRetryTime) }

// ReadFailed notes that a read failed for good.
func (d *Mdisk) ReadFailed() { d.failures++ }

// FailsStill notes that an mdisk that fails does so for that reason alone, since another has gone.
func (d *Mdisk) FailsStill(err error) {
	if d.failing.since != 0 {
		d.failing.err = err
	}
}

// Works notes that a write or a redo succeeded. While the mdisk redoes, a write does not mean that it works.
func (d *Mdisk) Works() {
	if d.failing.since != 0 && d.redo == nil {
		d.failing = failing{}
		d.turned()
	}
}

// speaks notes that the mdisk has ended something, and perhaps is not silent any more.
func (d *Mdisk) speaks() {
	if d.told && !d.silent(d.b.exec.Now(), Patience) {
		d.told = false
		d.turned()
	}
}

// turned tells that the mdisk has begun to fail or to be silent, or has ended that, while there is
// somebody who cares.
func (d *Mdisk) turned() {
	if !d.detached {
		d.b.hooks.Turned(d)
	}
}

// Silent returns for how long the mdisk has work and has ended none of it, if that is longer than
// anybody waits; else 0.
func (d *Mdisk) Silent(now int64) int64 {
	switch {
	case !d.silent(now, Patience):
		return 0
	case d.sync.since != 0 && (d.out == 0 || d.sync.since < d.progress):
		return now - d.sync.since
	}
	return now - d.progress
}

// silent reports whether the mdisk has transfers and has ended none of them for so long, or a sync.
func (d *Mdisk) silent(now, long int64) bool {
	return d.out > 0 && now-d.progress >= long || d.sync.since != 0 && now-d.sync.since >= long
}

// Look looks at all mdisks for who has waited too long. It returns whether anything is wrong, and
// whether an mdisk does not take what others, too, may have in the cache for it.
func (b *Backend) Look(now int64) (trouble, absent bool) {
	for _, d := range b.mdisks {
		if d.detached {
			continue
		}
		t, a := d.look(now)
		trouble, absent = trouble || t, absent || a
	}
	return trouble, absent
}

func (d *Mdisk) look(now int64) (trouble, absent bool) {
	h := &d.b.hooks
	if !d.told && d.silent(now, Patience) {
		d.told = true
		d.turned()
	}
	trouble = d.failing.since != 0
	if trouble || d.out > 0 || d.discards.out > 0 || d.sync.since != 0 { // what nobody waits for may never end, either
		h.Watch()
	}
	if d.sync.since != 0 && now-d.sync.since >= lateTime && !d.sync.late && d.redo == nil && !d.b.stopped {
		d.beLate()
	}
	if d.silent(now, Patience) {
		trouble, absent = true, true
		h.Overdue(d, block.MediumWrite)
	}
	if d.silent(now, AbortPatience) && d.abandon(now) {
		trouble = true
	}
	// What is pinned for it may be all that its pool can have of the cache.
	if d.offline && now-d.away >= Patience {
		trouble, absent = true, true
		h.Overdue(d, block.Offline)
	}
	if f := &d.failing; f.since != 0 && now-f.since >= Patience {
		s := block.MediumWrite
		if errors.Is(f.err, block.ErrFull) {
			s = block.NoSpace
		}
		absent = true
		h.Overdue(d, s)
	}
	return trouble, absent
}

// abandon gives the reads up that have waited too long for a medium that is silent, if it gives
// their buffers back. What it still answers to them is only counted. It reports whether there were
// any.
func (d *Mdisk) abandon(now int64) bool {
	m, ok := d.medium.(block.Abandoner)
	if !ok {
		return false
	}
	// Of a copy of the list: who hears of it may begin something else.
	silent := d.silent(now, Patience)
	overdue := slices.DeleteFunc(slices.Clone(d.reads), func(x *Op) bool {
		if x.handed < 0 {
			return true
		}
		if d.b.hooks.Unwanted(x) {
			return now-x.handed < AbortPatience
		}
		return !silent || now-x.handed < Patience
	})
	slices.SortStableFunc(overdue, func(x, y *Op) int { return cmp.Compare(x.started, y.started) })
	for _, x := range overdue {
		if !x.waited { // it has ended meanwhile
			continue
		}
		d.forget(x)
		x.done = nil
		d.discards.given = append(d.discards.given, x)
		m.Abandon(&x.IO)
		d.failures++
		d.b.hooks.Abandoned(x) // x may be in use again when it returns
	}
	return len(overdue) > 0
}
