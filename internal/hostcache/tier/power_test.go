package tier

import "github.com/arraysim/arraysim/internal/block"

func (w *world) cutHost() {
	if w.volatileLoss(w.cards[0]) {
		w.flashPowerLost()
	}
	w.bootID++
	w.cards[0].powerCut()
}

// cutArray tells how many sectors of writes that had ended are lost.
func (w *world) cutArray() (lost int) {
	if w.a.undo != nil {
		w.powerLost()
	}
	lost = w.a.powerCut()
	w.mayOwe = true
	w.note("the array's power is cut: %d sectors are lost", lost)
	return lost
}

// cutPeers cuts the power of some peers, or of all. A host that lives hears of it if it has their
// flash as devices.
func (w *world) cutPeers(all bool) {
	for i := 1; i < len(w.cards); i++ {
		c := w.cards[i]
		if !all && w.r.IntN(2) == 0 {
			continue
		}
		if w.volatileLoss(c) {
			w.cut[c] = true
		}
		c.powerCut()
		if i < len(w.lent) && w.lent[i] != nil {
			w.lent[i].attention, w.doubted = true, true
		}
	}
}

// sharpFlush makes a moment at which power is cut best: right behind a flush.
func (w *world) sharpFlush() {
	switch w.r.IntN(8) {
	case 0:
	case 1:
		w.flushBehindAWrite()
	case 2:
		w.flushesAtOnce()
	case 3:
		w.overwriteFlushed()
	default:
		w.flushesAmongWrites()
	}
}

// flushesAmongWrites sends flushes close to each other, among writes; it returns when one of them
// has ended.
func (w *world) flushesAmongWrites() {
	until := w.flushes + 1 + w.r.IntN(2)*w.r.IntN(3)
	for i := 0; w.flushes < until && i < 40; i++ {
		switch w.r.IntN(4) {
		case 0:
			w.put(block.OpWrite)
		case 1:
			w.settle()
			w.flush()
		default:
			w.flush()
		}
		for end := w.v.Now() + w.r.Int64N(600_000); w.flushes < until && w.v.Now() < end && w.v.Step(); {
		}
	}
	if w.r.IntN(2) == 0 { // what was under way ends
		w.v.RunUntil(w.v.Now() + 5*w.a.delay)
	}
	if w.r.IntN(2) == 0 { // what was flushed is overwritten
		for range 1 + w.r.IntN(4) {
			w.put(block.OpWrite)
			w.v.RunUntil(w.v.Now() + w.r.Int64N(500_000))
		}
	}
}

// flushBehindAWrite has one change under way when a flush comes, and flushes once more when both
// have ended.
func (w *world) flushBehindAWrite() {
	w.settle()
	w.v.RunUntil(w.v.Now() + 10*w.a.delay)
	w.put([]block.Op{block.OpWrite, block.OpWriteSame, block.OpUnmap}[w.r.IntN(3)])
	w.v.RunUntil(w.v.Now() + w.r.Int64N(w.a.delay))
	w.flush()
	w.settle()
	w.flush()
	w.settle()
}

// flushesAtOnce has nothing volatile below, something on the flash, and flushes that differ by less
// than a sync.
func (w *world) flushesAtOnce() {
	w.settle()
	w.flush()
	w.settle()
	w.put(block.OpWrite)
	w.settle()
	until := w.flushes + 1
	for range 3 {
		w.flush()
		for end := w.v.Now() + w.r.Int64N(200_000); w.flushes < until && w.v.Now() < end && w.v.Step(); {
		}
	}
	for i := 0; w.flushes < until && i < 10_000 && w.v.Step(); i++ {
	}
}

// overwriteFlushed flushes a write, and writes to the same sectors, once or more.
func (w *world) overwriteFlushed() {
	w.settle()
	g := w.someRange(40)
	w.putAt(block.OpWrite, g)
	w.settle()
	w.flush()
	w.settle()
	for range 1 + w.r.IntN(3) {
		w.putAt(block.OpWrite, g)
		w.v.RunUntil(w.v.Now() + w.r.Int64N(1_000_000))
	}
}

