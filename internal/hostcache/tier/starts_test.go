package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Events of starts, labels and the witness.

// had tells whether the host's own flash had everything at the end of the last disk, and can be
// read: then no start may refuse it.
func (w *world) had(present []bool) bool {
	return present[0] && !w.cards[0].broken && len(w.cards[0].bad) == 0 && len(w.mayFail) == 0
}

// eventWithoutPeers: a start is not given all peers that there are. Later they are there again, and
// nobody takes over from one that has missed something.
func (w *world) eventWithoutPeers() {
	if w.taker > 0 || len(w.cards) < 2 {
		return
	}
	if w.r.IntN(4) == 0 && w.d.stats.LostSectors == 0 && len(w.mayFail) == 0 && w.d.flashed() {
		w.settle()
		w.stop()
	}
	w.crash()
	present, given := w.present(), w.r.IntN(len(w.cards)-1)
	fewer := w.r.IntN(2) == 0 // are asked for, too
	w.note("%d peers are given", given)
	err := w.try(0, func(o *Options) {
		o.Peers = o.Peers[:given]
		if fewer {
			o.Policy.Peers = min(o.Policy.Peers, given)
		}
	})
	if err != nil {
		if w.had(present) {
			w.fail("the flash had everything, and is refused without its peers: %v", err)
		}
		w.takeOverAny(present)
		return
	}
	w.steps(10 + w.r.IntN(30))
	w.checkAll(false)
	switch w.r.IntN(4) {
	case 0: // one joins again
		s := &slot{card: w.cards[given+1]}
		w.slots = append(w.slots, s)
		if err := w.d.AddPeer(Peer{Name: "late", Medium: s}); err != nil {
			w.fail("%v", err)
		}
		w.steps(20)
		w.crash()
		w.reboot()
	case 1:
		w.crash()
		present = w.present()
		w.cards[0].broken = w.r.IntN(2) == 0
		if w.cards[0].broken {
			w.givesUp()
		}
		w.takeOverAny(present)
	default:
		w.crash()
		w.reboot()
	}
}

// givesUp notes that what is dirty on the host's own flash alone, which is gone, cannot be had any
// more.
func (w *world) givesUp() {
	if w.sole() {
		w.lose()
	}
}

// eventStartFails: some transfers of a card fail while the cache starts, or the witness does. The
// start succeeds, or the next one does.
func (w *world) eventStartFails() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	end := w.d.dataStart
	w.crash()
	n := w.r.IntN(len(w.cards))
	c := w.cards[n]
	for range 1 + w.r.IntN(2) {
		f := fault{what: []faultKind{faultWrite, faultWrite, faultSync, faultRead}[w.r.IntN(4)], hi: end, skip: w.r.IntN(12), times: []int{1, 3, 4, 1000}[w.r.IntN(4)]}
		if w.r.IntN(3) == 0 {
			f.hi = labelBytes
		}
		w.note("card %d: fault %+v", n, f)
		c.faults = append(c.faults, f)
	}
	if w.r.IntN(3) == 0 {
		w.failures = 1 + w.r.IntN(2)
	}
	err := w.try(0, nil)
	if err == nil {
		w.unsynced, w.troubled = true, true // the flash may be read and not written any more
		w.steps(w.r.IntN(20))
		if w.r.IntN(2) == 0 {
			w.settle()
		}
		w.crash()
		w.unsynced, w.troubled = false, false
	}
	c.faults, w.failures = nil, 0
	if err = w.try(0, nil); err == nil {
		return
	}
	w.takeOverAny(w.nobody())
}

// nobody tells that no member need be accepted: a flash that failed and had nothing dirty is left
// out by a start that ended with that.
func (w *world) nobody() []bool { return make([]bool, len(w.cards)) }

// eventEarlierVersion: a version that does not flush the array when it stops writes a label that
// does not say so. What the array has lost since is not served, and a flush says so.
func (w *world) eventEarlierVersion() {
	if w.taker > 0 || len(w.mayFail) > 0 || !w.d.flashed() || w.d.stats.LostSectors > 0 {
		return
	}
	w.settle()
	w.put(block.OpUnmap)
	w.settle()
	w.a.lies = true
	w.stop()
	w.crash()
	w.a.lies = false
	c := w.cards[0]
	for i := range 2 {
		b := c.b[i*labelCopy:][:block.SectorSize]
		if l, found := decodeLabel(b); found == labelOurs && l.state == labelClosed {
			l.flushed = false
			copy(b, l.encode())
			w.note("label %d has no flag", i)
		}
	}
	lost := 0
	if w.r.IntN(3) > 0 {
		lost = w.cutArray()
	}
	w.reboot()
	if lost > 0 && w.taker == 0 && !w.d.recovery.Fresh {
		w.owed += lost
		w.path.hear()
	}
	w.checkAll(false)
	w.flush()
	w.settle()
}

// eventWitnessForgets: the witness has lost all that it kept. A start with the newest flash
// succeeds, and has it know again.
func (w *world) eventWitnessForgets() {
	if w.taker > 0 {
		return
	}
	w.crash()
	present := w.present()
	if !w.had(present) {
		w.reboot()
		return
	}
	was := w.mark
	w.mark = Mark{}
	if err := w.try(0, nil); err != nil {
		w.fail("the flash had everything, and is refused without a witness: %v", err)
	}
	if w.mark.Generation < was.Generation {
		w.fail("the witness has generation %d behind a start, and had %d", w.mark.Generation, was.Generation)
	}
	w.steps(10)
	w.eventTakeOver()
}

