package array

import (
	"hash/crc32"
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
)

// The log is a ring of records. A record is the commit point of what it describes:
// map edits, and the data pages whose descriptors carry its sequence number.
//
//	 0 crc32c u32 of bytes 4..len | 4 length u32, a multiple of 8 | 8 seq u64 | 16 kind u8, more u8, pages u16, edits u32
//	24 edits: 0 volume u32, state u8, 0 u8 x3 | 8 first sector u64 | 16 sectors u64 | 24 physical sector u64
//
// Edits are blind: they say what a range becomes and never refer to what it was,
// so that replaying them over a map that has some of them already ends in the same
// map. A record of kind wrap says that the ring goes on at its start. Pages is the number of
// page descriptors that carry the record's number: after a loss of power, a record counts
// only if it has them all. More is 1 where the command goes on in the next record: it counts
// only with its last one.
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
	// starved: somebody was refused room since the last checkpoint began.
	starved bool
	// newest is the NVRAM's word of seq, see durable.go.
	newest []byte
	nv     *nvram
}

// fits tells whether a command with n edits can be appended, in as many records as that takes,
// wherever the ring ends.
func (j *journal) fits(n int) bool {
	if j.off {
		return true
	}
	at, need := j.head, recordHead // one record's worth of slack stays free for a wrap marker
	for first := true; first || n > 0; first = false {
		size := recordBytes(min(n, maxEdits))
		if j.wraps(at, size) {
			need += len(j.ring) - at
			at = 0
		}
		at, need, n = at+size, need+size, n-maxEdits
	}
	return need+8 < len(j.ring)-j.used()
}

// everFits tells whether a command with n edits can be appended to an empty ring, wherever its head is.
func (j *journal) everFits(n int) bool {
	need := n*editBytes + (n/maxEdits+2)*recordHead + maxRecord + recordHead
	return j.off || need+8 < len(j.ring)
}

// recordBytes returns the length of a record with n edits.
func recordBytes(n int) int { return recordHead + n*editBytes }

// wraps tells whether a record at a place has to go to the ring's start instead.
func (j *journal) wraps(at, size int) bool { return at+size+recordHead > len(j.ring) }

// used returns the bytes between tail and head.
func (j *journal) used() int {
	n := j.head - j.tail
	if n < 0 {
		n += len(j.ring)
	}
	return n
}

// claim is room in the ring for all records of one command. It is made before the command's
// first effect and is good until the step ends or another one is made; there is no other way to append.
type claim struct {
	j     *journal
	seq   uint64 // of the newest record when it was made or used last
	edits int    // that are still to come
	done  bool
}

// claim returns room for a command of n edits; false means that there is none now.
func (j *journal) claim(n int) (claim, bool) {
	if !j.fits(n) {
		j.starved = true
		return claim{}, false
	}
	return claim{j: j, seq: j.seq, edits: n}, true
}

// next makes the head the place of the claim's next record, wrapping if it must, and returns the
// number that the record will have.
func (c *claim) next() uint64 {
	j := c.j
	if !j.off && j.wraps(j.head, recordBytes(min(c.edits, maxEdits))) {
		if j.head+recordHead <= len(j.ring) {
			j.nv.touch(j.nv.logOff+j.head, recordHead)
			j.seal(j.ring[j.head:j.head+recordHead], recWrap, 0, 0, 0)
			c.seq++
		}
		j.head = 0
	}
	return j.seq + 1
}

// append writes the claim's next record, of as many edits as one takes, for so many pages, and
// returns those that are left. It refuses, and changes nothing, when there are more edits than were claimed,
// or when others have appended since.
func (c *claim) append(edits []edit, pages int) (rest []edit, ok bool) {
	j := c.j
	if len(edits) > c.edits || c.done || c.seq != j.seq {
		return edits, false
	}
	c.next()
	n := min(len(edits), maxEdits)
	c.edits -= n
	if c.done = c.edits == 0; j.off {
		j.seq++
		c.seq = j.seq
		return edits[n:], true
	}
	need := recordBytes(n)
	j.nv.touch(j.nv.logOff+j.head, need)
	b := j.ring[j.head : j.head+need]
	for i := range n {
		e, o := &edits[i], b[recordHead+i*editBytes:]
		le.PutUint32(o, e.vol)
		le.PutUint32(o[4:], uint32(e.state))
		le.PutUint64(o[8:], e.Start)
		le.PutUint64(o[16:], e.Count)
		le.PutUint64(o[24:], e.phys)
	}
	more := uint8(0)
	if !c.done {
		more = 1
	}
	j.seal(b, recEdits, more, n, pages)
	j.head += need
	c.seq = j.seq
	j.setNewest()
	return edits[n:], true
}

// setNewest writes the number twice, the second time inverted: a word that does not
// agree with its other was hit by a crash or by damage.
func (j *journal) setNewest() {
	j.nv.touch(newestOffset, 16)
	le.PutUint64(j.newest, j.seq)
	le.PutUint64(j.newest[8:], ^j.seq)
}

func (j *journal) seal(b []byte, kind, more uint8, edits, pages int) {
	j.seq++
	le.PutUint32(b[4:], uint32(len(b)))
	le.PutUint64(b[8:], j.seq)
	le.PutUint32(b[16:], uint32(kind)|uint32(more)<<8|uint32(pages)<<16)
	le.PutUint32(b[20:], uint32(edits))
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}

// scan walks the valid records from (tail, seq+1) on and calls fn with the number and
// the bytes of each until it returns false. It returns where it stopped and the number of the
// last. With mend, a record that only one flipped bit makes invalid is put right.
func (j *journal) scan(mend bool, fn func(seq uint64, rec []byte) bool) (head int, seq uint64) {
	at, seq := j.tail, j.seq
	for {
		if at+recordHead > len(j.ring) {
			at = 0
		}
		b := j.ring[at:]
		if !validRecord(b, seq+1) && !(mend && mendRecord(b, seq+1)) {
			return at, seq
		}
		n := int(le.Uint32(b[4:]))
		if !fn(seq+1, b[:n]) {
			return at, seq
		}
		seq++
		if at += n; b[16] == recWrap {
			at = 0
		}
	}
}

func validRecord(b []byte, seq uint64) bool {
	n := int(le.Uint32(b[4:]))
	return n >= recordHead && n <= maxRecord && n <= len(b) && le.Uint64(b[8:]) == seq &&
		crc32.Checksum(b[4:n], castagnoli) == le.Uint32(b)
}

// mendRecord puts the one flipped bit of a record right. A record that was never
// written differs in more than one bit of its number, or of its checksum.
func mendRecord(b []byte, seq uint64) bool {
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
	for bit := recordHead * 8; bit < n*8; bit++ {
		if flip(bit) {
			return true
		}
	}
	return false
}

// replay calls fn for the edits of every record from (tail, seq+1) to last, and leaves
// head behind it.
func (j *journal) replay(last uint64, fn func(edit)) {
	j.head, j.seq = j.scan(false, func(seq uint64, b []byte) bool {
		if seq > last {
			return false
		}
		if b[16] == recWrap {
			return true
		}
		for b = b[recordHead:]; len(b) >= editBytes; b = b[editBytes:] {
			fn(edit{
				vol: le.Uint32(b), state: block.State(b[4] & 3),
				Range: block.Range{Start: le.Uint64(b[8:]), Count: le.Uint64(b[16:])},
				phys:  le.Uint64(b[24:]),
			})
		}
		return true
	})
}
