// Sets of the 128 sectors of a window, as two words. They are values: nothing here allocates.

package layout

import "math/bits"

// Mask is a set of the sectors of a window. The zero value is the empty set.
type Mask [2]uint64

// MaskOf returns the sectors [first, first+n) of a window. Preconditions: first+n is at most
// WindowSectors.
func MaskOf(first, n uint64) Mask {
	var m Mask
	end := first + n
	if first < 64 {
		m[0] = ones(min(end, 64)) &^ ones(first)
	}
	if end > 64 {
		m[1] = ones(end-64) &^ ones(max(first, 64)-64)
	}
	return m
}

// ones returns the lowest n bits set, n from 0 to 64.
func ones(n uint64) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<n - 1
}

// And returns the sectors that are in both sets.
func (m Mask) And(o Mask) Mask { return Mask{m[0] & o[0], m[1] & o[1]} }

// Or returns the sectors that are in either set.
func (m Mask) Or(o Mask) Mask { return Mask{m[0] | o[0], m[1] | o[1]} }

// AndNot returns the sectors of m that are not in o.
func (m Mask) AndNot(o Mask) Mask { return Mask{m[0] &^ o[0], m[1] &^ o[1]} }

// Not returns the sectors that are not in m.
func (m Mask) Not() Mask { return Mask{^m[0], ^m[1]} }

// Empty reports whether no sector is in m.
func (m Mask) Empty() bool { return m[0]|m[1] == 0 }

// Full reports whether all sectors of a window are in m.
func (m Mask) Full() bool { return m[0]&m[1] == ^uint64(0) }

// Has reports whether sector i is in m.
func (m Mask) Has(i uint64) bool { return m[i>>6]>>(i&63)&1 != 0 }

// Count returns the number of sectors in m.
func (m Mask) Count() int64 { return int64(bits.OnesCount64(m[0]) + bits.OnesCount64(m[1])) }

// Next returns the first sector in m at or after i, WindowSectors if there is none.
func (m Mask) Next(i uint64) uint64 {
	if i < 64 {
		if w := m[0] >> i; w != 0 {
			return i + uint64(bits.TrailingZeros64(w))
		}
		i = 64
	}
	if i < WindowSectors {
		if w := m[1] >> (i - 64); w != 0 {
			return i + uint64(bits.TrailingZeros64(w))
		}
	}
	return WindowSectors
}
