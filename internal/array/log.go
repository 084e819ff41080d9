package array

import (
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
)

// The log is a ring of records. A record is the commit point of what it describes:
// map edits, and the data pages whose descriptors carry its sequence number.
//
//	 0 crc32c u32 of bytes 4..len | 4 length u32, a multiple of 8 | 8 seq u64 | 16 kind u8, 0 u8 x3, edits u32
//	24 edits: 0 volume u32, state u8, 0 u8 x3 | 8 first sector u64 | 16 sectors u64 | 24 physical sector u64
//
// Edits are blind: they say what a range becomes and never refer to what it was,
// so that replaying them over a map that has some of them already ends in the same
// map. A record of kind wrap says that the ring goes on at its start.
const (
	recordHead = 24
	editBytes  = 32
	recEdits   = 1
	recWrap    = 2
	// maxEdits bounds a record; longer edit lists are several records.
	maxEdits  = 512
	maxRecord = recordHead + maxEdits*editBytes
)

// edit is one blind change of a volume's map.
type edit struct {
	vol   uint32
	state block.State
	block.Range
	phys uint64
}

type journal struct {
	ring []byte
	head int    // where the next record goes
	tail int    // oldest record that a recovery needs
	seq  uint64 // of the newest record
	off  bool   // the store keeps nothing that records could be about
}

// room tells how many bytes a record may take now. One record's worth of slack
// stays free for a wrap marker.
func (j *journal) room() int {
	free := j.tail - j.head
	if free <= 0 {
		free += len(j.ring)
	}
	return free - recordHead - 8
}

// fits tells whether a record with n edits can be appended, wherever the ring ends.
func (j *journal) fits(n int) bool {
	if j.off {
		return true
	}
	need := recordHead + n*editBytes
	if j.head+need+recordHead > len(j.ring) && j.head >= j.tail {
		return len(j.ring)-j.head+need+recordHead < j.room()
	}
	return need+recordHead < j.room()
}

// used returns the bytes between tail and head.
func (j *journal) used() int {
	n := j.head - j.tail
	if n < 0 {
		n += len(j.ring)
	}
	return n
}

// prepare makes room for a record of n edits at the head, wrapping if it must, and
// returns the sequence number that the record will have. Preconditions: fits(n).
func (j *journal) prepare(n int) uint64 {
	if !j.off && j.head+recordHead+n*editBytes+recordHead > len(j.ring) {
		if j.head+recordHead <= len(j.ring) {
			j.seal(j.ring[j.head:j.head+recordHead], recWrap, 0)
		}
		j.head = 0
	}
	return j.seq + 1
}

// append writes the record that was prepared with as many edits.
func (j *journal) append(edits []edit) {
	if j.off {
		j.seq++
		return
	}
	need := recordHead + len(edits)*editBytes
	b := j.ring[j.head : j.head+need]
	for i := range edits {
		e, o := &edits[i], b[recordHead+i*editBytes:]
		le.PutUint32(o, e.vol)
		le.PutUint32(o[4:], uint32(e.state))
		le.PutUint64(o[8:], e.Start)
		le.PutUint64(o[16:], e.Count)
		le.PutUint64(o[24:], e.phys)
	}
	j.seal(b, recEdits, len(edits))
	j.head += need
}

func (j *journal) seal(b []byte, kind uint8, edits int) {
	j.seq++
	le.PutUint32(b[4:], uint32(len(b)))
	le.PutUint64(b[8:], j.seq)
	le.PutUint32(b[16:], uint32(kind))
	le.PutUint32(b[20:], uint32(edits))
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}

// replay calls fn for the edits of every record from (tail, seq+1) on, and leaves
// head behind the last valid one.
func (j *journal) replay(fn func(edit)) {
	at := j.tail
	for {
		if at+recordHead > len(j.ring) {
			at = 0
		}
		b := j.ring[at:]
		n := int(le.Uint32(b[4:]))
		if n < recordHead || n > maxRecord || n > len(b) || le.Uint64(b[8:]) != j.seq+1 ||
			crc32.Checksum(b[4:n], castagnoli) != le.Uint32(b) {
			break
		}
		j.seq++
		if b[16] == recWrap {
			at = 0
			continue
		}
		for i := range int(le.Uint32(b[20:])) {
			o := b[recordHead+i*editBytes:]
			fn(edit{
				vol: le.Uint32(o), state: block.State(o[4] & 3),
				Range: block.Range{Start: le.Uint64(o[8:]), Count: le.Uint64(o[16:])},
				phys:  le.Uint64(o[24:]),
			})
		}
		at += n
	}
	j.head = at
}
