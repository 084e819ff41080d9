// A record's bytes: how edits are put into one, and how it is known for whole. A record that is not
// whole ends the log.

package nvlog

import (
	"hash/crc32"
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
)

// A record is the commit point of what it describes: edits of maps, and the data pages whose
// descriptors carry its number.
//
//	 0 crc32c u32 of bytes 4..len | 4 length u32, a multiple of 8 | 8 seq u64 | 16 kind u8, more u8, pages u16, edits u32
//	24 edits: 0 volume u32, state u8, 0 u8 x3 | 8 first sector u64 | 16 sectors u64 | 24 physical sector u64
//
// A record of kind wrap says that the ring goes on at its start. Pages is the number of page
// descriptors that carry the record's number: after a loss of power, a record counts only if it has
// them all. More is 1 where the command goes on in the next record: it counts only with its last
// one.
const (
	recordHead = 24
	editBytes  = 32
	kindEdits  = 1
	kindWrap   = 2
	// MaxEdits bounds a record; longer lists of edits are several records.
	MaxEdits  = 512
	maxRecord = recordHead + MaxEdits*editBytes
)

// Edit is one change of a volume's map. Edits are blind: they say what a range becomes and never
// refer to what it was, so that replaying them over a map that has some of them already ends in the
// same map.
type Edit struct {
	Volume uint32
	State  block.State
	block.Range
	Phys uint64 // first sector in the pool, where State is block.Data
}

// recordBytes returns the length of a record with n edits.
func recordBytes(n int) int { return recordHead + n*editBytes }

// putEdits writes the edits of a record.
func putEdits(record []byte, edits []Edit) {
	for i := range edits {
		e, o := &edits[i], record[recordBytes(i):]
		le.PutUint32(o, e.Volume)
		le.PutUint32(o[4:], uint32(e.State))
		le.PutUint64(o[8:], e.Start)
		le.PutUint64(o[16:], e.Count)
		le.PutUint64(o[24:], e.Phys)
	}
}

// eachEdit calls fn for the edits of a record.
func eachEdit(record []byte, fn func(Edit)) {
	for b := record[recordHead:]; len(b) >= editBytes; b = b[editBytes:] {
		fn(Edit{
			Volume: le.Uint32(b), State: block.State(b[4] & 3),
			Range: block.Range{Start: le.Uint64(b[8:]), Count: le.Uint64(b[16:])},
			Phys:  le.Uint64(b[24:]),
		})
	}
}

// sealRecord writes the head of a record, whose edits are there already; its checksum comes last.
func sealRecord(b []byte, seq uint64, kind uint8, more bool, edits, pages int) {
	goesOn := uint32(0)
	if more {
		goesOn = 1
	}
	le.PutUint32(b[4:], uint32(len(b)))
	le.PutUint64(b[8:], seq)
	le.PutUint32(b[16:], uint32(kind)|goesOn<<8|uint32(pages)<<16)
	le.PutUint32(b[20:], uint32(edits))
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}

func isWrap(record []byte) bool        { return record[16] == kindWrap }
func hasMore(record []byte) bool       { return record[17] != 0 }
func recordPages(record []byte) uint16 { return le.Uint16(record[18:]) }

// validRecord reports whether b begins with the record of this number.
func validRecord(b []byte, seq uint64) bool {
	n := int(le.Uint32(b[4:]))
	return n >= recordHead && n <= maxRecord && n <= len(b) && le.Uint64(b[8:]) == seq &&
		crc32.Checksum(b[4:n], castagnoli) == le.Uint32(b)
}

// repairRecord puts the one flipped bit of a record right. A record that was never
// written differs in more than one bit of its number, or of its checksum.
func repairRecord(b []byte, seq uint64) bool {
	flip := func(bit int) bool {
		b[bit/8] ^= 1 << (bit % 8)
		if validRecord(b, seq) {
			return true
		}
		b[bit/8] ^= 1 << (bit % 8)
		return false
	}
	if bits.OnesCount64(le.Uint64(b[8:])^seq) > 1 {
		return false
	}
	for bit := range recordHead * 8 {
		if flip(bit) {
			return true
		}
	}
	n := int(le.Uint32(b[4:]))
	if n < recordHead || n > maxRecord || n > len(b) || le.Uint64(b[8:]) != seq {
		return false
	}
	bit := flippedBit(n-4, le.Uint32(b)^crc32.Checksum(b[4:n], castagnoli))
	return bit >= 0 && flip(4*8+bit)
}

// flippedBit returns the bit of n bytes whose flip changes their CRC32C by so much, -1 if there is
// none. What a flip changes depends only on how many bytes follow, so that one walk from the end
// finds it.
func flippedBit(n int, change uint32) int {
	var delta [8]uint32
	for bit := range delta {
		delta[bit] = castagnoli[1<<bit]
	}
	for at := n - 1; at >= 0; at-- {
		for bit, d := range delta {
			if d == change {
				return at*8 + bit
			}
			delta[bit] = d>>8 ^ castagnoli[byte(d)]
		}
	}
	return -1
}
