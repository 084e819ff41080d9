// The entries of pages: what the meta store has of each page beside it, in the same batch.

package node

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/array/window"
)

// How an entry stands in the meta store:
//
//	l vol u32 level u8 idx u64   checksum of the page, CRC32C, u32; for a leaf also its sums, as the slot of an
//	                             absent one has them, u64, and the number of its pool u16
//
// Integers in keys are big endian, in values little endian. The page is verified by the checksum (package metadata).

// EntryPrefix is that of the keys of entries.
const EntryPrefix = "l"

const (
	entryBytes     = 4
	leafEntryBytes = entryBytes + 8 + 2
)

// NoPool is the pool of a leaf that is about to be removed, of which nobody knows it.
const NoPool = 1<<16 - 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry is what the meta store has of a page beside it.
type Entry struct {
	Key  Key
	Leaf window.Slot // of a leaf: the slot of it when it is absent
	Pool uint16      // of a leaf
}

// EntryKey returns the key of the entry of a page.
func EntryKey(page []byte) []byte { return append([]byte(EntryPrefix), page[1:]...) }

// IsPage reports whether a key is that of a page.
func IsPage(key []byte) bool { return string(key[:1]) == Prefix }

// EncodeEntry returns the entry of a page of a node, which has these sums.
func EncodeEntry(level uint8, page []byte, sums window.Sums, pool uint16) []byte {
	b := le.AppendUint32(make([]byte, 0, leafEntryBytes), crc32.Checksum(page, castagnoli))
	if level == 0 {
		b = le.AppendUint16(le.AppendUint64(b, uint64(window.Absent(sums))), pool)
	}
	return b
}

// DecodeEntry returns what an entry says, false if it means nothing.
func DecodeEntry(key, value []byte) (e Entry, ok bool) {
	if len(key) != KeyBytes {
		return e, false
	}
	switch e.Key = KeyOf(key); {
	case e.Key.Level > 0:
		return e, len(value) == entryBytes
	case len(value) != leafEntryBytes:
		return e, false
	}
	e.Leaf, e.Pool = window.Slot(le.Uint64(value[4:])), le.Uint16(value[12:])
	return e, e.Leaf.Kind() == window.KindAbsent
}

// LevelPrefix returns what the keys of the pages of a level of a volume begin with.
func LevelPrefix(vol uint32, level uint8) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(Prefix), vol), level)
}
