package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/block"
)

// What the array does when an mdisk (package backend), a checkpoint or a flush of NVRAM fails. What is
// in NVRAM stays there and is tried again; those who wait for room meanwhile get an error in time,
// which loses nothing.
const (
	retryTime = backend.RetryTime
	patience  = backend.Patience
)

// look asks each owner of something that many wait for whether it fails, and ends who has waited for
// it too long.
func (a *Array) look() {
	a.watching = false
	now := a.exec.Now()
	trouble := a.lookCheckpoint(now)
	trouble = a.lookFlush(now) || trouble
	if a.gate.Waiters.N > 0 || a.back.WaitedFor() > 0 || !a.engine.settling.waiting.Empty() {
		a.watch()
	}
	failing, absent := a.back.Look(now)
	if absent {
		a.engine.endShared(now - patience)
	}
	if trouble || failing { // else to look changes nothing, not even the order of events
		a.engine.endStep()
	}
}

// lookCheckpoint ends who waits for a checkpoint to make room in the log. It reports whether there is
// something wrong with checkpoints.
func (a *Array) lookCheckpoint(now int64) bool {
	trouble := a.ckpt.Since() != 0
	if a.engine.broken != "" { // nothing brings the log or the partitions room any more
		trouble = true
		for _, p := range a.Pools() {
			a.engine.endWaiting(p, block.Hardware, now)
		}
		a.engine.endLogWaiters(block.Hardware)
	}
	if since := a.ckpt.Since(); since != 0 {
		if now-since >= patience {
			a.ckpt.Late()
			a.endAll(block.NoSpace, now)
		}
		a.watch()
	}
	return trouble
}

// lookFlush does that for a flush of NVRAM: without it nothing can go to the back end, and the log
// cannot be cut.
func (a *Array) lookFlush(now int64) bool {
	since := a.flusher.FailingSince()
	if since == 0 {
		return false
	}
	a.watch()
	if now-since >= patience {
		a.endAll(block.Hardware, now)
	}
	return true
}

// endAll ends all who have waited too long.
func (a *Array) endAll(s block.Status, now int64) {
	for _, p := range a.Pools() {
		a.engine.endWaiters(p, s, now-patience)
	}
	a.engine.endLogWaiters(s)
}

// Health describes what fails now, a line each; none: all works.
func (a *Array) Health() (lines []string) {
	now := a.exec.Now()
	for _, p := range a.Pools() {
		for _, d := range p.Mdisks {
			if silent := d.Silent(now); silent > 0 {
				lines = append(lines, fmt.Sprintf("mdisk %s of pool %s: nothing was read or written for %d s; it is waited for", d.Name(), p.Name(), silent/1_000_000_000))
			}
			if since, err := d.Failing(); since != 0 {
				lines = append(lines, fmt.Sprintf("mdisk %s of pool %s: writing fails for %d s: %v; make room or mend the disk, it is tried again", d.Name(), p.Name(), (now-since)/1_000_000_000, err))
			}
		}
	}
	if a.ckpt.Since() != 0 && now-a.ckpt.Since() >= patience {
		lines = append(lines, "the checkpoint cannot be written; make room in the file system of the data folder")
	}
	if since := a.flusher.FailingSince(); since != 0 {
		lines = append(lines, fmt.Sprintf("flushing NVRAM fails for %d s, and nothing goes to the mdisks meanwhile; mend the disk of the data folder, it is tried again", (now-since)/1_000_000_000))
	}
	return append(lines, a.troubles()...)
}
