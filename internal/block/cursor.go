package block

import (
	"bytes"
	"encoding/binary"
)

// Cursor reads or fills a list of buffers in order. A copy of it goes on by itself.
type Cursor struct {
	Vec    [][]byte
	i, off int
}

// CopyTo fills dst with the next bytes of the list.
func (c *Cursor) CopyTo(dst []byte) {
	for len(dst) > 0 {
		n := copy(dst, c.Vec[c.i][c.off:])
		dst = dst[n:]
		c.advance(n)
	}
}

func (c *Cursor) advance(n int) {
	if c.off += n; c.off == len(c.Vec[c.i]) {
		c.i, c.off = c.i+1, 0
	}
}

// Take appends to dst the next n bytes of the list, without copying them.
func (c *Cursor) Take(dst [][]byte, n int) [][]byte {
	for n > 0 {
		b := c.Vec[c.i][c.off:]
		b = b[:min(n, len(b)):min(n, len(b))]
		dst = append(dst, b)
		c.advance(len(b))
		n -= len(b)
	}
	return dst
}

// Zero fills the next n bytes of the list with zeros.
func (c *Cursor) Zero(n int) {
	for n > 0 && c.i < len(c.Vec) {
		b := c.Vec[c.i][c.off:]
		b = b[:min(n, len(b))]
		clear(b)
		c.advance(len(b))
		n -= len(b)
	}
}

// Skip leaves out the next n bytes of the list.
func (c *Cursor) Skip(n int) {
	for n > 0 {
		k := min(n, len(c.Vec[c.i])-c.off)
		c.advance(k)
		n -= k
	}
}

// CopyFrom fills the next bytes of the list from src.
func (c *Cursor) CopyFrom(src []byte) {
	for len(src) > 0 {
		n := copy(c.Vec[c.i][c.off:], src)
		src = src[n:]
		c.advance(n)
	}
}

// Mismatch returns the index of the first difference of two buffers of one length, -1 if there is none.
func Mismatch(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range b {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// MismatchVec is Mismatch of the beginning of a buffer and a list.
func MismatchVec(a []byte, vec [][]byte) int {
	at := 0
	for _, b := range vec {
		if i := Mismatch(a[at:at+len(b)], b); i >= 0 {
			return at + i
		}
		at += len(b)
	}
	return -1
}

// Or sets those bits of the beginning of a buffer that a list has.
func Or(a []byte, vec [][]byte) {
	for _, b := range vec {
		i := 0
		for ; i+8 <= len(b); i += 8 {
			binary.NativeEndian.PutUint64(a[i:], binary.NativeEndian.Uint64(a[i:])|binary.NativeEndian.Uint64(b[i:]))
		}
		for ; i < len(b); i++ {
			a[i] |= b[i]
		}
		a = a[len(b):]
	}
}
