// The digest of all that a meta store holds, and what a batch changes of it. A batch that fails
// takes back what it has changed.

package metadata

import (
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
)

// The meta store detects what damages one of its blocks, but not that it lost its last batches, or
// a whole table. So each batch carries its number, which NVRAM knows too, and a digest of what the
// store holds then:
//
//	g    number u64, sum of the digests of all other keys u64                     version 2
//	g    number u64, the same without those of pages u64, 3 u8                    version 3
//	l... checksum of the page n... u32, and what the owner of the page has more
//
// In version 3 a page is verified by its entry, which the digest covers, whenever it is read. So a
// start reads those alone that it needs. A store becomes one of version 3 with a batch behind which
// each page has its entry; see VerifyByParts.
const (
	keyGen   = "g"
	keyPage  = 'n'
	keyEntry = 'l'

	genBytes2 = 16
	genBytes3 = genBytes2 + 1
)

// digest is what the meta store holds, as the array knows it.
type digest struct {
	of    checksums // of values
	sum   uint64
	pages uint64 // what pages have of sum
}

// sumOf returns the digest that a batch carries.
func (d *digest) sumOf(parts bool) uint64 {
	if parts {
		return d.sum - d.pages
	}
	return d.sum
}

// digestWith returns the digest of a key whose value has a checksum.
func digestWith(key []byte, value uint32) uint64 {
	return uint64(value)<<32 | uint64(checksumOf(key))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksumOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// add books a key with the checksum of its value, or takes it back.
func (d *digest) add(key []byte, sum uint32, times uint64) {
	x := digestWith(key, sum) * times
	if d.sum += x; key[0] == keyPage {
		d.pages += x
	}
}

const takenBack = ^uint64(0)

// set books a key; a nil value is its removal.
func (d *digest) set(key, value []byte) {
	if value != nil {
		d.expect(key, checksumOf(value))
		return
	}
	if was, ok := d.of.get(key); ok {
		d.add(key, was, takenBack)
	}
	d.of.remove(key)
}

// expect books a key whose value has a checksum.
func (d *digest) expect(key []byte, sum uint32) {
	if was, ok := d.of.get(key); ok {
		d.add(key, was, takenBack)
	}
	d.of.set(key, sum)
	d.add(key, sum, 1)
}

// pageOf returns the key of the page that an entry is of, and its checksum; false: it is none.
func pageOf(key, value []byte) (page []byte, sum uint32, ok bool) {
	if key[0] != keyEntry || len(value) < 4 {
		return nil, 0, false
	}
	return append([]byte{keyPage}, key[1:]...), le.Uint32(value), true
}

// undo returns what takes the booking of a batch back.
func (d *digest) undo(batch []block.KV) func() {
	type entry struct {
		of   uint32
		have bool
	}
	sum, pages, was := d.sum, d.pages, make([]entry, len(batch))
	for i, e := range batch {
		was[i].of, was[i].have = d.of.get(e.Key)
	}
	return func() {
		for i, e := range batch {
			if was[i].have {
				d.of.set(e.Key, was[i].of)
			} else {
				d.of.remove(e.Key)
			}
		}
		d.sum, d.pages = sum, pages
	}
}
