package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// volatileLoss tells whether a loss of power of a card loses what was not flushed.
func (w *world) volatileLoss(c *card) bool { return !w.opt.PowerSafe && c.undo != nil }

// reboot opens the host's own flash. Where that is refused because it was left out, a member that was not is
// taken over; and when nothing is to be had any more, the flash is formatted.
func (w *world) reboot() {
	w.t.Helper()
	present := w.present()
	err := w.try(0, nil)
	if err == nil {
		return
	}
	if present[0] && !w.cards[0].broken && len(w.mayFail) == 0 && !w.mayLose {
		w.fail("the flash had everything, and is refused: %v", err)
	}
	w.takeOverAny(present)
}

// present tells by card which members had everything at the end of the last disk.
func (w *world) present() []bool {
	out := make([]bool, len(w.cards))
	if w.d == nil || w.d.opening {
		return out
	}
	for i, m := range w.d.members {
		if i < len(out) && !w.d.marks.due && !w.d.marks.busy && m.label.generation == w.d.marks.generation {
			out[i] = m.state == memberPresent || m.state == memberFailing && w.d.marks.owed
		}
	}
	if w.taker > 0 { // members are other cards then
		only := out[0]
		clear(out)
		out[w.taker] = only
	}
	return out
}

// takeOverAny takes over from whichever card lets itself be taken over, has everything destaged, and goes on
// with a formatted flash.
func (w *world) takeOverAny(present []bool) {
	w.t.Helper()
	order := w.r.Perm(len(w.cards))
	taken := false
	for _, i := range order {
		if i == 0 || w.cards[i].broken {
			continue
		}
		err := w.try(i, nil)
		if err == nil {
			taken = true
			break
		}
		if present[i] && len(w.mayFail) == 0 && !w.mayLose {
			w.fail("p%d had everything, and is refused: %v", i, err)
		}
	}
	if !taken && present[0] && !w.cards[0].broken && w.try(0, nil) == nil {
		return
	}
	for i, ok := range present {
		if ok && !taken && !w.cards[i].broken && len(w.mayFail) == 0 && !w.mayLose {
			w.fail("card %d had everything, and nothing can be opened", i)
		}
	}
	if taken {
		w.drain()
	}
	w.fresh()
}

// drain checks what a taker serves, destages it and ends the taker.
func (w *world) drain() {
	w.t.Helper()
	w.checkAll(false)
	w.steps(10)
	w.settle()
	clean := false
	w.d.Quiesce(1e12, func(uint64) { clean = true })
	for i := 0; !clean && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !clean {
		w.fail("the taker does not destage: %s", w.d.dump())
	}
	w.checkAll(true)
	w.stop()
	w.path.dead = true
}

// fresh mends what is broken, and begins with a formatted flash.
func (w *world) fresh() {
	w.t.Helper()
	for _, c := range w.cards {
		c.broken, c.tired, c.bad = false, false, nil
		c.goOn()
	}
	w.v.RunUntil(w.v.Now() + 100_000_000)
	w.resyncLost()
	if err := w.try(0, func(o *Options) { o.Format = true }); err != nil {
		// Peers that are a taker's own flash are given up first, one by one.
		w.fail("a format is refused: %v", err)
	}
}

// resyncLost takes the array's data for that of sectors that nobody has any more.
func (w *world) resyncLost() {
	if w.mayLose {
		w.resync()
	} else {
		for s := range w.mayFail {
			v, _ := valueOf(w.a.sector(s))
			w.may[s], w.back[s] = []entry{{value: v}}, append(w.back[s], entry{value: v, id: -1 - int(v)})
		}
	}
	w.mayLose = false
	clear(w.mayFail)
}

func (w *world) cutHost() {
	if w.volatileLoss(w.cards[0]) {
		w.powerLost()
	}
	w.bootID++
	w.cards[0].powerCut()
}

func (w *world) cutArray() {
	if w.a.undo != nil {
		w.powerLost()
	}
	w.a.powerCut()
}

func (w *world) eventDeath() {
	w.crash()
	w.reboot()
	if w.r.IntN(4) == 0 { // twice, and in the middle of the first
		w.v.RunUntil(w.v.Now() + w.r.Int64N(3_000_000))
		w.crash()
		w.reboot()
	}
}

func (w *world) eventHostPower() {
	w.crash()
	w.cutHost()
	w.reboot()
}

