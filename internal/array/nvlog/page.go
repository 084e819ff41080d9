// A page's descriptor: its 64 bytes, its checksum, its tombstones. The newest descriptor of an
// address wins at a start.

package nvlog

import (
	"hash/crc32"
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// Page buffers and their descriptors. The cache decides what is in a page and when it may be used
// again; the bytes are changed only through the methods here.
//
// Page descriptor, little endian:
//
//	 0 seq u64 (0: never used) | 8 key u64 | 16 volume u32 | 20 valid sectors u8 | 21 tombstone u8, 0 u8 x2
//	24 crc32c of each sector u32 x8 | 56 origin of each sector, 4 bits x8 | 60 crc32c of bytes 0..59
//
// The words of a descriptor are written in the order of Describe, SetSum and Seal, and a processor
// does not tear an aligned word: one that is half written when the process dies is either invalid,
// or still the old one. What is invalid counts for nothing while its number is one that no record
// has; Replace is for one that a record has.
const (
	descBytes     = 64
	descSum       = 60 // where the descriptor's checksum is
	descTombstone = 21
)

// Tombstone is the mark of a descriptor whose page does not count any more.
type Tombstone uint8

// The tombstones, one bit each. Both may be set.
const (
	// Destaged: the page's sectors are on the back end, and so is all that is older of its address.
	Destaged Tombstone = 1
	// Superseded: the page was replaced or dropped. That says nothing of what is older.
	Superseded Tombstone = 2
)

// Descriptor is the descriptor of a page: in place, or a copy.
type Descriptor []byte

// NewDescriptor returns an empty descriptor outside of NVRAM.
func NewDescriptor() Descriptor { return make(Descriptor, descBytes) }

// Seq returns the number of the page's log record, 0 if it was never used.
func (d Descriptor) Seq() uint64 { return le.Uint64(d) }

// Key returns the physical address of the page's sectors.
func (d Descriptor) Key() layout.PageKey { return layout.PageKey(le.Uint64(d[8:])) }

// Volume returns the number of the volume that wrote the page.
func (d Descriptor) Volume() uint32 { return le.Uint32(d[16:]) }

// Mask returns the sectors that were valid when the page was sealed.
func (d Descriptor) Mask() uint8 { return d[20] }

// Tombstone returns the marks of a page that does not count any more.
func (d Descriptor) Tombstone() Tombstone { return Tombstone(d[descTombstone]) }

// Retired reports whether the page has a tombstone.
func (d Descriptor) Retired() bool { return d[descTombstone] != 0 }

// Sum returns the CRC32C of a sector.
func (d Descriptor) Sum(sector int) uint32 { return le.Uint32(d[24+4*sector:]) }

// Origins returns the origin of each sector, 4 bits for each.
func (d Descriptor) Origins() uint32 { return le.Uint32(d[56:]) }

// Valid reports whether the descriptor's own checksum is right.
func (d Descriptor) Valid() bool {
	return le.Uint32(d[descSum:]) == crc32.Checksum(d[:descSum], castagnoli)
}

// SetSum sets the CRC32C of a sector.
func (d Descriptor) SetSum(sector int, sum uint32) { le.PutUint32(d[24+4*sector:], sum) }

// SetSums is SetSum of sectors from first on.
func (d Descriptor) SetSums(first int, sums []uint32) {
	for i, sum := range sums {
		d.SetSum(first+i, sum)
	}
}

// Seal writes all but the checksums of the sectors, which are there already, and makes the
// descriptor valid.
func (d Descriptor) Seal(seq uint64, k layout.PageKey, volume uint32, mask uint8, origins uint32) {
	le.PutUint64(d, seq)
	le.PutUint64(d[8:], uint64(k))
	le.PutUint32(d[16:], volume)
	le.PutUint32(d[20:], uint32(mask))
	le.PutUint32(d[56:], origins)
	le.PutUint32(d[descSum:], crc32.Checksum(d[:descSum], castagnoli))
}

// repair flips the one bit that makes an invalid descriptor valid, if there is one.
func (d Descriptor) repair() bool { return repairBlock(d, descSum) }

// blank reports whether the descriptor was never written, but for one flipped bit perhaps.
func (d Descriptor) blank() bool {
	n := 0
	for _, b := range d {
		n += bits.OnesCount8(b)
	}
	return n <= 1
}

// Condition is what a start finds of a page.
type Condition uint8

// The conditions.
const (
	// Unused: it never was, or its record was never written, or it was free and just being filled.
	Unused Condition = iota
	// Used: its descriptor is valid, and its record in the log or older. It may have a tombstone.
	Used
	// Damaged: it may have counted, and nobody knows for what.
	Damaged
)

// Examine says what a start finds of a page when last is the number of the last record that counts.
// A single flipped bit of the descriptor is repaired first: its number decides whether the page
// counts.
func (n *NVRAM) Examine(page uint32, last uint64) Condition {
	d := n.Descriptor(page)
	whole := n.mend(page)
	switch seq := d.Seq(); {
	case seq == 0, whole && seq > last:
		return Unused
	case whole:
		return Used
	case seq > last && seq <= n.furthest(last), d.Retired(), d.blank():
		return Unused
	}
	return Damaged
}

// furthest returns the greatest number that a page which was being filled can carry when the log ends
// with record last: the power may have failed behind the death of the process, and have taken the
// records up to that page's, as many as the ring holds.
func (n *NVRAM) furthest(last uint64) uint64 { return last + 1 + uint64(n.LogBytes/recordHead) }

// mend puts a descriptor right that only one flipped bit makes invalid. It reports whether it is
// valid now.
func (n *NVRAM) mend(page uint32) bool {
	d := n.Descriptor(page)
	if d.Valid() {
		return true
	}
	if d.Seq() == 0 || !d.repair() {
		return false
	}
	n.touch(block.PartDescriptors, int(page)*descBytes, descBytes)
	return true
}

// Descriptor returns the descriptor of a page, to be read.
func (n *NVRAM) Descriptor(page uint32) Descriptor {
	o := int(page) * descBytes
	return Descriptor(n.descs[o : o+descBytes : o+descBytes])
}

// Describe returns the descriptor of a page, to be written. Preconditions: the page is free.
func (n *NVRAM) Describe(page uint32) Descriptor {
	d := n.Descriptor(page)
	n.touch(block.PartDescriptors, int(page)*descBytes, descBytes)
	return d
}

// Retire marks the descriptor of a page with a tombstone. It is durable with the next flush. A
// tombstone is one bit: where the process dies before the new checksum is written, Examine takes
// the bit back, and the page counts again, as it did.
func (n *NVRAM) Retire(page uint32, mark Tombstone) {
	d := n.Describe(page)
	d[descTombstone] |= uint8(mark)
	le.PutUint32(d[descSum:], crc32.Checksum(d[:descSum], castagnoli))
}

// Clear makes the descriptor of a page one that was never used. Its number goes first: from then on
// it says nothing.
func (n *NVRAM) Clear(page uint32) {
	if d := n.Descriptor(page); [descBytes]byte(d) == [descBytes]byte{} {
		return // most are so at a start, which need not make the kernel write them
	}
	d := n.Describe(page)
	le.PutUint64(d, 0)
	clear(d[8:])
}

// Replace makes the descriptor of a page one of a record that is in the log already. The process may
// die within it, and a number that counts must not stand beside what is half another page's: so the
// number goes first, and comes last. Preconditions: the page is free.
func (n *NVRAM) Replace(page uint32, to Descriptor) {
	n.Clear(page)
	d := n.Describe(page)
	copy(d[8:], to[8:])
	le.PutUint64(n.Describe(page), to.Seq())
}

// Page returns the data of a page, to be read.
func (n *NVRAM) Page(page uint32) []byte {
	o := int(page) * layout.PageBytes
	return n.data[o : o+layout.PageBytes : o+layout.PageBytes]
}

// Sectors returns the data of sectors [from, to), to be read. They are counted over all pages:
// sector s of page p is p*layout.PageSectors+s. Neighbouring pages are one buffer.
func (n *NVRAM) Sectors(from, to int) []byte {
	return n.data[from*block.SectorSize : to*block.SectorSize]
}

// Write returns the buffer of count sectors of a page from first on, to be filled.
// Preconditions: the page is free.
func (n *NVRAM) Write(page uint32, first, count int) []byte {
	o, k := int(page)*layout.PageBytes+first*block.SectorSize, count*block.SectorSize
	b := n.data[o : o+k : o+k]
	n.touch(block.PartPages, o, k)
	return b
}

// CopySector copies the data of a sector from one page to another, which is free.
func (n *NVRAM) CopySector(to, from uint32, sector int) {
	copy(n.Write(to, sector, 1), n.Page(from)[sector*block.SectorSize:])
}

// GoodSectors returns the valid sectors of a page whose checksums are right.
func (n *NVRAM) GoodSectors(page uint32) uint8 {
	d, data := n.Descriptor(page), n.Page(page)
	good := d.Mask()
	for left := good; left != 0; left &= left - 1 {
		s := bits.TrailingZeros8(left)
		if crc32.Checksum(data[s*block.SectorSize:(s+1)*block.SectorSize], castagnoli) != d.Sum(s) {
			good &^= 1 << s
		}
	}
	return good
}
