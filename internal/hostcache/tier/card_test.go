package tier

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// card is a flash device. It survives its host; what was in flight then got there
// in part, by sectors. Without sync a loss of power takes any of what was written
// since the last one.
type card struct {
	exec *block.Virtual
	rand *rand.Rand
	mem  *arena
	b    []byte
	// volatile: a loss of power takes what was written since the last sync that succeeded. undo is
	// what it would bring back, oldest first; forgotten counts what is no longer in it.
	volatile  bool
	undo      []undone
	forgotten int
	dooms     bool // some are doomed
	delay     int64
	broken    bool
	tired     bool // takes no writes
	// stalled: nothing ends until it goes on; what has waited too long fails, and is carried out all the same.
	stalled bool
	kept    []func()
	bad     map[int]bool // sectors, by byte offset, that cannot be read until they are written
	faults  []fault
	heard   func(*block.IO) // of every transfer
}

// undone is what a sector held before a write. doomed: a sync of the write has failed, so that none
// after it makes it durable.
type undone struct {
	off    int
	old    []byte
	doomed bool
}

// fault makes transfers fail that touch a part of the card: after some that do not, so many do.
type fault struct {
	what        faultKind
	lo, hi      uint64
	skip, times int
}

type faultKind uint8

const (
	faultWrite faultKind = iota
	faultRead
	faultSync
)

// cardDelay is half of what a transfer takes at most, in nanoseconds.
const cardDelay = 200_000

func newCard(v *block.Virtual, r *rand.Rand, size int) *card {
	return &card{exec: v, rand: r, mem: &arena{}, b: make([]byte, size), delay: cardDelay}
}

// arena hands out memory that is given back all at once.
type arena struct {
	chunks [][]byte
	n      int // chunks that are in use
	left   []byte
	cards  map[int][][]byte // by size
	used   [][]byte         // of those
}

func (a *arena) reset() {
	a.n, a.left = 0, nil
	for _, b := range a.used {
		if len(b) <= 2<<20 {
			a.cards[len(b)] = append(a.cards[len(b)], b)
		}
	}
	a.used = a.used[:0]
}

// card returns n bytes of zeros.
func (a *arena) card(n int) (b []byte) {
	if a.cards == nil {
		a.cards = map[int][][]byte{}
	}
	if free := a.cards[n]; len(free) > 0 {
		b, a.cards[n] = free[len(free)-1], free[:len(free)-1]
		clear(b)
	} else {
		b = make([]byte, n)
	}
	a.used = append(a.used, b)
	return b
}

// take returns n bytes with anything in them.
func (a *arena) take(n int) []byte {
	const chunk = 256 << 10
	if n > chunk {
		return make([]byte, n)
	}
	if len(a.left) < n {
		if a.n == len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, chunk))
		}
		a.left = a.chunks[a.n]
		a.n++
	}
	out := a.left[:n:n]
	a.left = a.left[n:]
	return out
}

func (a *arena) clone(b []byte) []byte {
	out := a.take(len(b))
	copy(out, b)
	return out
}

