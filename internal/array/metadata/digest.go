// The digest of all that a meta store holds, and what a batch changes of it. A batch that fails
// takes back what it has changed.

package metadata

import (
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
)

// The meta store detects what damages one of its blocks, but not that it lost its last batches, or
// a whole table. So each batch carries its number, which NVRAM knows too, and a digest of all that
// the store holds then:
//
//	g    number u64, sum of the digests of all other keys u64
const keyGen = "g"

// digest is what the meta store holds, as the array knows it.
type digest struct {
	of  checksums // of values
	sum uint64
}

func digestOf(key, value []byte) uint64 { return digestWith(key, checksumOf(value)) }

// digestWith is digestOf of a value with a checksum.
func digestWith(key []byte, value uint32) uint64 {
	return uint64(value)<<32 | uint64(checksumOf(key))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksumOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// set books a key; a nil value is its removal.
func (d *digest) set(key, value []byte) {
	if was, ok := d.of.get(key); ok {
		d.sum -= digestWith(key, was)
	}
	if value == nil {
		d.of.remove(key)
		return
	}
	is := checksumOf(value)
	d.of.set(key, is)
	d.sum += digestWith(key, is)
}

// undo returns what takes the booking of a batch back.
func (d *digest) undo(batch []block.KV) func() {
	type entry struct {
		of   uint32
		have bool
	}
	sum, was := d.sum, make([]entry, len(batch))
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
		d.sum = sum
	}
}
