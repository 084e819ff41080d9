package rados

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// The reserve is room that metadata find in a pool that is full: objects (reserve.N) of 4 MiB that mean nothing. Where
// metadata meet a full pool they are removed, which needs no room, and the metadata try again. So a start finds
// room for its first checkpoint, and a volume can be deleted, whose objects then go. Some seconds after all that was committed
// has got to its place the reserve is written again, as far as there is room. What else fills the pool may be faster.
//
// Nothing guards these objects: what an earlier owner has on its way there makes one more of them or one less, and the
// next removal, or the next start, finds that.
const reservePart = 4 << 20

// reserve is what is known of these objects. It is guarded by Store.mu.
type reserve struct {
	parts   []bool // by number: it is there
	filling bool   // one is being written
	giving  bool   // all are being removed
	given   bool   // they were given up since the one that is being written began: it goes, too
	armed   bool   // fillReserve is due
	short   bool   // metadata found no room since it became due
	tries   int    // that found no room, since metadata got to their place last
}

// An OSD that was full counts as full for some seconds after it has room again.
const (
	reservePause = 2e9 // until the next try, in nanoseconds
	reserveTries = 10
	// headPause and headTries bound how long the head waits for the room that the reserve gives up.
	headPause = 500e6
	headTries = 20
)

func reserveObject(i int) string { return fmt.Sprintf("reserve.%x", i) }

func (s *Store) reserveParts() int { return (s.opt.Reserve + reservePart - 1) / reservePart }

// openReserve looks for what there is of the reserve. What lacks is written some seconds behind the start.
func (s *Store) openReserve() error {
	parts := make([]bool, s.reserveParts())
	err := s.doAll(len(parts), func(i int) *Op {
		return &Op{Object: reserveObject(i), Steps: []Step{{Kind: Read, Buf: make([]byte, 1)}}}
	}, func(i int, op *Op) error {
		parts[i] = op.Err == nil
		return absent(i, op)
	})
	s.mu.Lock()
	s.reserve.parts = parts
	s.mu.Unlock()
	return err
}

// giveReserve removes the reserve where an error says that the pool is full. Preconditions: mu is held.
func (s *Store) giveReserve(err error) {
	r := &s.reserve
	if !errors.Is(err, block.ErrFull) {
		return
	}
	r.short = true
	r.given = r.given || r.filling
	if r.giving || !slices.Contains(r.parts, true) {
		return
	}
	s.say("the pool is full: metadata continues in the room reserved for it")
	s.removeReserve(nil)
}

// removeReserve removes the reserve by name, and calls done, which may be nil, with mu held, and with whether there was
// anything of it. Preconditions: mu is held, it is not being removed.
func (s *Store) removeReserve(done func(had bool)) {
	r := &s.reserve
	r.giving = true
	had := false
	s.sweep(&s.logLane, s.reserveParts(), func(i int) *Op {
		return &Op{Object: reserveObject(i), Steps: []Step{{Kind: Remove}}}
	}, func(i int, op *Op) error {
		had = had || op.Err == nil
		if err := absent(i, op); err != nil {
			return err
		}
		if i < len(r.parts) {
			r.parts[i] = false
		}
		return nil
	}, func(error) {
		r.giving = false
		if done != nil {
			done(had)
		}
	})
}

// makeRoom has the head, which found none, find room in the reserve: it calls again, with mu held, when it is to be tried
// once more. tries is how often it was tried before; false: there is no use in it. Preconditions: mu is held.
func (s *Store) makeRoom(tries int, err error, again func(useful bool)) (useful bool) {
	if !errors.Is(err, block.ErrFull) || tries >= headTries || s.lost != nil {
		return false
	}
	r := &s.reserve
	r.short = true
	r.given = r.given || r.filling
	later := func() {
		s.cluster.After(headPause, func() {
			s.enter()
			again(true)
			s.leave()
		})
	}
	switch {
	case tries > 0 || r.giving:
		later()
	case s.reserveParts() == 0:
		return false
	default:
		s.say("the pool is full: the array's head grows into the room reserved for metadata")
		s.removeReserve(func(had bool) {
			if had || r.given {
				later()
			} else {
				again(false)
			}
		})
	}
	return true
}

// wantReserve writes what lacks of the reserve some seconds later, as far as there is room then. Preconditions: mu is held.
func (s *Store) wantReserve() {
	s.reserve.tries = 0
	s.fillLater()
}

// fillLater has the reserve filled some seconds later, if anything lacks. Preconditions: mu is held.
func (s *Store) fillLater() {
	r := &s.reserve
	if r.armed || !slices.Contains(r.parts, false) {
		return
	}
	r.armed, r.short = true, false
	s.cluster.After(reservePause, func() {
		s.enter()
		defer s.leave()
		r.armed = false
		if !r.short {
			s.fillReserve()
		} else if r.tries++; r.tries < reserveTries {
			s.fillLater() // the room is needed
		}
	})
}

// fillReserve writes the next object that lacks, unless metadata are on their way, which come first. Preconditions: mu is
// held.
func (s *Store) fillReserve() {
	r := &s.reserve
	i := slices.Index(r.parts, false)
	if i < 0 || r.filling || r.giving || s.closing || s.lost != nil || s.meta == nil || len(s.meta.batches) > 0 {
		return // when the last batch is in its place it is asked for again
	}
	r.filling, r.given = true, false
	op := &Op{Object: reserveObject(i), Steps: []Step{{Kind: Replace, Data: [][]byte{ballast(i)}}}}
	s.submit(&s.reserveLane, op, func(op *Op) {
		r.filling = false
		switch {
		case op.Err == nil && r.given:
			r.parts[i] = true
			if !r.giving {
				s.removeReserve(nil)
			}
		case op.Err == nil:
			r.parts[i] = true
			s.fillReserve()
		case errors.Is(op.Err, block.ErrFull) && r.tries < reserveTries:
			r.tries++
			s.fillLater()
		}
	})
}

// ballast is what an object of the reserve holds: nothing that a pool could compress.
func ballast(i int) []byte {
	b := make([]byte, 0, reservePart)
	for x := uint64(i+1) << 32; len(b) < reservePart; {
		x += 0x9E3779B97F4A7C15
		z := (x ^ x>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		b = binary.LittleEndian.AppendUint64(b, z^z>>31)
	}
	return b
}

// evenBytes is what small objects of JSON are filled up to.
const evenBytes = 4096

// even fills JSON up with blanks, so that an object that is replaced by it is as large as before, nearly always: what grows has no
// place in a full pool.
func even(text []byte) []byte {
	for len(text)%evenBytes != 0 {
		text = append(text, ' ')
	}
	return text
}
