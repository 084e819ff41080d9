package tier

import (
	"github.com/arraysim/arraysim/internal/hostcache"
)

// sole tells whether nobody but the host's flash has what is dirty.
func (w *world) sole() bool { return w.taker > 0 || len(w.d.State().Peers) == 0 }

func (w *world) eventFlashFails() {
	c := w.cards[0]
	sole := w.sole()
	c.broken, w.troubled = true, sole
	w.steps(5 + w.r.IntN(20))
	w.v.RunUntil(w.v.Now() + w.r.Int64N(400_000_000))
	w.settle()
	c.broken, w.troubled = false, false
	w.v.RunUntil(w.v.Now() + 2_000_000_000)
	w.steps(20)
	w.note("flash failed: sole %v, state %d, %+v, %s", sole, w.d.local().state, w.d.marks, w.d.dump())
	if w.r.IntN(2) == 0 {
		w.mayLose = w.mayLose || sole && w.d.local().state != memberPresent && !w.d.clean()
		w.crash()
		w.reboot()
	}
}

func (w *world) eventFlashTired() {
	c := w.cards[0]
	c.tired, w.troubled = true, w.sole()
	w.steps(20)
	w.settle()
	if w.r.IntN(2) == 0 {
		w.v.RunUntil(w.v.Now() + 1_000_000_000)
	}
	w.steps(10)
	w.checkAll(false)
	w.troubled = false
	w.mayLose = w.mayLose || w.sole() && !w.d.clean() && !w.d.marks.owed && w.d.local().state != memberPresent
	w.crash()
	c.tired = w.r.IntN(2) == 0
	if c.tired {
		c.broken = true // nothing can be opened with it
		present := w.present()
		w.mayLose = w.mayLose || present[0] && w.sole()
		w.takeOverAny(present)
		return
	}
	w.reboot()
}

func (w *world) eventFlashGone() {
	sole := w.sole()
	w.mayLose = w.mayLose || sole
	w.cards[0].broken = true
	w.steps(30)
	w.checkAll(false)
	w.crash()
	w.takeOverAny(w.present())
}

// eventFlashGivenUp: a front end knows that the flash is gone.
func (w *world) eventFlashGivenUp() {
	w.mayLose = w.mayLose || w.sole()
	w.d.LoseFlash()
	w.steps(30)
	w.checkAll(false)
	w.crash()
	w.reboot()
}

// eventBadSectors: sectors of the host's flash cannot be read. What has no other copy fails until it is
// written, at two later starts too.
func (w *world) eventBadSectors() {
	if w.taker > 0 {
		return
	}
	c := w.cards[0]
	w.troubled, w.a.failing = true, 100 // nothing is destaged
	w.steps(15)
	w.settle()
	w.a.failing = 0
	w.v.RunUntil(w.v.Now() + 10_000_000)
	w.troubled = false
	c.bad = map[int]bool{}
	w.badSince = w.nextID
	sole := w.sole()
	n := 1 + w.r.IntN(4)
	for s, frame := range w.d.frameOf {
		if n == 0 {
			break
		}
		if frame == noFrame || w.r.IntN(4) > 0 {
			continue
		}
		i := w.r.IntN(w.d.per)
		if at, n := w.d.ix.DirtyRun(hostcache.Slot(s), 0); n > 0 {
			i = at + w.r.IntN(n)
		} else if w.r.IntN(4) > 0 {
			continue
		}
		c.bad[int(w.d.flashOffset(frame, i))] = true
		sector := w.d.ix.Key(hostcache.Slot(s)).Block()*uint64(w.d.per) + uint64(i)
		if sector < w.a.sectors && w.d.ix.Dirty(hostcache.Slot(s), i, 1) && sole {
			w.mayFail[sector] = true
		}
		n--
	}
	w.note("bad: %v, may fail: %v", len(c.bad), w.mayFail)
	w.steps(20)
	if w.r.IntN(3) == 0 {
		w.v.RunUntil(w.v.Now() + 90_000_000_000) // they are given up
	}
	w.checkAll(false)
	if !sole {
		if w.r.IntN(2) == 0 {
			w.crash()
			w.reboot() // the flash, or a peer in its place
		}
		return
	}
	for range w.r.IntN(4) {
		w.crash()
		w.reboot()
		w.checkAll(false)
		w.steps(5)
	}
}
