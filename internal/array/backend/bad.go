// The list of sectors whose data is lost. The back end owns it, a checkpoint keeps it; it changes
// when data is written over, dropped, or found bad.

package backend

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// BadSectors is the list of sectors that failed their checksum: dirty ones when the array started,
// which are lost while what the back end has is older, and those on mdisks when they were read.
// They are never served and never destaged; reading one is a medium error until it is written
// again.
//
// Encoding: u64 each, little endian, ascending: key<<3 | sector of the page.
type BadSectors struct {
	set    map[uint64]struct{}
	stored bool // the checkpoint has a list of them
}

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

// Forget takes sectors of a page off the list: they are written anew, or gone.
func (b *BadSectors) Forget(k layout.PageKey, mask uint8) {
	for left := mask; left != 0; left &= left - 1 {
		delete(b.set, badKey(k, bits.TrailingZeros8(left)))
	}
}

// First returns the first bad one of the physical sectors [phys, phys+n) of a pool; false means
// that there is none.
func (b *BadSectors) First(pool uint16, phys, n uint64) (uint64, bool) {
	for s := phys; s < phys+n; s++ {
		if b.Has(layout.KeyOf(pool, s), int(s%layout.PageSectors)) {
			return s, true
		}
	}
	return 0, false
}

// BadSector is one of them: a physical sector of a pool.
type BadSector struct {
	Pool uint16
	Phys uint64
}

// List returns them, pool by pool in ascending order.
func (b *BadSectors) List() []BadSector {
	out := make([]BadSector, 0, len(b.set))
	for _, x := range b.sorted() {
		k := layout.PageKey(x >> 3)
		out = append(out, BadSector{k.Pool(), k.Phys() + x&7})
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

// Load reads what Encode has written.
func (b *BadSectors) Load(v []byte) error {
	if len(v)%8 != 0 {
		return errors.New("the list of bad sectors is damaged")
	}
	for ; len(v) > 0; v = v[8:] {
		x := binary.LittleEndian.Uint64(v)
		b.Add(layout.PageKey(x>>3), int(x&7))
		b.stored = true
	}
	return nil
}

// Encode returns the list for a checkpoint; false means that there is none, and that the checkpoint
// before had none. The caller stores what it gets: the next call counts on that.
func (b *BadSectors) Encode() (value []byte, changed bool) {
	if len(b.set) == 0 && !b.stored {
		return nil, false
	}
	b.stored = len(b.set) > 0
	value = []byte{}
	for _, x := range b.sorted() {
		value = binary.LittleEndian.AppendUint64(value, x)
	}
	return value, true
}
