package tier

import (
	"bytes"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// as does something as another host, which has its own cache of the same LUN.
func (w *world) as(d *Disk, p *path, fn func()) {
	w.settle()
	mine, way := w.d, w.path
	w.d, w.path = d, p
	fn()
	w.settle()
	w.d, w.path = mine, way
}

// news makes a host know what others have changed: it is told, or asks by itself.
func (w *world) news(p *path) {
	if w.opt.WatchNanos == 0 || w.r.IntN(2) == 0 {
		for _, fn := range p.notify {
			fn(block.Event{Kind: block.EventGeneration})
		}
		w.v.RunUntil(w.v.Now() + 5_000_000)
		return
	}
	w.v.RunUntil(w.v.Now() + w.opt.WatchNanos + 5_000_000)
}

// eventOtherHost: two hosts cache the LUN and write to it in turn. Each reads what the other has
// written as soon as it has asked, at a start at once; nobody who could not ask serves what may be
// old.
func (w *world) eventOtherHost() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	quiet := false
	var token uint64
	w.settle()
	w.d.Quiesce(1e15, func(t uint64) { quiet, token = true, t })
	for i := 0; !quiet && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !quiet {
		w.fail("what is dirty is not destaged: %s", w.d.dump())
	}
	h := w.otherHost()
	for range 3 {
		w.as(h.d, h.path, func() { w.steps(10) })
		w.unheard(func() { w.news(w.path) })
		w.steps(10)
		w.settle()
		w.unheard(func() { w.news(h.path) })
		w.as(h.d, h.path, func() { w.steps(5) })
		w.unheard(func() { w.news(w.path) })
	}
	if w.r.IntN(2) == 0 { // it changes something while this one is down
		w.crash()
		w.as(h.d, h.path, func() { w.steps(20) })
		w.unheard(w.reboot)
		w.checkAll(false)
	} else {
		w.checkAll(false)
		w.d.Resume(token)
	}
	h.end()
}

// secondHost is another host, which caches the same LUN on flash of its own.
type secondHost struct {
	w    *world
	d    *Disk
	path *path
	slot *slot
	opt  Options
	// rarely is what the world's was before there were two hosts.
	rarely bool
}

// otherHost opens another host's cache of the same LUN.
func (w *world) otherHost() *secondHost {
	w.a.shared = true
	h := &secondHost{w: w, slot: &slot{card: w.newCard()}, rarely: w.rarely}
	w.rarely = true // a flush of one host says nothing of what another one wrote
	h.opt = w.opt
	h.opt.Peers, h.opt.Policy = nil, Policy{Mode: WriteThrough}
	h.opt.Volatile = w.r.IntN(2) == 0
	h.open()
	return h
}

// open opens the cache, after a crash on the flash as that left it.
func (h *secondHost) open() {
	w := h.w
	w.a.paths = slices.DeleteFunc(w.a.paths, func(p *path) bool { return p == h.path })
	h.d, h.path, h.slot = nil, &path{array: w.a, host: 1}, &slot{card: h.slot.card}
	w.a.paths = append(w.a.paths, h.path)
	opt := h.opt
	opt.Below, opt.Flash, opt.ID = h.path, h.slot, w.r.Uint64()|1
	Open(opt, func(x *Disk, err error) {
		if err != nil {
			w.fail("another host's cache: %v", err)
		}
		h.d = x
	})
	for i := 0; h.d == nil && i < 2_000_000 && w.v.Step(); i++ {
	}
	if h.d == nil {
		w.fail("another host's cache does not open")
	}
}

// crash takes the host away, which has the clients; what is in flight gets there or not.
func (h *secondHost) crash() {
	w := h.w
	w.note("the new host dies with %d in flight", w.inflight)
	h.path.dead, h.slot.dead = true, true
	h.slot.card.closed()
	w.afterDeath(func() {})
}

// end ends the host.
func (h *secondHost) end() {
	w := h.w
	if !h.path.dead {
		h.d.Close(true, func(error) {})
	}
	h.path.dead = true
	w.v.RunUntil(w.v.Now() + 5_000_000)
	w.a.shared, w.rarely = false, h.rarely
	w.a.paths = slices.DeleteFunc(w.a.paths, func(p *path) bool { return p == h.path })
}

// unheard does something that asks what others have changed. The first questions may have no
// answer.
func (w *world) unheard(fn func()) {
	if w.r.IntN(3) == 0 {
		w.a.deaf = 1 + w.r.IntN(2)
	}
	fn()
	if w.r.IntN(2) == 0 {
		w.checkAll(false)
	}
	w.a.deaf = 0
}

