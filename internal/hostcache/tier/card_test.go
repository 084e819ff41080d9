package tier

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// card is a flash device. It survives its host; what was in flight then got there
// in part, by sectors. Without sync a loss of power takes any of what was written
// since the last one.
type card struct {
	exec   *block.Virtual
	rand   *rand.Rand
	b      []byte
	undo   []map[int][][]byte // what sectors held before each write since the last sync, and since the one before; nil: safe
	delay  int64
	broken bool
	tired  bool // takes no writes
	// stalled: nothing ends until it goes on; what has waited too long fails, and is carried out all the same.
	stalled bool
	kept    []func()
	bad     map[int]bool    // sectors, by byte offset, that cannot be read until they are written
	heard   func(*block.IO) // of every transfer
}

func newCard(v *block.Virtual, r *rand.Rand, size int) *card {
	return &card{exec: v, rand: r, b: make([]byte, size), delay: 200_000}
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
		failed := error(nil)
		if c.stalled {
			s.stall(io)
			continue
		}
		moment := c.exec.Now() + c.rand.Int64N(c.delay+1)
		end := moment + c.rand.Int64N(c.delay+1)
		data := [][]byte{}
		if io.Write {
			for _, b := range io.Vec {
				data = append(data, slices.Clone(b))
			}
		}
		c.exec.At(moment, func() {
			if c.broken || io.Write && (c.tired || s.fenced) {
				failed = errBroken
				return
			}
			off := io.Off
			if io.Write {
				for _, b := range data {
					for i := 0; i < len(b); i += block.SectorSize {
						if !s.dead || c.rand.IntN(2) == 0 {
							c.set(int(off), b[i:i+block.SectorSize])
						}
						off += block.SectorSize
					}
				}
				return
			}
			if !s.dead {
				for _, b := range io.Vec {
					for i := 0; i < len(b); i += block.SectorSize {
						if c.bad[int(off)] {
							failed = errBroken
						}
						off += uint64(copy(b[i:i+block.SectorSize], c.b[off:]))
					}
				}
			}
		})
		c.exec.At(end, func() {
			if s.dead {
				return
			}
			io.Err = failed
			io.Done(io)
		})
	}
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
	n := len(c.undo)
	if n > 0 {
		c.undo = append(c.undo, map[int][][]byte{})
	}
	c.exec.At(c.exec.Now()+c.rand.Int64N(c.delay+1), func() {
		if s.dead {
			return
		}
		if n > 0 {
			c.undo = c.undo[len(c.undo)-1:]
		}
		var err error
		if c.broken || c.tired || s.fenced {
			err = errBroken
		}
		done(err)
	})
}

func (c *card) set(off int, b []byte) {
	if n := len(c.undo); n > 0 {
		c.undo[n-1][off] = append(c.undo[n-1][off], slices.Clone(c.b[off:off+block.SectorSize]))
	}
	delete(c.bad, off)
	copy(c.b[off:], b)
}

// powerCut leaves of what is not synced any subset, by sectors.
func (c *card) powerCut() {
	for i := len(c.undo) - 1; i >= 0; i-- {
		for _, off := range slices.Sorted(maps.Keys(c.undo[i])) {
			if v := c.undo[i][off]; c.rand.IntN(2) == 0 {
				copy(c.b[off:], v[c.rand.IntN(len(v))])
			}
		}
	}
	if c.undo != nil {
		c.undo = []map[int][][]byte{{}}
	}
}
