package tier

import "github.com/arraysim/arraysim/internal/block"

// Events in which a cache's contents move: to another host's cache of the LUN and back, or by what is read from below.

// until runs the clock until something has come about.
func (w *world) until(what string, come *bool) {
	w.t.Helper()
	for i := 0; !*come && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !*come {
		w.fail("%s does not end: %s", what, w.d.dump())
	}
}

// clientsAt makes a host the one that requests come to; what is under way elsewhere goes on.
func (w *world) clientsAt(d *Disk, p *path) { w.d, w.path = d, p }

// move begins to copy the cache that has the clients into another one.
func (w *world) move(to *Disk, copied *bool) {
	m := Migration{Depth: w.r.IntN(8)}
	if w.r.IntN(2) == 0 {
		m.Carry = func(_ uint64, done func()) { w.v.Call(w.v.Now()+w.r.Int64N(2_000_000), done) }
	}
	to.MigrateFrom(w.d, m, func(int, uint64) { *copied = true })
}

// arrive ends a move to a host, which has the clients then, and looks at what they read there.
func (w *world) arrive(to *Disk, p *path, copied *bool) {
	left := w.land(to, p, copied)
	w.checkAll(false)
	left()
}

// land ends a move to a host, which has the clients then. left waits until the host that they have left holds nothing.
func (w *world) land(to *Disk, p *path, copied *bool) (left func()) {
	w.until("a copy", copied)
	w.settle()
	from, arrived, empty := w.d, false, false
	to.Arrive(from, func() { arrived = true })
	w.until("an arrival", &arrived)
	from.Drop(func(int64) { empty = true })
	if w.r.IntN(2) == 0 {
		w.until("a drop", &empty)
	}
	w.clientsAt(to, p)
	return func() { w.until("a drop", &empty) }
}

// eventGuestMoves: a guest moves to another host with its cache, and perhaps back, while it writes. Its writes are queued when
// the copy begins, and one of the hosts may die in it, or right behind it.
func (w *world) eventGuestMoves() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	w.settle()
	h := w.otherHost()
	mine, way, token, copied := w.d, w.path, uint64(0), false
	w.steps(w.r.IntN(20))
	mine.Quiesce(1e15, func(t uint64) {
		token = t
		w.move(h.d, &copied)
	})
	w.steps(w.r.IntN(60))
	switch w.r.IntN(5) {
	case 0:
		w.note("the old host dies")
		w.crash()
		h.end()
		w.reboot()
		return
	case 1:
		w.note("the new host dies")
		h.end()
		w.steps(10)
		w.settle()
		mine.Resume(token)
		return
	}
	if w.r.IntN(3) > 0 {
		w.arrive(h.d, h.path, &copied)
		w.steps(w.r.IntN(30))
	} else { // right behind its arrival, or with requests under way
		left := w.land(h.d, h.path, &copied)
		w.steps(max(0, w.r.IntN(30)-10))
		h.crash()
		left()
		if w.r.IntN(2) == 0 {
			w.note("the guest is restarted at the host that it has left")
			w.clientsAt(mine, way)
			w.checkAll(false)
			mine.Resume(token)
			w.steps(w.r.IntN(20))
			w.settle()
			h.end()
			return
		}
		h.open()
		w.clientsAt(h.d, h.path)
		w.checkAll(false)
		w.steps(w.r.IntN(30))
	}
	w.settle()
	if w.r.IntN(3) == 0 {
		w.note("the host that it has left dies")
		w.clientsAt(mine, way)
		w.crash()
		h.end()
		w.reboot()
		return
	}
	copied = false
	w.move(mine, &copied)
	w.steps(w.r.IntN(60))
	w.arrive(mine, way, &copied)
	mine.Resume(token)
	w.steps(w.r.IntN(20))
	w.settle()
	h.end()
}

// eventWarm: the cache reads what it holds, and other ranges, beside requests. It is dropped meanwhile, the warm-up is stopped,
// or the host dies in it.
func (w *world) eventWarm() {
	var list []block.Range
	for from := 0; ; {
		if list, from = w.d.Contents(list, from); from == 0 {
			break
		}
		w.steps(w.r.IntN(2)) // blocks may change their slots between two pieces
	}
	for range w.r.IntN(8) {
		list = append(list, w.someRange(200), block.Range{Start: w.r.Uint64N(w.a.sectors), Count: w.r.Uint64()})
	}
	ended, empty := false, true
	if w.r.IntN(2) == 0 {
		empty = false
		w.d.Drop(func(int64) { empty = true })
	}
	stop := w.d.Warm(block.Union(list), func(uint64) { ended = true })
	w.steps(w.r.IntN(20))
	switch w.r.IntN(4) {
	case 0:
		w.crash()
		w.reboot()
		return
	case 1:
		stop()
	}
	w.settle()
	w.until("a warm-up", &ended)
	w.until("a drop", &empty)
}