// eventForeign: somebody gives the flash of another LUN's cache as a peer, at a start or later.
// Nothing of it is changed, and its own host finds everything on it.
func (w *world) eventForeign() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	w.crash()
	present := w.present()
	for _, c := range w.cards {
		c.mend()
	}
	if !present[0] {
		w.takeOverAny(present)
		return
	}
	mine, opt := w.cards, w.opt
	copied := w.r.IntN(2) == 0 // it is what a peer has of that cache
	w.cards = []*card{w.newCard()}
	w.opt.Policy = Policy{Mode: WriteBack}
	if copied {
		w.cards, w.opt.Policy.Peers = append(w.cards, w.newCard()), 1
	}
	w.swap()
	if err := w.try(0, func(o *Options) { o.Format = true }); err != nil {
		w.fail("a format is refused: %v", err)
	}
	w.v.RunUntil(w.v.Now() + 50_000_000)
	w.steps(10)
	if w.r.IntN(3) == 0 { // it has nothing dirty, and is warm
		w.settle()
		w.stop()
	}
	w.crash()
	w.swap()
	theirs, others := w.opt, w.cards
	lent := others[len(others)-1]
	was := bytes.Clone(lent.b)
	w.opt, w.cards = opt, mine
	if w.r.IntN(2) == 0 {
		w.cards = append(slices.Clone(mine), lent)
		w.opt.Policy.Peers++
	}
	if err := w.try(0, nil); err != nil {
		w.fail("with another cache's flash for a peer: %v", err)
	}
	if len(w.cards) == len(mine) {
		if err := w.d.AddPeer(Peer{Name: "foreign", Medium: &slot{card: lent}}); err != nil {
			w.fail("%v", err)
		}
	}
	w.steps(20)
	w.checkAll(false)
	w.crash()
	if !bytes.Equal(lent.b, was) {
		w.fail("another cache's flash was written over")
	}
	w.opt, w.cards = theirs, others
	w.swap()
	w.boot(0)
	w.drain()
	w.crash()
	w.swap()
	w.opt, w.cards = opt, mine
	w.reboot()
}

// eventStartDies: the host's own flash dies while the cache starts, or right behind that. Peers had
// everything, so nothing is lost.
func (w *world) eventStartDies() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	w.crash()
	present := w.present()
	if !present[0] || w.cards[0].broken || !slices.Contains(present[1:], true) {
		w.reboot()
		return
	}
	ended := false
	w.begin(0, nil, func(error) { ended = true })
	for until := w.v.Now() + w.r.Int64N(1+w.a.delay*20); !ended && w.v.Now() < until && w.v.Step(); {
	}
	if w.r.IntN(2) == 0 {
		for i := 0; !ended && i < 2_000_000 && w.v.Step(); i++ {
		}
	}
	w.note("the start has ended: %v", ended)
	w.crash()
	w.d = nil
	w.cards[0].broken = true
	w.takeOverAny(w.present())
}

// runLarge is a world whose cache has more blocks than fit in 64 KiB of a journal: they are warm,
// and what is dirty is found behind them.
func (w *world) runLarge() {
	const sectors = 41_000
	w.a.resize(sectors)
	w.may, w.back = blank(sectors), blank(sectors)
	w.size = 24 << 20
	w.opt.BlockSectors, w.opt.FillBytes, w.opt.Policy.Peers, w.opt.Throttle.Area = 8, 16<<20, 0, 0
	w.cards = []*card{w.newCard()}
	w.boot(0)
	for at := uint64(0); at+512 <= sectors; at += 512 {
		w.submit(&block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: 512}, Data: [][]byte{w.mem.take(512 << block.SectorShift)}}, func(r *block.Request) {
			if r.Status != block.OK {
				w.fail("read: %v", r.Status)
			}
		})
	}
	w.settle()
	w.v.RunUntil(w.v.Now() + 50_000_000)
	for range 3 {
		w.crash()
		w.reboot()
		w.steps(20)
	}
	w.checkAll(false)
}

// TestDeadHostAcknowledgesNothing: an answer that a client would get behind the death of its host, such as that of a timer
// which was set before, is not heard.
func TestDeadHostAcknowledgesNothing(t *testing.T) {
	l := newLab(t, nil)
	l.size, l.mem = 1<<20, &arena{}
	h := l.otherHost()
	l.a.gate[block.OpRead] = true
	for _, host := range []struct {
		name  string
		d     *Disk
		path  *path
		crash func()
	}{{"another host", h.d, h.path, h.crash}, {"the host", l.d, l.path, l.crash}} {
		l.clientsAt(host.d, host.path)
		acknowledged := false
		r := &block.Request{Op: block.OpRead, Range: block.Range{Start: 0, Count: 8}, Data: [][]byte{make([]byte, 8<<block.SectorShift)}}
		l.submit(r, func(*block.Request) { acknowledged = true })
		l.v.Call(l.v.Now()+1_000_000, func() { r.Done(r) })
		host.crash()
		if acknowledged || l.inflight != 0 || len(l.pending) != 0 {
			t.Errorf("%s: acknowledged %v, %d in flight, %d pending", host.name, acknowledged, l.inflight, len(l.pending))
		}
	}
}