// flushOverADestage begins anew with nothing dirty, so that nobody has flushed yet, and lets the
// first flush meet a destage.
func (w *world) flushOverADestage() {
	w.settle()
	if w.taker > 0 || len(w.mayFail) > 0 || !w.d.flashed() || w.d.marks.owed {
		return
	}
	w.stop()
	w.crash()
	w.reboot()
	w.v.RunUntil(w.v.Now() + 50_000_000)
	for range 1 + w.r.IntN(3) {
		w.put(block.OpWrite)
	}
	for i := 0; w.d.turn.inflight == 0 && i < 10_000 && w.v.Step(); i++ {
	}
	w.v.RunUntil(w.v.Now() + w.r.Int64N(w.a.delay))
	w.flush()
	w.settle()
	if w.r.IntN(2) == 0 {
		w.v.RunUntil(w.v.Now() + 10*w.a.delay)
	}
}

func (w *world) eventHostPower() {
	w.sharpFlush()
	w.crash()
	w.cutHost()
	w.reboot()
}

func (w *world) eventAllPower() {
	w.sharpFlush()
	w.crash()
	w.cutHost()
	w.cutPeers(true)
	w.cutArray()
	w.reboot()
}

// eventSomePower cuts the power of any of them at one time.
func (w *world) eventSomePower() {
	w.sharpFlush()
	host := w.taker > 0 || !w.lends || w.r.IntN(2) == 0
	if host {
		w.crash()
	}
	present := w.present()
	w.cutPeers(false)
	if !host {
		w.arrayPowerUnder()
		return
	}
	if w.r.IntN(2) == 0 {
		w.cutHost()
	}
	if w.r.IntN(2) == 0 {
		w.cutArray()
	}
	if w.r.IntN(3) == 0 {
		w.takeOverAny(present)
		return
	}
	w.reboot()
}

func (w *world) eventArrayPower() {
	if w.r.IntN(3) == 0 {
		w.flushOverADestage()
	} else {
		w.sharpFlush()
	}
	w.loseArrayPower()
}

// loseArrayPower cuts the array's power, with the host's or under it.
func (w *world) loseArrayPower() {
	if w.r.IntN(2) == 0 {
		w.crash()
		w.cutArray()
		w.reboot()
		return
	}
	w.arrayPowerUnder()
}

// arrayPowerUnder cuts the array's power under a host that lives. It hears of it at once, or with
// the next command that ends. If writes were lost that had ended, its next flush has to fail.
func (w *world) arrayPowerUnder() {
	w.troubled = true // what is on its way fails
	w.owed += w.cutArray()
	w.atCut = w.nextID
	if w.r.IntN(2) == 0 {
		w.path.hear()
	}
	if w.r.IntN(2) == 0 {
		for _, fn := range w.a.notify {
			fn(block.Event{Kind: block.EventGeneration})
		}
	}
	w.settle()
	if w.d.turn.inflight > 0 {
		w.v.RunUntil(w.v.Now() + 2*w.a.delay)
	}
	w.troubled = false
	if w.r.IntN(2) == 0 {
		w.steps(5)
	}
	w.path.hear()
	w.settle()
	if w.r.IntN(2) == 0 {
		w.flush()
		w.steps(5)
	}
}

// eventPeerPower: a peer that loses power between a write and its sync says so if it is a device,
// and is left out. Where it is not, and what it has was not flushed, nothing is on its way.
func (w *world) eventPeerPower() {
	if w.taker > 0 {
		return
	}
	if !w.lends {
		w.settle()
		w.v.RunUntil(w.v.Now() + 20_000_000)
		for _, c := range w.cards[1:] {
			if !w.volatileLoss(c) {
				c.powerCut()
			}
		}
	} else if w.r.IntN(2) == 0 { // what it has lost is flushed, and then it is all that is left
		w.settle()
		for range 4 {
			w.put(block.OpWrite)
			if w.opt.PowerSafe { // their syncs lie beside each other
				w.v.RunUntil(w.v.Now() + w.r.Int64N(2*cardDelay))
			}
		}
		if !w.opt.PowerSafe {
			w.settle()
		}
		w.cutPeers(true)
		w.flush()
		w.settle()
		w.eventTakeOver()
		return
	} else {
		w.cutPeers(false)
		if w.r.IntN(2) == 0 {
			w.flush()
		}
		w.steps(w.r.IntN(20))
	}
	switch w.r.IntN(3) {
	case 0:
		w.eventTakeOver()
	case 1:
		w.eventBadSectors()
	}
}
