package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// volatileLoss tells whether a loss of power of a card loses what was not flushed.
func (w *world) volatileLoss(c *card) bool { return !w.opt.PowerSafe && c.volatile }

// reboot opens the host's own flash. Where that is refused because it was left out, a member that was not is
// taken over; and when nothing is to be had any more, the flash is formatted.
func (w *world) reboot() {
	w.t.Helper()
	present := w.present()
	err := w.try(0, nil)
	if err == nil {
		return
	}
	if present[0] && !w.cards[0].broken && len(w.cards[0].bad) == 0 && len(w.mayFail) == 0 {
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
	for _, m := range w.d.members {
		if i := slices.Index(w.cards, cardOf(m)); i >= 0 && !w.d.marks.due && !w.d.marks.busy && m.label.generation == w.d.marks.generation {
			out[i] = out[i] || m.state == memberPresent || m.state == memberFailing && w.d.marks.owed
		}
	}
	return out
}

// cardOf is the card of a member.
func cardOf(m *member) *card {
	switch x := m.medium.(type) {
	case *slot:
		return x.card
	case *deviceMedium:
		return x.dev.(*lent).card
	}
	return nil
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
		if present[i] && len(w.mayFail) == 0 {
			w.fail("p%d had everything, and is refused: %v", i, err)
		}
	}
	if !taken && present[0] && !w.cards[0].broken && w.try(0, nil) == nil {
		return
	}
	for i, ok := range present {
		if ok && !taken && !w.cards[i].broken && len(w.cards[i].bad) == 0 && len(w.mayFail) == 0 {
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
		c.mend()
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
	for s := range w.mayFail {
		w.takeArray(s)
	}
	w.unspoil()
}

// lose notes that nobody has what is dirty now, nor what is on its way.
func (w *world) lose() {
	lost := func(g block.Range) bool {
		for s := g.Start; s < min(g.End(), w.a.sectors); s++ {
			w.spoil(s)
		}
		return true
	}
	w.d.eachDirty(block.Range{Count: w.a.sectors}, lost)
	for _, ranges := range w.flying {
		for _, g := range ranges {
			lost(g)
		}
	}
	w.badSince = w.nextID
	w.note("lost: %d sectors", len(w.mayFail))
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

func (w *world) eventPeerLost() {
	if len(w.cards) < 2 {
		return
	}
	i := 1 + w.r.IntN(len(w.cards)-1)
	c := w.cards[i]
	c.broken = true
	w.steps(30)
	if w.r.IntN(2) == 0 {
		c.broken = false // it is back, and has missed something
		if w.r.IntN(2) == 0 && w.taker == 0 {
			s := &slot{card: c}
			w.slots = append(w.slots, s)
			if err := w.d.AddPeer(Peer{Name: "again", Medium: w.medium(i, s)}); err != nil {
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

// eventPeersLost: what is acknowledged without the peers that were asked for is below.
func (w *world) eventPeersLost() {
	if w.taker > 0 || !w.d.accepting || w.d.requested.Peers == 0 || w.opt.Policy.Peers < w.d.requested.Peers {
		return
	}
	w.troubled, w.a.failing = true, 70 // little is destaged
	for _, c := range w.cards[1:] {
		c.broken = true
	}
	w.acked = w.acked[:0]
	from := w.nextID
	w.steps(25)
	w.settle()
	w.a.failing = 0
	defer func() {
		w.v.RunUntil(w.v.Now() + 10_000_000)
		w.troubled = false
	}()
	for _, a := range w.acked {
		for _, g := range a.ranges {
			for s := g.Start; a.id > from && s < g.End(); s++ {
				v, _ := valueOf(w.a.sector(s))
				if !slices.ContainsFunc(w.may[s], func(e entry) bool { return e.value == v }) {
					w.fail("#%d was acknowledged without the peers, and the array has %d in sector %d, not one of %v", a.id, v, s, w.may[s])
				}
			}
		}
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

func (w *world) eventFormat() {
	clean := false
	if w.r.IntN(2) == 0 {
		w.settle()
		if clean = w.d.stats.LostSectors == 0 && len(w.mayFail) == 0; clean {
			w.stop()
		}
	}
	w.crash()
	for _, c := range w.cards {
		c.mend()
	}
	if !clean { // what is dirty is given up
		w.resync()
	}
	w.unspoil()
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

// swap makes the other LUN the one that is cached.
func (w *world) swap() {
	x := w.other
	w.other = &lun{a: w.a, may: w.may, back: w.back, mark: w.mark}
	w.a, w.may, w.back, w.mark = x.a, x.may, x.back, x.mark
}

// eventMove takes the flash to another LUN, with whatever is on it. There it is refused; back at
// its own it still has everything, unless it was formatted meanwhile.
func (w *world) eventMove() {
	w.crash()
	present := w.present()
	for _, c := range w.cards {
		c.mend()
	}
	had := w.cards[0].labelled()
	back := had && present[0] && len(w.mayFail) == 0 && w.r.IntN(3) == 0
	if !back {
		w.resync() // what is dirty of the old LUN is given up below
		w.unspoil()
	}
	w.swap()
	err := w.try(0, nil)
	if err == nil && had {
		w.fail("the flash of another LUN was opened")
	}
	switch {
	case err == nil:
	case back:
		w.swap()
		if err = w.try(0, nil); err != nil {
			w.fail("after it was tried at another LUN the flash is refused: %v", err)
		}
	default:
		if err = w.try(0, func(o *Options) { o.Format = true }); err != nil {
			w.fail("a format is refused: %v", err)
		}
	}
}

// resize gives the LUN another size.
func (w *world) resize(to uint64) {
	n := w.a.sectors
	w.note("from %d to %d sectors", n, to)
	w.a.resize(to)
	for s := to; s < n; s++ {
		delete(w.mayFail, s)
		delete(w.backFails, s)
		for _, e := range w.may[s] {
			if w.flying[e.id] != nil {
				w.late[s] = append(w.late[s], e)
			}
		}
	}
	w.may, w.back = w.may[:min(n, to)], w.back[:min(n, to)]
	w.resizes++
	w.nextID++
	for s := n; s < to; s++ { // what is under way from before gets there, or was cut off
		l := slices.DeleteFunc(w.late[s], func(e entry) bool { return w.flying[e.id] == nil })
		delete(w.late, s)
		w.may, w.back = append(w.may, append(slices.Clone(l), entry{id: w.nextID})), append(w.back, append(slices.Clone(l), entry{id: w.nextID}))
	}
	for _, u := range w.a.writes { // what is on its way from before may get there, and lies within the new size then
		if u.least >= u.r.Range.End() {
			continue
		}
		w.nextID++
		data := flat(u.r.Data)
		for i := range u.r.Range.Count {
			if s := u.r.Range.Start + i; s >= n && s < to {
				v, _ := valueOf(data(i))
				w.may[s] = append(slices.Clone(w.may[s]), entry{v, w.nextID})
				w.back[s] = append(slices.Clone(w.back[s]), entry{v, w.nextID})
			}
		}
	}
}

func (w *world) eventResizeLUN() {
	alive := w.r.IntN(2) == 0
	if !alive {
		w.crash()
		w.resize(500 + w.r.Uint64N(200))
		w.reboot()
		return
	}
	for range 1 + w.r.IntN(3) {
		w.steps(10)
		w.settle()
		w.resize(500 + w.r.Uint64N(200))
		for _, fn := range w.a.notify {
			fn(block.Event{Kind: block.EventCapacity})
		}
		w.steps(10)
	}
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

// eventDrop: the cache is emptied beside requests, and perhaps the host dies in it.
func (w *world) eventDrop() {
	ended := false
	w.d.Drop(func(int64) { ended = true })
	w.steps(w.r.IntN(20))
	if w.r.IntN(4) == 0 {
		w.crash()
		w.reboot()
		return
	}
	w.settle()
	for i := 0; !ended && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !ended {
		w.fail("a drop does not end: %s", w.d.dump())
	}
}

// eventQuiesce: its time may be over before everything is below. Then there is no token.
func (w *world) eventQuiesce() {
	heard, token, time := false, uint64(0), int64(1e12)
	if w.r.IntN(3) == 0 {
		time = w.r.Int64N(10 * w.a.delay)
	}
	until := w.v.Now() + time
	w.d.Quiesce(time, func(t uint64) {
		heard, token = true, t
		if n := w.d.ix.DirtySectors(); t > 0 && n > 0 {
			w.fail("quiesced, and %d sectors are dirty", n)
		}
		if t == 0 && w.v.Now() < until {
			w.fail("quiesced without a token before its time is over")
		}
	})
	w.steps(20)
	w.settle()
	for i := 0; !heard && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !heard {
		w.fail("what is dirty is not destaged: %s", w.d.dump())
	}
	w.note("quiesced: token %d", token)
	w.checkAll(token > 0 && w.v.Now() < until)
	w.d.Resume(token)
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