// fails tells whether a fault hits a transfer.
func (c *card) fails(what faultKind, off, n uint64) bool {
	for i := range c.faults {
		f := &c.faults[i]
		if f.what != what || f.times == 0 || what != faultSync && (off >= f.hi || off+n <= f.lo) {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		f.times--
		return true
	}
	return false
}

// mend ends whatever is wrong with the card.
func (c *card) mend() {
	c.broken, c.tired, c.bad, c.faults = false, false, nil, nil
	c.goOn()
}

// slot is a host's way to a card.
type slot struct {
	*card
	dead   bool
	fenced bool // its host may not write any more
}

// stallTimeout is what an initiator waits for a peer that does not answer.
const stallTimeout = 30_000_000

// goOn ends a stall.
func (c *card) goOn() {
	c.stalled = false
	kept := c.kept
	c.kept = nil
	for _, fn := range kept {
		fn()
	}
}

func (s *slot) Size() uint64 { return uint64(len(s.b)) }

var errBroken = errors.New("broken")

func (s *slot) Submit(ios []*block.IO) {
	for _, io := range ios {
		if s.dead {
			continue
		}
		c := s.card
		if c.heard != nil {
			c.heard(io)
		}
		if c.stalled {
			s.stall(io)
			continue
		}
		failed := error(nil)
		moment := c.exec.Now() + c.rand.Int64N(c.delay+1)
		end := moment + c.rand.Int64N(c.delay+1)
		c.exec.Call(moment, func() { failed = s.carryOut(io) })
		c.exec.Call(end, func() {
			if s.dead {
				return
			}
			io.Err = failed
			io.Done(io)
		})
	}
}

// carryOut does a transfer. Of one whose host has died or that fails some sectors get there.
func (s *slot) carryOut(io *block.IO) (failed error) {
	c := s.card
	if c.broken || io.Write && (c.tired || s.fenced) {
		return errBroken
	}
	off := int(io.Off)
	if io.Write {
		hit := c.fails(faultWrite, io.Off, io.N)
		if hit {
			failed = errBroken
		}
		for _, b := range io.Vec {
			for i := 0; i < len(b); i += block.SectorSize {
				if !s.dead && !hit || c.rand.IntN(2) == 0 {
					c.set(off, b[i:i+block.SectorSize])
				}
				off += block.SectorSize
			}
		}
		return failed
	}
	if s.dead {
		return nil
	}
	if c.fails(faultRead, io.Off, io.N) {
		failed = errBroken
	}
	for _, b := range io.Vec {
		if len(c.bad) > 0 {
			for i := 0; i < len(b); i += block.SectorSize {
				if c.bad[off+i] {
					failed = errBroken
				}
			}
		}
		off += copy(b, c.b[off:])
	}
	return failed
}

// stall keeps a transfer until the card goes on. The initiator gives it up before that; then what it
// writes still gets there.
func (s *slot) stall(io *block.IO) {
	c := s.card
	late, copied := false, *io
	if io.Write {
		copied.Vec = nil
		for _, b := range io.Vec {
			copied.Vec = append(copied.Vec, slices.Clone(b))
		}
	}
	c.kept = append(c.kept, func() {
		if s.dead && !io.Write {
			return
		}
		if !late {
			late = true
			s.Submit([]*block.IO{io})
		} else if io.Write {
			copied.Done = func(*block.IO) {}
			s.Submit([]*block.IO{&copied})
		}
	})
	c.exec.At(c.exec.Now()+stallTimeout, func() {
		if late || s.dead {
			return
		}
		late = true
		io.Err = errBroken
		io.Done(io)
	})
}

func (s *slot) Sync(done func(error)) {
	if s.dead {
		return
	}
	c := s.card
	if c.stalled {
		late := false
		c.kept = append(c.kept, func() {
			if !late {
				late = true
				s.Sync(done)
			}
		})
		c.exec.At(c.exec.Now()+stallTimeout, func() {
			if !late && !s.dead {
				late = true
				done(errBroken)
			}
		})
		return
	}
	upTo := c.forgotten + len(c.undo)
	c.exec.Call(c.exec.Now()+c.rand.Int64N(c.delay+1), func() {
		if s.dead {
			return
		}
		failed := error(nil)
		if c.broken || c.tired || s.fenced || c.fails(faultSync, 0, 0) {
			failed = errBroken
		}
		c.synced(upTo-c.forgotten, failed == nil)
		done(failed)
	})
}

// synced ends a sync of the first n writes that are not durable. As on Linux, what a sync that
// failed should have made durable is not made so by the next one of the same opening.
func (c *card) synced(n int, ok bool) {
	if n <= 0 {
		return
	}
	if !ok {
		c.dooms = true
		for i := range c.undo[:n] {
			c.undo[i].doomed = true
		}
		return
	}
	kept := n
	if c.dooms {
		durable := map[int]bool{}
		for i := n - 1; i >= 0; i-- {
			if u := c.undo[i]; !u.doomed {
				durable[u.off] = true
			} else if !durable[u.off] {
				kept--
				c.undo[kept] = u
			}
		}
	}
	c.undo = c.undo[kept:]
	c.forgotten += kept
}

// closed: who opens the card anew finds a device whose next sync is for all that it has.
func (c *card) closed() {
	if !c.dooms {
		return
	}
	c.dooms = false
	for i := range c.undo {
		c.undo[i].doomed = false
	}
}

func (c *card) set(off int, b []byte) {
	if c.volatile {
		c.undo = append(c.undo, undone{off: off, old: c.mem.clone(c.b[off : off+block.SectorSize])})
	}
	if len(c.bad) > 0 {
		delete(c.bad, off)
	}
	copy(c.b[off:], b)
}

// powerCut leaves of what is not synced any subset, by sectors.
func (c *card) powerCut() {
	slices.SortStableFunc(c.undo, func(a, b undone) int { return a.off - b.off })
	for i := 0; i < len(c.undo); {
		k := i + 1
		for k < len(c.undo) && c.undo[k].off == c.undo[i].off {
			k++
		}
		if c.rand.IntN(2) == 0 {
			copy(c.b[c.undo[i].off:], c.undo[i+c.rand.IntN(k-i)].old)
		}
		i = k
	}
	c.forgotten += len(c.undo)
	c.undo = c.undo[:0]
}

// lent is a card as the LUN that another host lends: see OnDevice. After a loss of power it says so
// before the next command ends.
type lent struct {
	*slot
	attention bool
	notify    []func(block.Event)
}

func (l *lent) Info() block.Info {
	return block.Info{Sectors: l.Size() >> block.SectorShift, BlockSize: 512}
}
func (l *lent) Notify(fn func(block.Event)) { l.notify = append(l.notify, fn) }
func (l *lent) Cancel(*block.Request)       {}
func (l *lent) end(r *block.Request, e error) {
	if l.attention {
		l.attention = false
		for _, fn := range l.notify {
			fn(block.Event{Kind: block.EventPowerLoss})
		}
	}
	if r.Status = block.OK; e != nil {
		r.Status = block.Offline
	}
	r.Done(r)
}

func (l *lent) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		if r.Op == block.OpFlush {
			l.slot.Sync(func(err error) { l.end(r, err) })
			continue
		}
		l.slot.Submit([]*block.IO{{Write: r.Op == block.OpWrite, Off: r.Range.Start << block.SectorShift, N: r.Range.Bytes(), Vec: r.Data,
			Done: func(io *block.IO) { l.end(r, io.Err) }}})
	}
}
