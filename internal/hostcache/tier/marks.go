package tier

import "github.com/arraysim/arraysim/internal/block"

// Mark is what a Witness keeps: which cache of a LUN is the newest, and how new its members must be.
type Mark struct {
	NAA        [16]byte // of the LUN
	Cache      uint64   // 0: the witness does not keep it
	Generation uint64   // 0: there is none yet
	// Elsewhere is a generation that others have kept of the LUN, where this witness sees what
	// another one had: it counts for a flash of which this one has no mark that is as new. 0:
	// nobody has.
	Elsewhere uint64 `json:"-"`
}

// Witness keeps a Mark where neither the flash nor a peer is, best at the LUN itself. Who was left out
// of a cache cannot know it, and whoever opens what it has asks here. A host that was fenced must not be
// able to store. done is called on the executor.
type Witness interface {
	Load(done func(Mark, error))
	Store(m Mark, done func(error))
}

// marks make those who stay say that somebody was left out, before anything more is acknowledged: what
// was left out has old dirty sectors, and would destage them over newer ones when it comes back.
type marks struct {
	generation uint64 // what the labels have, or are getting
	due        bool   // somebody was left out or joins, and not all labels say so
	busy       bool
	waiting    []*op // for the end of it
	owed       bool  // the last member takes no writes; it is marked when there is nothing dirty on it any more
	unmarked   bool  // somebody was left out, and there was nobody to say so
	refusal    error // of the witness, the last one
	unstored   bool  // the witness refused the generation; the same members try again with it
}

// generationStep is how much further a generation goes when another host goes on with the cache, or begins anew: the
// host that it was before may not know yet, and raise its own by one for each member that it leaves out. There are fewer
// members than this.
const generationStep = 256

// awaitMarks makes an op wait until the marks are durable. It tells whether there is something to
// wait for; the op's step runs again then, with op.unmarked set if they are not. A mark that is
// owed comes when nothing is dirty, so the op must not keep anything dirty from being destaged.
func (d *Disk) awaitMarks(o *op) bool {
	k := &d.marks
	if !k.due && !k.busy && !k.owed {
		return false
	}
	o.pending++
	k.waiting = append(k.waiting, o)
	d.release(o)
	if k.owed {
		d.turn.wake(d) // the op may have stood in the way of a destage
	} else {
		d.mark()
	}
	return true
}

// failOwed ends what waits for the last member to be clean, when a destage of it fails. The mark
// comes no earlier for that: what is dirty was acknowledged, and a start finds it on a member that
// is not marked.
func (d *Disk) failOwed() {
	k := &d.marks
	if !k.owed {
		return
	}
	ops, parked := k.waiting, d.parked
	k.waiting, d.parked = nil, nil
	for _, o := range ops {
		o.unmarked = true
		o.less()
	}
	for _, o := range parked {
		d.answer(o, block.Offline)
		d.close(o)
	}
}

// mark records the present members as a new generation: first those who stay, then the witness, then
// those who join. So whoever has a generation has all that was acknowledged before it was known.
func (d *Disk) mark() {
	k := &d.marks
	if k.busy {
		return
	}
	k.busy, k.due = true, false
	if !k.unstored {
		k.generation++
	}
	k.unstored = false
	copies := 0
	for _, m := range d.members {
		if m.written() {
			copies++
		}
	}
	d.labelAll(memberPresent, copies, func() {
		if k.owed {
			// The last of them did not take its label. It alone has what is dirty, so it stays the
			// newest: the witness hears when nothing is dirty on it any more.
			k.due = false
			d.markEnds(false)
			return
		}
		if k.due { // one of them was left out meanwhile
			k.busy = false
			d.mark()
			return
		}
		d.witness(func(err error) {
			if err != nil {
				k.due, k.unstored, k.refusal = true, !k.due, err
				d.markEnds(true)
				return
			}
			// One that begins to join meanwhile is no copy by this mark, but by the one behind its snapshot.
			d.labelAll(memberWhole, copies, func() {
				for _, m := range d.members {
					if m.state == memberLabelled {
						m.state = memberPresent
					}
				}
				if k.due {
					k.busy = false
					d.mark()
					return
				}
				d.markEnds(false)
			})
		})
	})
}

func (d *Disk) markEnds(failed bool) {
	k := &d.marks
	k.busy = false
	ops := k.waiting
	k.waiting = nil
	for _, o := range ops {
		o.unmarked = failed
		o.less()
	}
	d.unpark()
	d.review()
	d.pump()
}

// labelAll labels the members in a state, present or whole, then calls done.
func (d *Disk) labelAll(s memberState, copies int, done func()) {
	o := &op{d: d, mode: freeMode, marker: true, pending: 1}
	o.step = func(*op) { done() }
	for _, m := range d.members {
		if m.state == s {
			if s == memberWhole {
				m.state = memberLabelled
			}
			m.writeLabel(o, d.newLabel(m, copies))
		}
	}
	o.less()
	d.pump()
}

func (d *Disk) witness(done func(error)) {
	if d.opt.Witness == nil {
		d.marks.unmarked = d.marks.unmarked || d.source() == nil
		done(nil)
		return
	}
	d.opt.Witness.Store(Mark{NAA: d.info.NAA, Cache: d.cache, Generation: d.marks.generation}, func(err error) {
		done(err)
		d.pump()
	})
}

// park keeps an op that would change the device below from doing it, while the last member takes no
// writes and has dirty data: nobody could tell that what it has is older. It tells whether it does.
func (d *Disk) park(o *op) bool {
	if !d.marks.owed {
		return false
	}
	d.parked = append(d.parked, o)
	return true
}

// unpark lets them go on.
func (d *Disk) unpark() {
	ops := d.parked
	d.parked = nil
	for _, o := range ops {
		if o.mode == freeMode { // it has not begun
			d.route(o)
			continue
		}
		d.enter(o)
	}
}
