// Scatter-gather lists as one sequence of bytes, and patterns. What clip and split return shares
// memory with their argument; what the others return is new.

package scsi

import "bytes"

// clip returns the n bytes of v from off on, without copying them.
func clip(v [][]byte, off, n uint64) [][]byte {
	var out [][]byte
	for _, b := range v {
		if off >= uint64(len(b)) {
			off -= uint64(len(b))
			continue
		}
		b = b[off:]
		off = 0
		if uint64(len(b)) > n {
			b = b[:n]
		}
		if n -= uint64(len(b)); len(b) > 0 {
			out = append(out, b)
		}
		if n == 0 {
			break
		}
	}
	return out
}

// split returns the first n bytes of v, and the others, without copying them.
func split(v [][]byte, n uint64) (first, rest [][]byte) {
	parts := make([][]byte, 0, len(v)+1)
	cut := 0 // how many parts are of the first n bytes
	for _, b := range v {
		if k := min(n, uint64(len(b))); k > 0 {
			parts = append(parts, b[:k])
			cut = len(parts)
			n -= k
			b = b[k:]
		}
		if len(b) > 0 {
			parts = append(parts, b)
		}
	}
	return parts[:cut:cut], parts[cut:]
}

// joined returns at most n bytes of v in one piece.
func joined(v [][]byte, n int) []byte {
	var out []byte
	for _, b := range v {
		out = append(out, b[:min(len(b), n-len(out))]...)
	}
	return out
}

// zero reports whether v holds nothing but zeros.
func zero(v [][]byte) bool {
	for _, b := range v {
		for len(b) > 0 {
			n := min(len(b), len(zeros))
			if !bytes.Equal(b[:n], zeros[:n]) {
				return false
			}
			b = b[n:]
		}
	}
	return true
}

// zeros is what zero compares with: as much as the largest logical block.
var zeros [4096]byte

// repeat returns n bytes of b, again and again.
func repeat(b []byte, n int) []byte {
	out := make([]byte, 0, n)
	for len(out) < n {
		out = append(out, b[:min(len(b), n-len(out))]...)
	}
	return out
}
