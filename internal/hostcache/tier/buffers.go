package tier

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
)

// keptBuffers bounds the bytes of buffers that wait to be used again.
const keptBuffers = 16 << 20

// buffers are the memory of fills, destages and moves. The zero value has to be told its unit.
type buffers struct {
	unit  uint64      // bytes of the smallest
	free  [8][][]byte // of one unit, two, four...: what is larger is not kept
	kept  uint64      // bytes that are free
	inUse uint64      // bytes that were asked for and not given back
	all   []byte      // unless it is nil: what everybody gets, since nobody looks at what is in it
}

// take returns n bytes of anything, or nil if more than limit would be in use then.
func (b *buffers) take(n, limit uint64) []byte {
	if b.inUse+n > limit {
		return nil
	}
	b.inUse += n
	if b.all != nil {
		if uint64(len(b.all)) < n {
			b.all = make([]byte, n)
		}
		return b.all[:n]
	}
	k := b.class(n)
	if k >= len(b.free) {
		return make([]byte, n)
	}
	if last := len(b.free[k]) - 1; last >= 0 {
		p := b.free[k][last]
		b.free[k] = b.free[k][:last]
		b.kept -= uint64(cap(p))
		return p[:n]
	}
	return make([]byte, n, b.unit<<k)
}

// give takes back what take has returned.
func (b *buffers) give(p []byte) {
	b.inUse -= uint64(len(p))
	c := uint64(cap(p))
	if k := b.class(c); b.all == nil && k < len(b.free) && b.unit<<k == c && b.kept+c <= keptBuffers {
		b.kept += c
		b.free[k] = append(b.free[k], p)
	}
}

// class returns the index in free of the smallest buffers that have n bytes. Preconditions: n is not 0.
func (b *buffers) class(n uint64) int { return bits.Len64((n - 1) / b.unit) }

// gather copies from v, from byte off on, into p, which take has returned.
func (b *buffers) gather(p []byte, v [][]byte, off uint64) {
	if b.all == nil {
		gather(p, v, off)
	}
}

// gather copies from v, from byte off on, into b.
func gather(b []byte, v [][]byte, off uint64) {
	for _, s := range v {
		l := uint64(len(s))
		if off >= l {
			off -= l
			continue
		}
		b = b[copy(b, s[off:]):]
		if off = 0; len(b) == 0 {
			return
		}
	}
}

// newBuffers returns buffers of which the smallest have so many sectors.
func newBuffers(sectors uint64, hollow bool) buffers {
	b := buffers{unit: sectors << block.SectorShift}
	if hollow {
		b.all = make([]byte, b.unit)
	}
	return b
}
