// The digest of all that a meta store holds, and what a batch changes of it. A batch that fails
// takes back what it has changed.

package metadata

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
)

// The meta store detects what damages one of its blocks, but not that it lost its last batches, or
// a whole table. So each batch carries its number, which NVRAM knows too, and a digest of all that
// the store holds then:
//
//	g    number u64, sum of the digests of all other keys u64
const keyGen = "g"

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// digest is what the meta store holds, as the array knows it.
type digest struct {
	of  map[string]uint64
	sum uint64
}

func digestOf(key, value []byte) uint64 {
	return uint64(crc32.Checksum(value, castagnoli))<<32 | uint64(crc32.Checksum(key, castagnoli))
}

// set books a key; a nil value is its removal.
func (d *digest) set(key, value []byte) {
	if d.of == nil {
		d.of = map[string]uint64{}
	}
	d.sum -= d.of[string(key)]
	if value == nil {
		delete(d.of, string(key))
		return
	}
	h := digestOf(key, value)
	d.of[string(key)] = h
	d.sum += h
}

// undo returns what takes the booking of a batch back.
func (d *digest) undo(batch []block.KV) func() {
	type entry struct {
		of   uint64
		have bool
	}
	sum, was := d.sum, make([]entry, len(batch))
	for i, e := range batch {
		was[i].of, was[i].have = d.of[string(e.Key)]
	}
	return func() {
		for i, e := range batch {
			if was[i].have {
				d.of[string(e.Key)] = was[i].of
			} else {
				delete(d.of, string(e.Key))
			}
		}
		d.sum = sum
	}
}