func (w *world) eventAllPower() {
	w.crash()
	w.cutHost()
	for _, c := range w.cards[1:] {
		if w.volatileLoss(c) {
			w.powerLost()
		}
		c.powerCut()
	}
	w.cutArray()
	w.reboot()
}

// eventArrayPower: the host lives, and hears of it when it asks.
func (w *world) eventArrayPower() {
	if w.r.IntN(2) == 0 {
		w.crash()
		w.cutArray()
		w.reboot()
		return
	}
	w.troubled = true // what is on its way fails
	w.cutArray()
	for _, fn := range w.a.notify {
		fn(block.Event{Kind: block.EventGeneration})
	}
	w.settle()
	w.troubled = false
	w.v.RunUntil(w.v.Now() + 50_000_000)
	if w.a.undo != nil {
		w.powerLost()
	}
}

// eventPeerPower: what a peer has survives if the flash's sync is waited for. Nothing is on its way: a device
// that loses power between a write and its sync says so, and then it is left out.
func (w *world) eventPeerPower() {
	w.settle()
	w.v.RunUntil(w.v.Now() + 20_000_000)
	for _, c := range w.cards[1:] {
		if !w.volatileLoss(c) {
			c.powerCut()
		}
	}
	if w.r.IntN(2) == 0 {
		w.eventTakeOver()
	}
}

func (w *world) eventPeerLost() {
	if len(w.cards) < 2 {
		return
	}
	c := w.cards[1+w.r.IntN(len(w.cards)-1)]
	c.broken = true
	w.steps(30)
	if w.r.IntN(2) == 0 {
		c.broken = false // it is back, and has missed something
		if w.r.IntN(2) == 0 && w.taker == 0 {
			s := &slot{card: c}
			w.slots = append(w.slots, s)
			if err := w.d.AddPeer(Peer{Name: "again", Medium: s}); err != nil {
				w.fail("%v", err)
			}
			w.steps(30)
			return
		}
		w.steps(10)
		w.crash()
		if w.r.IntN(2) == 0 {
			w.reboot()
			return
		}
		w.takeOverAny(w.present())
	}
}

func (w *world) eventPeerStops() {
	if len(w.cards) < 2 {
		return
	}
	c := w.cards[1+w.r.IntN(len(w.cards)-1)]
	c.stalled = true
	w.steps(20)
	w.v.RunUntil(w.v.Now() + w.r.Int64N(4*stallTimeout))
	w.steps(5)
	if w.r.IntN(3) == 0 {
		w.crash()
		c.goOn()
		w.v.RunUntil(w.v.Now() + 20_000_000)
		w.reboot()
		return
	}
	c.goOn()
	w.steps(10)
}

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
		return
	}
	for range w.r.IntN(3) {
		w.crash()
		w.reboot()
		w.checkAll(false)
		w.steps(5)
	}
}

func (w *world) eventFormat() {
	dirty := w.r.IntN(2) == 0
	if !dirty {
		w.settle()
		if w.d.stats.LostSectors == 0 && len(w.mayFail) == 0 {
			w.stop()
		}
	}
	w.crash()
	for _, c := range w.cards {
		c.goOn()
		c.broken, c.tired, c.bad = false, false, nil
	}
	w.resync()
	w.mayLose = false
	clear(w.mayFail)
	if err := w.try(0, func(o *Options) { o.Format = true }); err != nil {
		w.fail("a format is refused: %v", err)
	}
	if w.r.IntN(2) == 0 {
		w.crash()
		w.reboot()
	}
	if n := w.d.Recovery().DirtySectors; n > 0 && w.nextID == 0 {
		w.fail("%d sectors are dirty behind a format", n)
	}
}

// eventMove takes the flash to another LUN, with whatever is on it.
func (w *world) eventMove() {
	w.crash()
	for _, c := range w.cards {
		c.goOn()
		c.broken, c.tired, c.bad = false, false, nil
	}
	had := w.cards[0].labelled()
	w.resync() // what is dirty of the old LUN is given up below
	w.mayLose = false
	clear(w.mayFail)
	x := w.other
	w.other = &lun{a: w.a, may: w.may, back: w.back, mark: w.mark}
	w.a, w.may, w.back, w.mark = x.a, x.may, x.back, x.mark
	if err := w.try(0, nil); err == nil && had {
		w.fail("the flash of another LUN was opened")
	} else if err != nil {
		if err = w.try(0, func(o *Options) { o.Format = true }); err != nil {
			w.fail("a format is refused: %v", err)
		}
	}
}

