package tier

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// boot opens the disk of a host on its card, or on the copy that peer has of it; that it fails is a failure.
func (w *world) boot(peer int) {
	w.t.Helper()
	if err := w.try(peer, nil); err != nil {
		w.fail("open: %v", err)
	}
}

// try opens it, whatever comes of it.
func (w *world) try(peer int, change func(*Options)) (err error) {
	w.t.Helper()
	opened := false
	w.begin(peer, change, func(e error) { err, opened = e, true })
	for i := 0; !opened && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !opened {
		w.fail("open does not end")
	}
	return w.begun(peer, err)
}

// begin begins to open it.
func (w *world) begin(peer int, change func(*Options), done func(error)) {
	w.life++
	w.path = &path{array: w.a, attention: w.a.dark} // it has not been told yet
	w.a.dark = false
	w.mayOwe = w.a.cuts > 0 // that a flush has told of it may be forgotten
	w.a.paths = append(w.a.paths[:0], w.path)
	w.slots, w.lent = nil, make([]*lent, len(w.cards))
	w.a.notify = nil
	opt := w.opt
	opt.Below, opt.Boot = w.path, w.bootID
	opt.Witness = &witness{w: w, path: w.path}
	if w.seed > 0 {
		opt.ID = w.r.Uint64() | 1
	}
	for i, c := range w.cards {
		s := &slot{card: c}
		w.slots = append(w.slots, s)
		switch {
		case i == peer:
			opt.Flash = s
		case peer == 0:
			opt.Peers = append(opt.Peers, Peer{Name: fmt.Sprint("p", i), Medium: w.medium(i, s)})
		}
	}
	if peer > 0 {
		opt.TakeOver, opt.Boot = true, w.bootID+1000
		opt.Policy = Policy{Mode: WriteThrough}
	}
	if change != nil {
		change(&opt)
	}
	life := w.life
	Open(opt, func(d *Disk, e error) {
		if life == w.life {
			w.d = d
			done(e)
		}
	})
}

// medium is a peer's card as the host sees it.
func (w *world) medium(i int, s *slot) block.Medium {
	if !w.lends {
		return s
	}
	w.lent[i] = &lent{slot: s}
	return OnDevice(w.lent[i])
}

// begun goes on with a disk that is open, or was refused.
func (w *world) begun(peer int, err error) error {
	w.t.Helper()
	if err != nil {
		w.note("boot peer %d: %v", peer, err)
		for _, s := range w.slots {
			s.dead = true
		}
		w.path.dead = true
		return err
	}
	w.taker = peer
	if peer == 0 {
		clear(w.cut)
		w.doubted = false
	} else if w.cut[w.cards[peer]] { // it has lost its power, with what was not flushed there
		w.flashPowerLost()
	}
	w.found()
	rec := w.d.Recovery()
	w.note("label %+v, boot %d", w.d.members[0].label, w.bootID)
	if rec.Damaged > 0 && len(w.mayFail) == 0 {
		w.fail("%d sectors are damaged after a crash", rec.Damaged)
	}
	w.note("boot peer %d: %+v; flash-sync always %v, volatile flash %v array %v", peer, rec, w.opt.PowerSafe, w.cards[0].volatile, w.a.undo != nil)
	return nil
}

// witness is kept at the array: a host that was fenced cannot store.
type witness struct {
	w    *world
	path *path
}

func (x *witness) Load(done func(Mark, error)) {
	m := x.w.mark
	if x.w.anonymous {
		m.Cache = 0
	}
	x.w.v.At(x.w.v.Now()+x.w.r.Int64N(1_000_000), func() {
		switch {
		case x.path.dead:
		case x.fails():
			done(Mark{}, errBroken)
		default:
			done(m, nil)
		}
	})
}

// Store of a witness that fails may have stored.
func (x *witness) Store(m Mark, done func(error)) {
	x.w.v.At(x.w.v.Now()+x.w.r.Int64N(1_000_000), func() {
		switch {
		case x.path.dead:
			return
		case x.w.silent:
			x.w.unanswered = append(x.w.unanswered, func() { x.Store(m, done) })
			return
		case x.path.fenced:
			done(errBroken)
			return
		case x.fails():
			if x.w.r.IntN(2) == 0 {
				x.w.mark = m
			}
			done(errBroken)
			return
		}
		x.w.mark = m
		done(nil)
	})
}

// fails tells whether the witness fails this time.
func (x *witness) fails() bool {
	if x.w.failures == 0 {
		return false
	}
	x.w.failures--
	return true
}

// answers ends the silence of the witness.
func (w *world) answers() {
	w.silent, w.failures = false, 0
	kept := w.unanswered
	w.unanswered = nil
	for _, fn := range kept {
		fn()
	}
}

// crash takes the host away; what is in flight gets there or not.
func (w *world) crash() {
	w.note("crash with %d in flight", w.inflight)
	w.path.dead = true
	for _, s := range w.slots {
		s.dead = true
		s.card.closed()
	}
	w.afterDeath(w.unfinished)
}

// afterDeath lets pass what a dead host has in flight, of which nothing is acknowledged any more, looks at what is left, and forgets
// the requests.
func (w *world) afterDeath(look func()) {
	w.life++
	w.v.RunUntil(w.v.Now() + max(20_000_000, 2*w.a.delay))
	look()
	w.inflight, w.pending, w.owed = 0, nil, 0
	clear(w.flying)
	clear(w.revoked)
}

// unfinished notes sectors that a write was on its way to as the host died, and whose place cannot
// be read: a start cannot tell whether the write was acknowledged, and takes them for damaged.
func (w *world) unfinished() {
	bad := w.cards[0].bad
	if len(bad) == 0 || w.d == nil || w.taker > 0 {
		return
	}
	per := uint64(w.d.per)
	for _, ranges := range w.flying {
		for _, g := range ranges {
			for s := g.Start; s < g.End(); s++ {
				slot := w.d.ix.Lookup(hostcache.MakeKey(0, s/per))
				if slot == hostcache.None || w.d.frameOf[slot] == noFrame || !bad[int(w.d.flashOffset(w.d.frameOf[slot], int(s%per)))] {
					continue
				}
				w.note("sector %d: a write over what cannot be read was not finished", s)
				w.spoil(s)
				w.badSince = w.nextID
			}
		}
	}
}
