// A set of numbers that finds its next one in a few steps, however many it could have.

package alloc

import "math/bits"

// bitset is a set of numbers below a bound. Level 0 has a bit for each number; each level above has
// one for each word of the level below that is not 0, up to a single word. So what a walk over the
// set costs depends on the numbers that are in it, and not on the bound. It takes a bit and a 63rd
// of one for each number that it could have.
//
// Invariant: a bit above level 0 is set exactly if its word is not 0.
type bitset [][]uint64

const wordBits = 64

// newBitset returns an empty set of numbers below n.
func newBitset(n int) bitset {
	var b bitset
	for {
		n = max(1, (n+wordBits-1)/wordBits)
		b = append(b, make([]uint64, n))
		if n == 1 {
			return b
		}
	}
}

// add puts a number into the set.
func (b bitset) add(i uint32) {
	for _, words := range b {
		w := &words[i/wordBits]
		had := *w != 0
		*w |= 1 << (i % wordBits)
		if had { // the levels above say so already
			return
		}
		i /= wordBits
	}
}

// remove takes a number out of the set, if it is there.
func (b bitset) remove(i uint32) {
	for _, words := range b {
		w := &words[i/wordBits]
		if *w &^= 1 << (i % wordBits); *w != 0 {
			return
		}
		i /= wordBits
	}
}

// has reports whether a number is in the set.
func (b bitset) has(i uint32) bool { return b[0][i/wordBits]>>(i%wordBits)&1 != 0 }

// empty reports whether there are no numbers in the set.
func (b bitset) empty() bool { return b[len(b)-1][0] == 0 }

// next returns the least number of the set that is not below from; false: there is none.
func (b bitset) next(from uint32) (uint32, bool) {
	i := from
	for level := 0; level < len(b); level++ {
		if words := b[level]; int(i/wordBits) < len(words) {
			if w := words[i/wordBits] >> (i % wordBits); w != 0 {
				i += uint32(bits.TrailingZeros64(w))
				for ; level > 0; level-- {
					i = i*wordBits + uint32(bits.TrailingZeros64(b[level-1][i]))
				}
				return i, true
			}
		}
		i = i/wordBits + 1
	}
	return 0, false
}

// bytes returns the memory that the set takes.
func (b bitset) bytes() (n uint64) {
	for _, words := range b {
		n += uint64(len(words)) * 8
	}
	return n
}