func (w *world) eventResizeLUN() {
	alive := w.r.IntN(2) == 0
	if !alive {
		w.crash()
	} else {
		w.settle()
	}
	n := w.a.sectors
	to := 500 + w.r.Uint64N(200)
	w.note("from %d to %d sectors", n, to)
	for s := to; s < n; s++ {
		delete(w.a.data, s)
		delete(w.a.undo, s)
		delete(w.mayFail, s)
	}
	w.a.sectors = to
	w.may, w.back = w.may[:min(n, to)], w.back[:min(n, to)]
	if to > n {
		w.may, w.back = append(w.may, blank(to-n)...), append(w.back, blank(to-n)...)
	}
	if !alive {
		w.reboot()
		return
	}
	for _, fn := range w.a.notify {
		fn(block.Event{Kind: block.EventCapacity})
	}
	w.steps(20)
}

func (w *world) eventResizeCache() {
	var err error
	ended := false
	w.troubled = true // dirty data that cannot be destaged keeps the size
	w.d.Resize(20+w.r.Int64N(200), func(e error) { err, ended = e, true })
	w.steps(20)
	w.settle()
	for i := 0; !ended && i < 2_000_000 && w.v.Step(); i++ {
	}
	w.troubled = false
	if !ended {
		w.fail("a resize does not end: %s", w.d.dump())
	}
	w.note("resize: %v", err)
}

func (w *world) eventTakeOver() {
	if w.taker > 0 || len(w.d.State().Peers) == 0 {
		return
	}
	w.crash()
	present := w.present()
	if w.r.IntN(2) == 0 { // not alone
		for i := range present[1:] {
			n := 0
			for _, ok := range present[1:] {
				if ok {
					n++
				}
			}
			if present[i+1] && n > 1 {
				w.cards[i+1].broken, present[i+1] = true, false
			}
		}
	}
	w.cards[0].broken, present[0] = w.r.IntN(2) == 0, false
	w.takeOverAny(present)
}

// eventTakeOverAlive: the host that is taken over is fenced, and does not know it. It must not acknowledge
// anything.
func (w *world) eventTakeOverAlive() {
	if w.taker > 0 || len(w.d.State().Peers) == 0 {
		return
	}
	w.settle()
	present := w.present()
	peer := 0
	for i, ok := range present {
		if ok && i > 0 && !w.cards[i].broken && !w.cards[i].stalled {
			peer = i
		}
	}
	if peer == 0 {
		return
	}
	old := w.d
	w.path.fenced = true
	w.slots[peer].fenced = true
	life := w.life
	acked := 0
	write := func() {
		g := w.someRange(16)
		w.value++
		old.Submit([]*block.Request{{Op: block.OpWrite, Range: g, Data: [][]byte{pattern(w.value, g.Count)}, Done: func(r *block.Request) {
			if r.Status == block.OK {
				acked++
				w.note("the fenced host acknowledged %v", g)
			}
		}}})
	}
	slots, path := w.slots, w.path
	for range 3 {
		write()
	}
	if err := w.try(peer, nil); err != nil {
		w.fail("p%d had everything, and is refused: %v", peer, err)
	}
	for range 3 {
		write()
		w.v.RunUntil(w.v.Now() + 1_000_000)
	}
	w.checkAll(false)
	w.v.RunUntil(w.v.Now() + 400_000_000)
	if acked > 0 {
		w.fail("a fenced host (life %d) acknowledged %d writes", life, acked)
	}
	path.dead = true
	for _, s := range slots {
		s.dead = true
	}
	w.drain()
	w.fresh()
}

func (w *world) eventQuiesce() {
	clean := false
	w.d.Quiesce(1e9, func(uint64) {
		clean = true
		if w.d.ix.DirtySectors() > 0 {
			w.fail("quiesced, and %d sectors are dirty", w.d.ix.DirtySectors())
		}
	})
	w.steps(20)
	w.settle()
	for !clean && w.v.Step() {
	}
	w.checkAll(true)
}

func (w *world) eventFailing() {
	w.a.failing = 20
	w.steps(30)
	w.settle()
	w.a.failing = 0
}

func (w *world) eventPolicy() {
	w.d.SetPolicy(Policy{Mode: Mode(w.r.IntN(3)), Peers: w.r.IntN(2)}, nil)
}

// labelled tells whether a card has a label of a cache that counts.
func (c *card) labelled() bool {
	for i := range 2 {
		if l, found := decodeLabel(c.b[i*labelCopy:]); found == labelOurs && l.state == labelMember {
			return true
		}
	}
	return false
}
