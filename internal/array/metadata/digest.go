// The digest of all that a meta store holds, and what a batch changes of it. A batch that fails
// takes back what it has changed.

package metadata

import (
	"fmt"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
)

// The meta store detects what damages one of its blocks, but not that it lost its last batches, or
// a whole table. So each batch carries its number, which NVRAM knows too, and a digest of what the
// store holds then:
//
//	g    number u64, sum of the digests of all other keys u64                     version 2
//	g    number u64, the same without those of pages and of the account u64,
//	     3 u8, that of the account of space u64                                   version 3
//	l... checksum of the page n... u32, and what the owner of the page has more
//
// In version 3 a page is verified by its entry, which the digest covers, whenever it is read. So a
// start reads those alone that it needs. The account of space, which pages say as well, has a digest
// of its own: see Derivable. A store becomes one of version 3 with a batch behind which each page has
// its entry; see VerifyByParts.
const (
	keyGen     = "g"
	keyPage    = 'n'
	keyEntry   = 'l'
	keyAccount = 'a'
	keyObjects = 'o'

	genBytes2 = 16
	genBytes3 = genBytes2 + 1 + 8
)

// digest is what the meta store holds, as the array knows it.
type digest struct {
	of checksums // of values
	sums
}

// sums are the digest without the single checksums.
type sums struct {
	sum     uint64 // of all
	pages   uint64 // what pages have of it
	account uint64 // what the account of space has of it
}

// stamp is the number of a batch, and the digest of what the store holds behind it.
type stamp struct {
	gen     uint64 // 0: there was no batch
	sum     uint64
	parts   bool   // pages are verified by parts
	account uint64 // where they are: the digest of the account of space
}

// stamp returns what a batch carries that has a number.
func (d *sums) stamp(gen uint64, parts bool) stamp {
	if parts {
		return stamp{gen, d.sum - d.pages - d.account, true, d.account}
	}
	return stamp{gen: gen, sum: d.sum}
}

func (s stamp) encode() []byte {
	v := le.AppendUint64(le.AppendUint64(nil, s.gen), s.sum)
	if s.parts {
		v = le.AppendUint64(append(v, 3), s.account)
	}
	return v
}

// stampOf returns what the last batch of a meta store carries.
func stampOf(store block.MetaStore) (s stamp, err error) {
	v, err := store.Get([]byte(keyGen))
	if err != nil || v == nil {
		return s, err
	}
	switch {
	case len(v) == genBytes2:
	case len(v) == genBytes3 && v[genBytes2] == 3:
		s.parts, s.account = true, le.Uint64(v[genBytes2+1:])
	default:
		return s, fmt.Errorf("the number of the last checkpoint is damaged")
	}
	s.gen, s.sum = le.Uint64(v), le.Uint64(v[8:])
	return s, nil
}

// digestWith returns the digest of a key whose value has a checksum.
func digestWith(key []byte, value uint32) uint64 {
	return uint64(value)<<32 | uint64(checksumOf(key))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksumOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// add books a key with the checksum of its value, or takes it back.
func (d *sums) add(key []byte, sum uint32, times uint64) {
	x := digestWith(key, sum) * times
	d.sum += x
	switch key[0] {
	case keyPage:
		d.pages += x
	case keyAccount:
		d.account += x
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
	sums, was := d.sums, make([]entry, len(batch))
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
		d.sums = sums
	}
}
