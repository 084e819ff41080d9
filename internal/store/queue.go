package store

import "github.com/arraysim/arraysim/internal/block"

// Transfers of one mdisk that are under way, reads and writes each for themselves: depth of them at the
// most, and none begins while they have depthBytes, which bounds the buffers that reads wait with.
const (
	depth      = 256
	depthBytes = 16 << 20
)

// xfer is a transfer that may wait for a disk, on its way:
//
//	held -> begun -> ended (by a ring or a goroutine of the pool) -> finished
//
// All but the third happens on the executor. A read that waits has a buffer of its own, so that the
// reader's can be given back (Abandon) while the disk has it.
type xfer struct {
	m     *fileMedium
	io    *block.IO
	inner block.IO  // what a read reads: of the same place, into buf
	list  [1][]byte // of inner: buf
	buf   []byte
	own   scratch // its checksums
	err   error

	got   [2]int32 // answers of a ring: of the data, of the checksums
	wants uint8    // how many are outstanding
	known bool     // the checksums were in memory: own has them
	near  bool     // the mapping has all of it
	stale bool     // these did not match, or the read failed: they are to be dropped

	// The queue's:
	place     int     // among those begun
	waits     int     // transfers that it follows and that have not ended
	followers []*xfer // that follow it
	number    uint64  // while it is held
	next      *xfer   // while it is ready, or free
}

// follow has x begin behind the end of y.
func (x *xfer) follow(y *xfer) {
	if n := len(y.followers); n > 0 && y.followers[n-1] == x {
		return
	}
	y.followers = append(y.followers, x)
	x.waits++
}

// span is what a transfer touches.
type span struct {
	off, end uint64
	write    bool
	x        *xfer
}

func spanOf(x *xfer) span { return span{x.io.Off, x.io.Off + x.io.N, x.io.Write, x} }

// queue keeps the transfers of an mdisk in order where order matters: of two that touch the same
// sectors, one of them a write, the later one is held until the earlier one has ended. So is what
// is above the mdisk's depth.
type queue struct {
	reading, writing way
	held             int       // transfers
	index            heldIndex // of these
}

// Regions of an mdisk, by which most transfers are known to touch none of those that have begun.
const (
	regionBytes = 64 << 10
	regionSlots = 1 << 10 // regions share them
	fewBegun    = 8       // fewer are looked at one by one
)

// regions counts the transfers of a way by the regions that they touch.
type regions [regionSlots]uint32

// of returns the first slot of a span, and how many follow, this one included.
func (*regions) of(s span) (first, n uint64) {
	first = s.off / regionBytes
	return first, min((max(s.end, s.off+1)-1)/regionBytes-first+1, regionSlots)
}

func (r *regions) add(s span, d uint32) {
	for at, n := r.of(s); n > 0; at, n = at+1, n-1 {
		r[at%regionSlots] += d
	}
}

// none tells that no transfer touches a span. If it is false, one may.
func (r *regions) none(s span) bool {
	for at, n := r.of(s); n > 0; at, n = at+1, n-1 {
		if r[at%regionSlots] != 0 {
			return false
		}
	}
	return true
}

// way is the reads or the writes of a queue.
type way struct {
	begun       []span
	where       regions // of begun
	bytes       uint64  // of begun
	ready, last *xfer   // held by nothing but the depth, the first and the last one
}

func (w *way) full() bool { return len(w.begun) >= depth || w.bytes >= depthBytes }

func (w *way) begin(s span) {
	s.x.place = len(w.begun)
	w.begun = append(w.begun, s)
	w.where.add(s, 1)
	w.bytes += s.end - s.off
}

// clashes tells whether one that has begun touches what a transfer does.
func (w *way) clashes(s span) bool {
	near := w.near(s)
	for i := range near {
		if b := &near[i]; b.off < s.end && s.off < b.end {
			return true
		}
	}
	return false
}

// near returns those that have begun, or nothing where none of them touches a span.
func (w *way) near(s span) []span {
	if len(w.begun) > fewBegun && w.where.none(s) {
		return nil
	}
	return w.begun
}

// push puts a transfer behind those that are ready.
func (w *way) push(x *xfer) {
	if w.ready == nil {
		w.ready = x
	} else {
		w.last.next = x
	}
	w.last, x.next = x, nil
}

func (w *way) pop() *xfer {
	x := w.ready
	w.ready, x.next = x.next, nil
	return x
}

func (q *queue) way(write bool) *way {
	if write {
		return &q.writing
	}
	return &q.reading
}

// clashes tells whether a transfer would have to follow another one.
func (q *queue) clashes(io *block.IO) bool {
	s := span{off: io.Off, end: io.Off + io.N, write: io.Write}
	return q.writing.clashes(s) || s.write && q.reading.clashes(s) || q.held > 0 && q.index.meets(s)
}

// enter takes a transfer in; it tells whether that begins now, or is held.
func (q *queue) enter(x *xfer) bool {
	s := spanOf(x)
	q.follow(&q.writing, s)
	if s.write {
		q.follow(&q.reading, s)
	}
	if q.held > 0 {
		q.index.follow(s)
	}
	w := q.way(s.write)
	if x.waits == 0 && w.ready == nil && !w.full() {
		w.begin(s)
		return true
	}
	q.held++
	q.index.add(s)
	if x.waits == 0 {
		w.push(x)
	}
	return false
}

// follow has a new transfer follow those that have begun and touch what it does.
func (q *queue) follow(w *way, s span) {
	near := w.near(s)
	q.index.looked += 1 + len(near) // the regions, too
	for i := range near {
		if b := &near[i]; b.off < s.end && s.off < b.end {
			s.x.follow(b.x)
		}
	}
}

// remove takes a transfer out that has ended. What followed it alone is ready then: see advance.
func (q *queue) remove(x *xfer) {
	w := q.way(x.io.Write)
	last := len(w.begun) - 1
	w.where.add(w.begun[x.place], ^uint32(0))
	w.begun[x.place] = w.begun[last]
	w.begun[x.place].x.place = x.place
	w.begun[last] = span{}
	w.begun = w.begun[:last]
	w.bytes -= x.io.N
	for i, y := range x.followers {
		x.followers[i] = nil
		if y.waits--; y.waits == 0 {
			q.way(y.io.Write).push(y)
		}
	}
	x.followers = x.followers[:0]
}

// advance begins those held that can begin now, and appends them to list.
func (q *queue) advance(list []*xfer) []*xfer {
	if q.held == 0 {
		return list
	}
	for _, w := range [...]*way{&q.reading, &q.writing} {
		for w.ready != nil && !w.full() {
			x := w.pop()
			s := spanOf(x)
			q.held--
			q.index.remove(s)
			w.begin(s)
			list = append(list, x)
		}
	}
	return list
}
