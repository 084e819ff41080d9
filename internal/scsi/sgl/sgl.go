// Package sgl takes scatter-gather lists for one sequence of bytes, and has patterns. What Clip and
// Split return shares memory with their argument; what the others return is new.
package sgl

import "bytes"

// Clip returns the n bytes of v from off on, without copying them.
func Clip(v [][]byte, off, n uint64) [][]byte {
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

// Split returns the first n bytes of v, and the others, without copying them.
func Split(v [][]byte, n uint64) (first, rest [][]byte) {
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

// Joined returns at most n bytes of v in one piece.
func Joined(v [][]byte, n int) []byte {
	var out []byte
	for _, b := range v {
		out = append(out, b[:min(len(b), n-len(out))]...)
	}
	return out
}

// IsZero reports whether v holds nothing but zeros.
func IsZero(v [][]byte) bool {
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

// Repeat returns n bytes of b, again and again.
func Repeat(b []byte, n int) []byte {
	out := make([]byte, 0, n)
	for len(out) < n {
		out = append(out, b[:min(len(b), n-len(out))]...)
	}
	return out
}
