// The ring of records: its numbers, its room, and claims, without which nobody appends. Invariant:
// all claims together have room, so that an append never fails for lack of it.

package nvlog

// Log is a ring of records with consecutive numbers. The head is where the next record goes, the
// tail is the oldest one that a recovery needs; the tail moves when a checkpoint is durable.
// Invariants: what lies between tail and head is never overwritten; behind the head there is always
// room for one more record head, so that a full ring differs from an empty one and a wrap can be
// noted.
//
// Over a store without payload there is nothing that records could be about: they are numbered and
// not written.
type Log struct {
	nv   *NVRAM
	size int // of the ring, in bytes
	head int
	tail int
	seq  uint64 // of the newest record
	off  bool
	// starved: somebody was refused room since the last checkpoint began.
	starved bool
	record  [maxRecord]byte // that is being made
}

// NewLog returns the empty log of a region; Start says where a log that was used begins.
func NewLog(nv *NVRAM) *Log { return &Log{nv: nv, size: nv.LogBytes, off: !nv.Payload} }

// Seq returns the number of the newest record.
func (l *Log) Seq() uint64 { return l.seq }

// Size returns the bytes of the ring.
func (l *Log) Size() int { return l.size }

// Used returns the bytes between tail and head.
func (l *Log) Used() int {
	n := l.head - l.tail
	if n < 0 {
		n += l.size
	}
	return n
}

// Fits reports whether Claim would find room for a command with n edits.
func (l *Log) Fits(n int) bool {
	starved := l.starved // who asks does not wait
	_, ok := l.Claim(n)
	l.starved = starved
	return ok
}

// EverFits reports whether a command with n edits can be appended to an empty ring, wherever its
// head is.
func (l *Log) EverFits(n int) bool {
	need := n*editBytes + (n/MaxEdits+2)*recordHead + maxRecord + recordHead
	return l.off || need+8 < l.size
}

// wraps reports whether a record at a place has to go to the ring's start instead.
func (l *Log) wraps(at, size int) bool { return at+size+recordHead > l.size }

// Starve notes that somebody waits for room, so that a checkpoint is worth its while.
func (l *Log) Starve() { l.starved = true }

// Starved reports whether somebody was refused room since the last checkpoint began.
func (l *Log) Starved() bool { return l.starved }

// BeginCheckpoint returns the position where replay begins once the checkpoint that begins now is
// durable: the number of the newest record and the offset behind it.
func (l *Log) BeginCheckpoint() (seq uint64, tail int) {
	l.starved = false
	return l.seq, l.head
}

// Tail returns the offset of the oldest record that a recovery needs.
func (l *Log) Tail() int { return l.tail }

// Trim gives the room before an offset back: a checkpoint that begins there is durable.
func (l *Log) Trim(tail int) { l.tail, l.starved = tail, false }

// Renumber begins a new run of numbers, further on than a ring can hold, and returns the last
// number before it. What an interrupted write left behind the end of the log can then never be read
// as a part of it.
func (l *Log) Renumber() uint64 {
	l.seq += 1 << 32
	return l.seq
}

// Claim is room in the ring for all records of one command. It is made before the command's first
// effect and is good until the step ends or another one is made. There is no other way to append,
// and a claim takes no more than it has claimed: so no record ever finds the ring full.
type Claim struct {
	log   *Log
	seq   uint64 // of the newest record when it was made or used last
	edits int    // that are still to come
	done  bool
}

// Claim returns room for a command of n edits, in as many records as that takes, wherever the ring
// ends; false means that there is none now.
func (l *Log) Claim(n int) (Claim, bool) {
	c := Claim{log: l, seq: l.seq, edits: n}
	if l.off {
		return c, true
	}
	at, need := l.head, recordHead // one record head's worth of slack stays free for a wrap
	for first := true; first || n > 0; first = false {
		size := recordBytes(min(n, MaxEdits))
		if l.wraps(at, size) {
			need += l.size - at
			at = 0
		}
		at, need, n = at+size, need+size, n-MaxEdits
	}
	if need+8 >= l.size-l.Used() {
		l.starved = true
		return Claim{}, false
	}
	return c, true
}

// Next makes the head the place of the claim's next record, wrapping if it must, and returns the
// number that the record will have.
func (c *Claim) Next() uint64 {
	l := c.log
	if !l.off && l.wraps(l.head, recordBytes(min(c.edits, MaxEdits))) {
		if l.head+recordHead <= l.size {
			l.seq++
			c.seq++
			sealRecord(l.record[:recordHead], l.seq, kindWrap, false, 0, 0)
			l.nv.write(l.head, l.record[:recordHead])
		}
		l.head = 0
	}
	return l.seq + 1
}

// Append writes the claim's next record, of as many edits as one takes, for so many pages, and
// returns those that are left. edits are all that are still to come. It refuses, and changes
// nothing, when they are more or fewer than were claimed, or when others have appended since.
func (c *Claim) Append(edits []Edit, pages int) (rest []Edit, ok bool) {
	l := c.log
	if l == nil || len(edits) != c.edits || c.done || c.seq != l.seq {
		return edits, false
	}
	c.Next()
	n := min(len(edits), MaxEdits)
	c.edits -= n
	c.done = c.edits == 0
	if l.off {
		l.seq++
		c.seq = l.seq
		return edits[n:], true
	}
	b := l.record[:recordBytes(n)]
	putEdits(b, edits[:n])
	l.seq++
	sealRecord(b, l.seq, kindEdits, !c.done, n, pages)
	l.nv.write(l.head, b)
	l.head += len(b)
	c.seq = l.seq
	if c.done { // a start clears the first records of a command that has no last one
		l.nv.setNewest(l.seq)
	}
	return edits[n:], true
}
