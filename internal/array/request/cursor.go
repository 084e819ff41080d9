// A reader of scatter lists.

package request

// cursor reads a scatter list in order.
type cursor struct {
	vec    [][]byte
	i, off int
}

func (c *cursor) copyTo(dst []byte) {
	for len(dst) > 0 {
		n := copy(dst, c.vec[c.i][c.off:])
		dst = dst[n:]
		c.advance(n)
	}
}

func (c *cursor) advance(n int) {
	if c.off += n; c.off == len(c.vec[c.i]) {
		c.i, c.off = c.i+1, 0
	}
}

// take appends to dst the next n bytes of the list, without copying them.
func (c *cursor) take(dst [][]byte, n int) [][]byte {
	for n > 0 {
		b := c.vec[c.i][c.off:]
		b = b[:min(n, len(b)):min(n, len(b))]
		dst = append(dst, b)
		c.advance(len(b))
		n -= len(b)
	}
	return dst
}

// zero fills the next n bytes of the list with zeros.
func (c *cursor) zero(n int) {
	for n > 0 && c.i < len(c.vec) {
		b := c.vec[c.i][c.off:]
		b = b[:min(n, len(b))]
		clear(b)
		c.advance(len(b))
		n -= len(b)
	}
}

// skip leaves out the next n bytes of the list.
func (c *cursor) skip(n int) {
	for n > 0 {
		k := min(n, len(c.vec[c.i])-c.off)
		c.advance(k)
		n -= k
	}
}

// copyFrom fills the next bytes of the list from src.
func (c *cursor) copyFrom(src []byte) {
	for len(src) > 0 {
		n := copy(c.vec[c.i][c.off:], src)
		src = src[n:]
		c.advance(n)
	}
}
