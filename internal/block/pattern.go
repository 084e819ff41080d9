package block

import "bytes"

// Pattern is memory that is full of one block, over and over, for whoever writes it next: those who wait
// need not have it. It is used again.
type Pattern struct {
	b   []byte
	len int // of the block
	vec [1][]byte
}

// Of returns size bytes of a block that lies in pieces, as a list, until the next call. Preconditions:
// the block is not empty, and no longer than that; size is the same in all calls.
func (p *Pattern) Of(data [][]byte, size int) [][]byte {
	n, at, differs := VecLen(data), 0, false
	if len(p.b) != size {
		p.b, p.len = make([]byte, size), 0
	}
	for _, b := range data {
		if to := p.b[at : at+len(b)]; !bytes.Equal(to, b) {
			differs = true
			copy(to, b)
		}
		at += len(b)
	}
	if differs || n != p.len {
		for p.len = n; n < size; n *= 2 {
			copy(p.b[n:], p.b[:n])
		}
	}
	p.vec[0] = p.b
	return p.vec[:]
}