// eventWitnessFails: the witness fails or does not answer while members are left out. What waits
// for it is withdrawn at once all the same.
func (w *world) eventWitnessFails() {
	if w.taker > 0 {
		return
	}
	silent := w.r.IntN(2) == 0
	w.silent, w.failures, w.troubled = silent, w.r.IntN(4), true
	if silent {
		w.failures = 0
	}
	c := w.cards[w.r.IntN(len(w.cards))]
	c.tired = true
	if c == w.cards[0] && w.sole() {
		w.unsynced = true
	}
	w.steps(10 + w.r.IntN(20))
	if silent && w.r.IntN(2) == 0 {
		w.v.RunUntil(w.v.Now() + w.r.Int64N(300_000_000))
		w.withdrawAll()
	}
	dies := w.r.IntN(2) == 0
	if dies {
		w.crash()
	}
	c.tired = false
	w.answers()
	w.troubled, w.unsynced = !dies, !dies
	if dies {
		w.reboot()
		return
	}
	w.settle()
	w.v.RunUntil(w.v.Now() + 300_000_000)
	w.troubled, w.unsynced = false, false
	if w.r.IntN(2) == 0 {
		w.crash()
		w.reboot()
	}
}

// withdrawAll has nobody want what is under way any more: it ends within the time that transfers of
// the devices take.
func (w *world) withdrawAll() {
	reqs := append([]*block.Request(nil), w.pending...)
	for _, r := range reqs {
		w.revoked[r] = true
		w.d.Cancel(r)
	}
	w.v.RunUntil(w.v.Now() + 2*w.a.delay + 200*cardDelay + 200_000_000)
	for _, r := range reqs {
		if w.revoked[r] {
			w.fail("%v %v was withdrawn, and has not ended: %s", r.Op, r.Range, w.d.dump())
		}
	}
}

// eventStopsAtLabel: a card stops as a label is written to it, since another one was left out, or
// at a start.
func (w *world) eventStopsAtLabel() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	n := w.r.IntN(len(w.cards))
	c, how, skip := w.cards[n], w.r.IntN(3), w.r.IntN(6)
	w.note("card %d stops at its label behind %d, how %d", n, skip, how)
	stopped := false
	c.heard = func(io *block.IO) {
		if !io.Write || io.Off >= labelBytes || stopped {
			return
		}
		if skip--; skip < 0 {
			stopped = true
			w.note("card %d stops", n)
			c.tired, c.broken, c.stalled = how == 0, how == 1, how == 2
		}
	}
	var other *card
	w.unsynced, w.troubled = true, how > 0 && n == 0
	if len(w.cards) > 1 && w.r.IntN(2) == 0 {
		if other = w.cards[(n+1+w.r.IntN(len(w.cards)-1))%len(w.cards)]; w.r.IntN(2) == 0 {
			other.tired = true
		} else {
			other.broken = true
		}
		// The last one may be one that cannot be read.
		w.troubled = w.troubled || other == w.cards[0] && (how > 0 || other.broken)
		w.steps(5 + w.r.IntN(20))
	} else {
		w.crash()
		err := w.try(0, nil)
		if err != nil {
			c.heard = nil
			c.mend()
			w.unsynced, w.troubled = false, false
			if w.try(0, nil) != nil {
				w.takeOverAny(w.nobody())
			}
			return
		}
		w.steps(w.r.IntN(20))
	}
	from := w.v.Now()
	w.v.RunUntil(from + []int64{1_000_000, 100_000_000, 1_000_000_000}[w.r.IntN(3)])
	dies := w.r.IntN(3) > 0
	if dies {
		w.crash()
	}
	c.heard = nil
	c.mend()
	if other != nil {
		other.mend()
	}
	if !dies {
		w.settle()
		w.v.RunUntil(w.v.Now() + 1_000_000_000)
		w.settle()
		w.givenUp(from)
	}
	w.unsynced, w.troubled = false, false
	if dies {
		w.reboot()
	}
}

// eventDiesBehindFlash: the last flash fails, and the host dies within moments of that.
func (w *world) eventDiesBehindFlash() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	for _, c := range w.cards[1:] {
		c.broken = true
	}
	if len(w.cards) > 1 {
		w.steps(10)
	}
	c := w.cards[0]
	w.unsynced, w.troubled = true, true
	if w.r.IntN(2) == 0 {
		w.a.failing = 70 // little is destaged
		w.steps(10)
	}
	c.tired = true
	if w.r.IntN(3) == 0 {
		c.broken = true
	}
	for i := 0; w.d.local().state == memberPresent && i < 200; i++ {
		w.put(block.OpWrite)
		for end := w.v.Now() + 20_000_000; w.d.local().state == memberPresent && w.v.Now() < end && w.v.Step(); {
		}
	}
	w.note("the flash: state %d, %+v", w.d.local().state, w.d.marks)
	if most := []int64{0, 1_000_000, 20_000_000, 500_000_000}[w.r.IntN(4)]; most > 0 {
		w.v.RunUntil(w.v.Now() + w.r.Int64N(most))
	}
	w.crash()
	w.a.failing, w.unsynced, w.troubled = 0, false, false
	c.mend()
	present := w.present()
	for _, p := range w.cards[1:] {
		if !present[0] || w.r.IntN(2) == 0 { // it may be the newest
			p.mend()
		}
	}
	if w.r.IntN(3) == 0 && slices.Contains(present, true) {
		w.takeOverAny(present)
		return
	}
	w.reboot()
}
