package tier

import "github.com/arraysim/arraysim/internal/block"

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
	if n := w.d.requested.Peers; n > 0 && w.r.IntN(2) == 0 { // those that are left are enough
		w.d.SetPolicy(Policy{Mode: WriteBack, Peers: n - 1}, nil)
	}
	w.path.fenced = true
	for _, s := range w.slots {
		s.fenced = s.fenced || s.card == w.cards[peer]
	}
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
