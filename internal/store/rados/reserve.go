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
// room for its first checkpoint, and a volume can be deleted, whose objects then go. When all that was committed has got to its
// place the reserve is written again, as far as there is room. What else fills the pool may be faster.
//
// Nothing guards these objects: what an earlier owner has on its way there makes one more of them or one less, and the
// next removal, or the next start, finds that.
const reservePart = 4 << 20

// reserve is what is known of these objects. It is guarded by Store.mu.
type reserve struct {
	parts []bool // by number: it is there
	busy  bool   // one is being written, or all are being removed
	tries int    // that found no room, since metadata got to their place last
}

// An OSD that was full counts as full for some seconds after it has room again.
const (
	reservePause = 2e9 // until the next try, in nanoseconds
	reserveTries = 10
)

func reserveObject(i int) string { return fmt.Sprintf("reserve.%x", i) }

// openReserve looks for what there is of the reserve. What lacks is written behind the first batch of metadata.
func (s *Store) openReserve() error {
	parts := make([]bool, (s.opt.Reserve+reservePart-1)/reservePart)
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
	if !errors.Is(err, block.ErrFull) || r.busy || !slices.Contains(r.parts, true) {
		return
	}
	r.busy = true
	s.say("the pool is full: metadata go on in the room that is kept for them")
	s.sweep(&s.logLane, len(r.parts), func(i int) *Op {
		return &Op{Object: reserveObject(i), Steps: []Step{{Kind: Remove}}}
	}, absent, func(err error) {
		if r.busy = false; err == nil {
			clear(r.parts)
		}
	})
}

// wantReserve writes what lacks of the reserve, as far as there is room within some seconds. Preconditions: mu is held.
func (s *Store) wantReserve() {
	s.reserve.tries = 0
	s.fillReserve()
}

// fillReserve writes the next object that lacks. Preconditions: mu is held.
func (s *Store) fillReserve() {
	r := &s.reserve
	i := slices.Index(r.parts, false)
	if i < 0 || r.busy || s.closing || s.lost != nil {
		return
	}
	r.busy = true
	op := &Op{Object: reserveObject(i), Steps: []Step{{Kind: Replace, Data: [][]byte{ballast(i)}}}}
	s.submit(&s.dataLane, op, func(op *Op) {
		r.busy = false
		switch {
		case op.Err == nil:
			r.parts[i] = true
			s.fillReserve()
		case errors.Is(op.Err, block.ErrFull) && r.tries < reserveTries:
			r.tries++
			s.cluster.After(reservePause, func() {
				s.enter()
				s.fillReserve()
				s.leave()
			})
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
