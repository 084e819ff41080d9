// The sectors of a pool whose data is lost. A pool has its list, a checkpoint keeps those of all
// pools as one; a list changes when data is written over, dropped, or found bad.

package backend

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// BadSectors is the list of a pool's sectors that failed their checksum: dirty ones when the array
// started, which are lost while what the back end has is older, and those on mdisks when they were
// read. They are never served and never destaged; reading one is a medium error until it is written
// again.
//
// Encoding: u64 each, little endian, ascending: key<<3 | sector of the page. So the lists of pools
// in their order, one behind the other, are the list of them all.
type BadSectors struct {
	pool uint16
	set  map[uint64]struct{}
}

// BadSectorsOf returns the empty list of a pool.
func BadSectorsOf(pool uint16) BadSectors { return BadSectors{pool: pool} }

func badKey(k layout.PageKey, sector int) uint64 { return uint64(k)<<3 | uint64(sector) }

// Len returns how many there are.
func (b *BadSectors) Len() int { return len(b.set) }

// Add puts a sector of a page on the list.
func (b *BadSectors) Add(k layout.PageKey, sector int) {
	if b.set == nil {
		b.set = map[uint64]struct{}{}
	}
	b.set[badKey(k, sector)] = struct{}{}
}

// AddMask puts the sectors of a page that are in a mask on the list.
func (b *BadSectors) AddMask(k layout.PageKey, mask uint8) {
	for left := mask; left != 0; left &= left - 1 {
		b.Add(k, bits.TrailingZeros8(left))
	}
}

// Has reports whether a sector of a page is on the list.
func (b *BadSectors) Has(k layout.PageKey, sector int) bool {
	_, ok := b.set[badKey(k, sector)]
	return ok
}

// Mask returns the sectors of a page that are on the list.
func (b *BadSectors) Mask(k layout.PageKey) (mask uint8) {
	for s := 0; s < layout.PageSectors && len(b.set) > 0; s++ {
		if b.Has(k, s) {
			mask |= 1 << s
		}
	}
	return mask
}

// Forget takes sectors of a page off the list: they are written anew, or gone.
func (b *BadSectors) Forget(k layout.PageKey, mask uint8) {
	for left := mask; left != 0 && len(b.set) > 0; left &= left - 1 {
		delete(b.set, badKey(k, bits.TrailingZeros8(left)))
	}
}

// ForgetRange is Forget of the physical sectors [phys, phys+n).
func (b *BadSectors) ForgetRange(phys, n uint64) {
	for s := phys; s < phys+n && len(b.set) > 0; s++ {
		b.Forget(layout.KeyOf(b.pool, s), 1<<(s%layout.PageSectors))
	}
}

// ForgetAll is Forget of the sectors of which gone says, by their physical number, that they are.
func (b *BadSectors) ForgetAll(gone func(phys uint64) bool) {
	maps.DeleteFunc(b.set, func(x uint64, _ struct{}) bool { return gone(layout.PageKey(x>>3).Phys() + x&7) })
}

// Any reports whether one of the physical sectors [phys, phys+n) is bad.
func (b *BadSectors) Any(phys, n uint64) bool {
	if len(b.set) == 0 {
		return false
	}
	_, bad := b.First(phys, n)
	return bad
}

// First returns the first bad one of the physical sectors [phys, phys+n); false means that there is
// none.
func (b *BadSectors) First(phys, n uint64) (uint64, bool) {
	for s := phys; s < phys+n; s++ {
		if b.Has(layout.KeyOf(b.pool, s), int(s%layout.PageSectors)) {
			return s, true
		}
	}
	return 0, false
}

// List returns the physical sectors, ascending.
func (b *BadSectors) List() []uint64 {
	out := b.sorted()
	for i, x := range out {
		out[i] = layout.PageKey(x>>3).Phys() + x&7
	}
	return out
}

func (b *BadSectors) sorted() []uint64 {
	list := make([]uint64, 0, len(b.set))
	for x := range b.set {
		list = append(list, x)
	}
	slices.Sort(list)
	return list
}

// Encode appends the list to v.
func (b *BadSectors) Encode(v []byte) []byte {
	for _, x := range b.sorted() {
		v = binary.LittleEndian.AppendUint64(v, x)
	}
	return v
}

// DecodeBad calls fn for each sector that Encode has written, of whatever pool.
func DecodeBad(v []byte, fn func(k layout.PageKey, sector int)) error {
	if len(v)%8 != 0 {
		return errors.New("the list of bad sectors is damaged")
	}
	for ; len(v) > 0; v = v[8:] {
		x := binary.LittleEndian.Uint64(v)
		fn(layout.PageKey(x>>3), int(x&7))
	}
	return nil
}
