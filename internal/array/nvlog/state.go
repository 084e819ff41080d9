// The state block as bytes: two copies, written in turns. The Flusher says what is in it; a start
// reads it before anything else.

package nvlog

import (
	"cmp"
	"hash/crc32"
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
)

// The state block says what is known to be durable. It lies in the header's page, in sectors of its
// own:
//
//	 512 flushed u64 | 8 generation u64 | 16 boot u64, 0: not known | 24 crc32c u32 of bytes 0..23
//	1024 newest record u64 | 8 the same, inverted
//	1536 the state block again: one of the two is durable and whole whenever the process dies, or
//	     the power fails, or one behind the other; see Flusher.save
//	2048 boot u64 of a flush that has begun, and of which nobody has heard that it ended well; else 0
//	2560 u64, not 0: the array died because the account of space was wrong, and the next start derives it
//
// flushed is written when a flush has ended, and so survives with the next one. Both flushed and
// generation only grow.
const (
	stateOffset  = 512
	newestOffset = 1024
	otherOffset  = 1536
	begunOffset  = 2048
	wrongOffset  = 2560
	stateSum     = 24 // where the block's checksum is
	stateBytes   = stateSum + 4
)

// Saved is the state block as a start finds it.
type Saved struct {
	Flushed    uint64 // number of the last record that survived a flush
	Generation uint64 // number of the last batch of the meta store that was durable
	boot       uint64 // start of the machine when it was written; 0: nothing is sure
	newest     uint64 // record that was in the log; counts only if the machine was not started anew
	damaged    bool
	other      bool // the second block says so
	// unheard: the process died before it heard how a flush ended. If that failed, the kernel may
	// take for clean, and forget, what is not on the medium.
	unheard bool
}

// Saved reads the state block. A single flipped bit in it is repaired.
func (n *NVRAM) Saved() Saved {
	s := Saved{}
	if n.version == 1 {
		s.boot = n.region.Boot() // it never knew of a loss of power
		return s
	}
	s.damaged = true
	for _, at := range [...]int{stateOffset, otherOffset} {
		b := n.header[at : at+stateBytes]
		if le.Uint32(b[stateSum:]) != crc32.Checksum(b[:stateSum], castagnoli) && !n.repairState(at, stateSum) {
			continue
		}
		// Of two equal ones that counts which promises less.
		flushed, gen, boot := le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
		order := cmp.Or(cmp.Compare(flushed, s.Flushed), cmp.Compare(gen, s.Generation))
		if s.damaged || order > 0 || order == 0 && boot == 0 {
			s.Flushed, s.Generation, s.boot, s.other = flushed, gen, boot, at == otherOffset
		}
		s.damaged = false
	}
	if s.damaged {
		return s
	}
	// The smaller of the two: a crash between the two stores leaves them apart, and a
	// flipped bit must not claim records that never were.
	s.newest = min(le.Uint64(n.header[newestOffset:]), ^le.Uint64(n.header[newestOffset+8:]))
	// A start of the machine forgets what the kernel thought. A flipped bit hides no flush.
	begun := le.Uint64(n.header[begunOffset:])
	s.unheard = begun != 0 && bits.OnesCount64(begun^n.region.Boot()) <= 1
	return s
}

// Committed reports whether the meta store has ever had an entry, as far as NVRAM knows. Blocks that
// are damaged hide none.
func (n *NVRAM) Committed() bool {
	if n.version == 1 {
		return true
	}
	for _, at := range [...]int{stateOffset, otherOffset} {
		b := n.header[at : at+stateBytes]
		switch whole := le.Uint32(b[stateSum:]) == crc32.Checksum(b[:stateSum], castagnoli); {
		case [stateBytes]byte(b) == [stateBytes]byte{}: // none was written yet
		case !whole, le.Uint64(b[8:]) != 0:
			return true
		}
	}
	return false
}

// sameBoot reports whether the machine has run since the state was saved. What is not known is no
// proof.
func (s *Saved) sameBoot(now uint64) bool { return s.boot != 0 && s.boot == now }

// saveState writes one of the two state blocks.
func (n *NVRAM) saveState(other bool, flushed, generation, boot uint64) {
	at := stateOffset
	if other {
		at = otherOffset
	}
	b := n.header[at : at+stateBytes]
	n.touch(block.PartState, at, stateBytes)
	le.PutUint64(b, flushed)
	le.PutUint64(b[8:], generation)
	le.PutUint64(b[16:], boot)
	le.PutUint32(b[stateSum:], crc32.Checksum(b[:stateSum], castagnoli))
}

// setBegun writes the boot under which a flush has begun; 0: the last one has ended well. A processor
// does not tear the word.
func (n *NVRAM) setBegun(boot uint64) {
	n.touch(block.PartState, begunOffset, 8)
	le.PutUint64(n.header[begunOffset:], boot)
}

// SetMiscounted writes whether the account of space is known to be wrong. Nobody flushes it: a process that dies leaves it.
func (n *NVRAM) SetMiscounted(wrong bool) {
	v := uint64(0)
	if wrong {
		v = 1
	}
	n.touch(block.PartState, wrongOffset, 8)
	le.PutUint64(n.header[wrongOffset:], v)
}

// Miscounted reports whether the account of space is known to be wrong.
func (n *NVRAM) Miscounted() bool { return le.Uint64(n.header[wrongOffset:]) != 0 }

// setNewest writes the number of the newest record twice, the second time inverted: a word that
// does not agree with its other was hit by a crash or by damage.
func (n *NVRAM) setNewest(seq uint64) {
	b := n.header[newestOffset : newestOffset+16]
	n.touch(block.PartState, newestOffset, len(b))
	le.PutUint64(b, seq)
	le.PutUint64(b[8:], ^seq)
}
