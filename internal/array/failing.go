// What the array does when an mdisk (package backend), a checkpoint or a flush of NVRAM fails. What
// is in NVRAM stays there and is tried again; those who wait for room meanwhile get an error in
// time, which loses nothing.

package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/checkpoint"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

const (
	retryTime = backend.RetryTime
	patience  = backend.Patience
	// hurry is when a page of a map is asked for elsewhere that does not come: long before those end who wait for it.
	hurry = patience / 4
)

// watchdog looks every second, while something fails or somebody waits for room or for an mdisk,
// for those who have waited too long.
type watchdog struct {
	set     *pool.Set
	engine  *request.Engine
	flusher *nvlog.Flusher
	ckpt    *checkpoint.Checkpointer
	lookFn  func()
	due     bool // it looks within a second
}

// newWatchdog returns a watchdog of which nobody waits yet, and that hears later of the other
// parts.
func newWatchdog(set *pool.Set) *watchdog {
	w := &watchdog{set: set}
	w.lookFn = w.look
	return w
}

// watch has it look in a second, if it does not anyway.
func (w *watchdog) watch() {
	if w.due {
		return
	}
	w.due = true
	block.Call(w.set.Exec, w.set.Exec.Now()+retryTime, w.lookFn)
}

// look asks each owner of something that many wait for whether it fails, and ends who has waited
// for it too long.
func (w *watchdog) look() {
	w.due = false
	now := w.set.Exec.Now()
	trouble := w.lookCheckpoint(now)
	trouble = w.lookFlush(now) || trouble
	trouble = w.lookMaps(now) || trouble
	if w.set.Link.Waiters() > 0 || w.set.Back.WaitedFor() > 0 || w.engine.Settling() || w.engine.LogStarves() {
		w.watch()
	}
	for _, p := range w.set.Pools() {
		if !p.SpaceWait.Empty() { // a discard or a transfer that keeps the space may be stuck
			request.EndIdle(&p.SpaceWait, now-patience, block.MediumWrite)
			trouble = true
			w.watch()
		}
	}
	failing, absent := w.set.Back.Look(now)
	if absent {
		w.engine.EndShared(now - patience)
	}
	if trouble || failing { // else to look changes nothing, not even the order of events
		w.engine.EndStep()
	}
}

// lookCheckpoint ends who waits for a checkpoint to make room in the log. It reports whether there
// is something wrong with checkpoints.
func (w *watchdog) lookCheckpoint(now int64) bool {
	trouble := w.ckpt.Since() != 0
	if w.engine.Broken() != "" { // nothing brings the log or the partitions room any more
		trouble = true
		for _, p := range w.set.Pools() {
			w.engine.EndWaiting(p, block.Hardware, now)
		}
		w.engine.EndLogWaiters(block.Hardware)
	}
	if w.ckpt.Since() != 0 {
		if w.ckpt.Silence(now) >= patience {
			w.ckpt.Late()
			w.endAll(block.NoSpace, now)
		}
		w.watch()
	}
	return trouble
}

// lookFlush does that for a flush of NVRAM: without it nothing can go to the back end, and the log
// cannot be cut.
func (w *watchdog) lookFlush(now int64) bool {
	since, silent := w.flusher.FailingSince(), w.flusher.Silence(now) >= patience
	if since == 0 && !silent {
		return false
	}
	w.watch()
	if silent || now-since >= patience {
		w.endAll(block.Hardware, now)
	}
	return true
}

// lookMaps has a page of a map that does not come read elsewhere, and ends in the end who waits for it. It reports whether
// there is one.
func (w *watchdog) lookMaps(now int64) bool {
	d := w.set.Arena.Demand()
	if d.Reads() == 0 {
		return false
	}
	w.watch()
	d.Hurry(now - hurry)
	return d.Late(now - patience)
}

// endAll ends all who have waited too long.
func (w *watchdog) endAll(s block.Status, now int64) {
	for _, p := range w.set.Pools() {
		w.engine.EndWaiters(p, s, now-patience)
	}
	w.engine.EndLogWaiters(s)
}

// health describes what fails now, a line each.
func (w *watchdog) health() (lines []string) {
	now := w.set.Exec.Now()
	for _, p := range w.set.Pools() {
		for _, d := range p.Mdisks {
			if silent := d.Silent(now); silent > 0 {
				lines = append(lines, fmt.Sprintf("mdisk %s of pool %s: nothing was read or written for %d s; the array waits for it", d.Name(), p.Name(), silent/1_000_000_000))
			}
			if since, err := d.Failing(); since != 0 {
				lines = append(lines, fmt.Sprintf("mdisk %s of pool %s: writes have failed for %d s: %v; make room or replace the disk; the array retries", d.Name(), p.Name(), (now-since)/1_000_000_000, err))
			}
		}
	}
	if w.ckpt.Silence(now) >= patience {
		lines = append(lines, "the checkpoint cannot be written; make room in the file system of the data folder")
	}
	if d := w.set.Arena.Demand(); d.Reads() > 0 && now-d.Since() >= patience {
		lines = append(lines, fmt.Sprintf("a page of a volume's map has not been read for %d s, and reads and writes there are medium errors meanwhile; look at the disk of the data folder; the array waits for it", (now-d.Since())/1_000_000_000))
	}
	if silent := w.flusher.Silence(now); silent >= patience {
		lines = append(lines, fmt.Sprintf("the disk of the data folder has not answered for %d s, and nothing goes to the mdisks meanwhile; the array waits for it", silent/1_000_000_000))
	} else if since := w.flusher.FailingSince(); since != 0 {
		lines = append(lines, fmt.Sprintf("flushes of NVRAM have failed for %d s, and nothing goes to the mdisks meanwhile; replace the disk of the data folder; the array retries", (now-since)/1_000_000_000))
	}
	return lines
}

// Health describes what fails now, a line each; none: all works.
func (a *Array) Health() []string {
	lines := append(a.watchdog.health(), a.Leftovers()...)
	if failed := a.arena.Demand().Failed(); failed > 0 {
		lines = append(lines, fmt.Sprintf("pages of volumes' maps could not be read %d times, and no copy has them as they were written: reads and writes there are medium errors; restore the data folder from a copy", failed))
	}
	if wrong := a.arena.Account().Wrong(); wrong != nil {
		lines = append(lines, fmt.Sprintf("%v, which was stored so; restart the array, which derives the account from the maps", wrong))
	}
	if a.meta.Silent() {
		lines = append(lines, "a copy of the checkpoints does not answer, and pages of volumes' maps are read from the other one; look at its disk")
	}
	switch one, each := a.meta.Damaged(); {
	case each:
		lines = append(lines, "each copy of the checkpoints is damaged, and none could be rebuilt from the other one; what either has can be read; make a copy of the data folder while the array is stopped, before both lose the same")
	case one:
		lines = append(lines, "a copy of the checkpoints is damaged, and what it lacks is read from the other one; restart the array, which rebuilds the copy")
	}
	if a.meta.Alone() {
		lines = append(lines, "a copy of the checkpoints is not used: its disk has failed, or it could not be rebuilt, as the log says; repair that and restart the array, which rebuilds the copy")
	}
	if why := a.engine.Broken(); why != "" {
		lines = append(lines, "changes are refused: "+why)
	}
	return lines
}
