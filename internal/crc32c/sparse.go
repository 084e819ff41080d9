package crc32c

// Table-driven CRCs cost a look-up for each byte. Long multiples of the polynomial with few terms
// allow another way: such a multiple says that a bit of the message may be taken out if
// some bits behind it are flipped, without a change to the remainder. With all offsets at least
// a word long, a whole word is taken out by shifts and XORs at a time.
//
// These offsets in bits are those of a multiple with 6 terms, of degree 297: x^297 + x^(297-101) +
// x^(297-105) + x^(297-219) + x^(297-255) + 1. There is no multiple with 4 terms below 5000
// bits; among those with 6 of at most 320 bits this one needs the fewest operations, since 105 and 297
// are equal modulo 64. TestOffsets proves that it is one.
var offsets = [...]int{101, 105, 219, 255, 297}

// tailWords is the number of words behind the one that is taken out which that changes.
const tailWords = 5

// sparse returns the remainder of b after what went before, without the inversions
// of CRC32C. The length of b is a multiple of 8, and at least 48.
func sparse(b []byte, before uint32) uint32 {
	// v to z are what is to be flipped in the word that comes next, and the ones after it.
	v, w, x, y, z := uint64(before), uint64(0), uint64(0), uint64(0), uint64(0)
	for ; len(b) >= 8*(tailWords+5); b = b[40:] {
		// All loads come first: an emulator must keep its books before each.
		p := (*[40]byte)(b)
		v ^= le.Uint64(p[0:8])
		w ^= le.Uint64(p[8:16])
		x ^= le.Uint64(p[16:24])
		y ^= le.Uint64(p[24:32])
		z ^= le.Uint64(p[32:40])
		c := v
		l, r := c<<41, c>>23
		w ^= c<<37 ^ l
		x ^= c>>27 ^ r
		y ^= c<<27 ^ c<<63
		z ^= c>>37 ^ c>>1 ^ l
		v = r
		c = w
		l, r = c<<41, c>>23
		x ^= c<<37 ^ l
		y ^= c>>27 ^ r
		z ^= c<<27 ^ c<<63
		v ^= c>>37 ^ c>>1 ^ l
		w = r
		c = x
		l, r = c<<41, c>>23
		y ^= c<<37 ^ l
		z ^= c>>27 ^ r
		v ^= c<<27 ^ c<<63
		w ^= c>>37 ^ c>>1 ^ l
		x = r
		c = y
		l, r = c<<41, c>>23
		z ^= c<<37 ^ l
		v ^= c>>27 ^ r
		w ^= c<<27 ^ c<<63
		x ^= c>>37 ^ c>>1 ^ l
		y = r
		c = z
		l, r = c<<41, c>>23
		v ^= c<<37 ^ l
		w ^= c>>27 ^ r
		x ^= c<<27 ^ c<<63
		y ^= c>>37 ^ c>>1 ^ l
		z = r
	}
	for ; len(b) > 8*tailWords; b = b[8:] {
		c := v ^ le.Uint64(b)
		l, r := c<<41, c>>23
		v, w, x, y, z = w^c<<37^l, x^c>>27^r, y^c<<27^c<<63, z^c>>37^c>>1^l, r
	}
	// hash/crc32 would have these words in memory of the heap: it calls by pointer what it computes with.
	p := (*[8 * tailWords]byte)(b)
	c := word(v ^ le.Uint64(p[0:8]))
	c = word(uint64(c) ^ w ^ le.Uint64(p[8:16]))
	c = word(uint64(c) ^ x ^ le.Uint64(p[16:24]))
	c = word(uint64(c) ^ y ^ le.Uint64(p[24:32]))
	return word(uint64(c) ^ z ^ le.Uint64(p[32:40]))
}
