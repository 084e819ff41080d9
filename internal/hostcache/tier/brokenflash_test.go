package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// sole tells whether nobody but the host's flash has what is dirty, known to the cache or not: a
// peer that is a device may have lost power with what was written to it.
func (w *world) sole() bool {
	if w.taker > 0 || len(w.d.State().Peers) == 0 {
		return true
	}
	for _, m := range w.d.members[1:] {
		on, lends := m.medium.(*deviceMedium)
		lost := lends && (on.lost || on.synced != on.sent && on.dev.(*lent).attention)
		if m.state == memberPresent && !lost {
			return false
		}
	}
	return true
}

// eventFlashFails: for a while the flash neither reads nor writes. What was acknowledged is still
// there when it does again: a host that dies while the last flash fails finds everything on it, or,
// if it is refused, below.
func (w *world) eventFlashFails() {
	c := w.cards[0]
	from := w.v.Now()
	c.broken, w.troubled = true, w.sole()
	w.steps(5 + w.r.IntN(20))
	w.v.RunUntil(w.v.Now() + w.r.Int64N(400_000_000))
	if w.r.IntN(3) == 0 {
		w.crash()
		c.broken, w.troubled = false, false
		w.reboot()
		return
	}
	w.settle()
	c.broken = false
	w.v.RunUntil(w.v.Now() + w.r.Int64N(2_000_000_000))
	w.steps(10)
	w.settle()
	w.troubled = false
	w.givenUp(from)
	w.note("flash failed: state %d, %+v, %s", w.d.local().state, w.d.marks, w.d.dump())
	if w.r.IntN(2) == 0 {
		w.crash()
		w.reboot()
	}
}

// givenUp notes what cannot be read any more because the flash did not for a minute.
func (w *world) givenUp(from int64) {
	for _, g := range w.d.damaged {
		for s := g.Start; s < g.End(); s++ {
			if took := w.v.Now() - from; took < 60_000_000_000 && !w.mayFail[s] {
				w.fail("sector %d was given up after %d ns", s, took)
			}
			w.spoil(s)
		}
		w.badSince = w.nextID
	}
}

// eventFlashTired: the flash takes no writes any more, and is read.
func (w *world) eventFlashTired() {
	c := w.cards[0]
	c.tired, w.unsynced = true, w.sole()
	w.steps(20)
	if w.r.IntN(2) == 0 {
		w.settle()
		w.v.RunUntil(w.v.Now() + w.r.Int64N(1_000_000_000))
		w.steps(10)
		w.checkAll(false)
	}
	w.v.RunUntil(w.v.Now() + w.r.Int64N(200_000_000))
	c.tired = w.r.IntN(2) == 0
	if c.tired {
		if w.sole() {
			w.lose()
		}
		w.crash()
		w.unsynced = false
		c.broken = true // nothing can be opened with it
		w.takeOverAny(w.present())
		return
	}
	w.crash()
	w.unsynced = false
	w.reboot()
}

// eventFlashGone: what is nowhere else fails until it is written; all else is there.
func (w *world) eventFlashGone() {
	sole := w.sole()
	if sole {
		w.settle()
		w.lose()
	}
	w.cards[0].broken, w.troubled = true, sole
	w.steps(30)
	w.settle()
	w.troubled = false
	if sole {
		w.lose()
	}
	w.checkAll(false)
	w.crash()
	w.takeOverAny(w.present())
}

// eventFlashGivenUp: a front end knows that the flash is gone.
func (w *world) eventFlashGivenUp() {
	if w.sole() {
		w.lose()
	}
	w.d.LoseFlash()
	w.steps(30)
	w.checkAll(false)
	w.crash()
	w.reboot()
}

// eventFault: some transfers of a card fail, anywhere on it or in the labels and the journal alone,
// once or for long. No request fails for it, but a flush whose only copy cannot be synced; and a
// host that dies then finds everything.
func (w *world) eventFault() {
	if w.taker > 0 {
		return
	}
	n := w.r.IntN(len(w.cards))
	c := w.cards[n]
	for range 1 + w.r.IntN(2) {
		f := fault{what: []faultKind{faultWrite, faultWrite, faultSync, faultRead}[w.r.IntN(4)], hi: uint64(len(c.b)), skip: w.r.IntN(8), times: []int{1, 1, 2, 3, 4, 1000}[w.r.IntN(6)]}
		if w.r.IntN(4) > 0 {
			f.hi = w.d.dataStart
			if w.r.IntN(2) == 0 {
				f.lo = w.r.Uint64N(f.hi)
				f.hi = f.lo + 4096
			}
		}
		w.note("card %d: fault %+v", n, f)
		c.faults = append(c.faults, f)
	}
	reads := slices.ContainsFunc(c.faults, func(f fault) bool { return f.what == faultRead })
	w.unsynced, w.troubled = w.sole(), reads && w.sole()
	w.steps(10 + w.r.IntN(30))
	if w.r.IntN(2) == 0 {
		w.v.RunUntil(w.v.Now() + w.r.Int64N(400_000_000))
		w.steps(10)
	}
	dies := w.r.IntN(2) == 0
	if dies {
		w.crash()
	} else {
		w.settle()
	}
	c.faults, w.unsynced, w.troubled = nil, false, false
	if dies {
		w.reboot()
	}
}

// eventJournalUnread: some of the labels and the journal cannot be read at a start, once or until
// it is mended. The start has everything, or it is refused and changes nothing.
func (w *world) eventJournalUnread() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	end := w.d.dataStart
	w.crash()
	present := w.present()
	c := w.cards[0]
	if !present[0] || c.broken {
		w.reboot()
		return
	}
	if w.r.IntN(2) == 0 {
		c.bad = map[int]bool{}
		for range 1 + w.r.IntN(3) {
			at := int(w.r.Uint64N(end >> block.SectorShift))
			if w.r.IntN(2) == 0 {
				at %= 64 // near the beginning, where there is something
			} else if w.r.IntN(2) == 0 {
				at = int((labelBytes+w.d.j.half)>>block.SectorShift) + at%32
			}
			c.bad[at<<block.SectorShift] = true
		}
	} else {
		lo := w.r.Uint64N(end)
		c.faults = []fault{{what: faultRead, lo: lo, hi: min(lo+65536, end), skip: w.r.IntN(3), times: 1 + w.r.IntN(6)}}
	}
	if err := w.try(0, nil); err == nil {
		c.bad, c.faults = nil, nil
		return
	}
	c.bad, c.faults = nil, nil
	if w.r.IntN(2) == 0 {
		w.takeOverAny(present)
		return
	}
	if err := w.try(0, nil); err != nil {
		w.fail("the flash can be read again, and is refused: %v", err)
	}
}

// eventBadSectors: sectors of the host's flash cannot be read. What has no other copy fails until it is
// written, at two later starts too.
func (w *world) eventBadSectors() {
	if w.taker > 0 {
		return
	}
	c := w.cards[0]
	had := w.d.flashed()
	w.troubled, w.a.failing = true, 100 // nothing is destaged
	w.steps(15)
	w.settle()
	w.a.failing = 0
	w.v.RunUntil(w.v.Now() + max(10_000_000, 4*w.a.delay))
	w.troubled = false
	c.bad = map[int]bool{}
	w.badSince = w.nextID
	sole := w.sole() || w.doubted
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
			w.spoil(sector)
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
		if had && !w.d.flashed() {
			w.fail("sectors that cannot be read cost the flash")
		}
		if w.r.IntN(2) == 0 {
			w.crash()
			w.reboot() // the flash, or a peer in its place
		}
		c.bad = nil
		return
	}
	for range w.r.IntN(4) {
		w.crash()
		w.reboot()
		w.checkAll(false)
		w.steps(5)
	}
}
