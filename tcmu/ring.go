package tcmu

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// fetch collects the commands from the cursor to the head in d.batch. It stops
// behind a task management entry.
func (d *Device) fetch() (tmr *TMR, found bool, err error) {
	head := d.mb.head()
	if uint64(head) >= uint64(len(d.ring)) || head%entryAlign != 0 {
		return nil, false, fmt.Errorf("%w: the head is at %d of %d", ErrRing, head, len(d.ring))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// What lies between the cursor and the new head are entries of the past, which were served. Without a reset the head is
	// never between the tail and the cursor, nor at the tail where there are entries: the kernel does not fill the ring up.
	// It is at the cursor, too, where as much was sent since the reset as was fetched before it: initiators send again.
	if d.wasReset() || d.slots.n > 0 && d.ahead(head) < d.ahead(d.cursor) {
		d.lose()
		return nil, true, ErrFault
	}
	if head == d.cursor {
		return nil, false, nil
	}
	tmr, err = d.collect(head)
	if d.wasReset() { // while it was read: nobody knows what of it is of the past, and a bad length says nothing
		for _, c := range d.batch {
			d.retire(c)
		}
		clear(d.batch)
		d.batch = d.batch[:0]
		return nil, true, ErrFault
	}
	return tmr, true, err
}

// collect reads the entries from the cursor to the head, which is elsewhere. Preconditions: mu is held.
func (d *Device) collect(head uint32) (tmr *TMR, err error) {
	for d.cursor != head && tmr == nil {
		// An entry never wraps; the kernel pads the end of the ring.
		limit := uint32(len(d.ring))
		if head > d.cursor {
			limit = head
		}
		room := d.ring[d.cursor:limit]
		if len(room) < headerSize {
			return nil, fmt.Errorf("%w: entry at %d", ErrRing, d.cursor)
		}
		h := (*entryHeader)(unsafe.Pointer(unsafe.SliceData(room)))
		lenOp := atomic.LoadUint32(&h.lenOp)
		size := lenOp &^ opMask
		if size < uint32(headerSize) || int(size) > len(room) {
			return nil, fmt.Errorf("%w: entry of %d bytes at %d", ErrRing, size, d.cursor)
		}
		entry := room[:size]
		switch lenOp & opMask {
		case opPad:
			d.slots.push(slot{d.cursor, size, true})
		case opCmd:
			if int(size) < responseSize {
				return nil, fmt.Errorf("%w: command of %d bytes at %d", ErrRing, size, d.cursor)
			}
			d.slots.push(slot{d.cursor, size, false})
			if d.cursor == 0 {
				atomic.StoreUint64(d.firstMark(), fetchedMark)
			}
			d.take(entry)
		case opTMR:
			d.slots.push(slot{d.cursor, size, true})
			tmr, err = readTMR(entry)
			if err != nil {
				return nil, err
			}
		default:
			// The kernel must be told that this entry was not understood.
			h.uflags |= uflagUnknownOp
			d.slots.push(slot{d.cursor, size, true})
		}
		d.cursor += size
		if d.cursor == uint32(len(d.ring)) {
			d.cursor = 0
		}
	}
	d.pass()
	return tmr, nil
}

// ahead returns how far behind the tail a place of the ring is, in bytes. Preconditions: mu is held.
func (d *Device) ahead(at uint32) uint32 {
	if at < d.tail {
		at += uint32(len(d.ring))
	}
	return at - d.tail
}

// internalFailure is HARDWARE ERROR, INTERNAL TARGET FAILURE in fixed format.
var internalFailure = [18]byte{0: 0x70, 2: 0x04, 7: 10, 12: 0x44}

// take makes a Command of a CMD entry and puts it on the batch. One that points
// outside the mapping, or whose data is not there, is answered here. Preconditions: mu is held.
func (d *Device) take(entry []byte) {
	q := (*cmdRequest)(unsafe.Pointer(unsafe.SliceData(entry)))
	c := d.free
	if c != nil {
		d.free = c.next
	} else {
		c = &Command{dev: d}
	}
	c.id, c.state = q.cmdID, stateLive
	c.prev, c.next = nil, d.live
	if d.live != nil {
		d.live.prev = c
	}
	d.live = c
	d.count++
	if !d.describe(c, q, entry) || d.Guard(c.touch) != nil {
		c.Data = nil
		r := cmdResponse{status: statusCheckCondition}
		copy(r.sense[:], internalFailure[:])
		d.answer(c, &r)
		return
	}
	d.batch = append(d.batch, c)
}

// describe copies CDB and segments out of the entry: the response to another
// command may be written over it at any time. The other side can write to it at any time too, so
// each field is read once, and what is checked is the copy.
func (d *Device) describe(c *Command, q *cmdRequest, entry []byte) bool {
	start, end := d.data-uint64(len(d.ring)), d.data // of the command ring
	off, count := atomic.LoadUint64(&q.cdbOff), atomic.LoadUint32(&q.iovCnt)
	if off < start || off > end-8 {
		return false
	}
	const fixed = 8 // of these bytes the length follows
	copy(c.cdb[:fixed], d.mem[off:end])
	n := cdbLen(c.cdb[0], c.cdb[7])
	if n > maxCDB || uint64(n) > end-off {
		return false
	}
	if n > fixed {
		copy(c.cdb[fixed:n], d.mem[off+fixed:end])
	}
	c.CDB = c.cdb[:n]
	if uint64(count) > uint64((len(entry)-requestSize)/iovecSize) {
		return false
	}
	c.Data = c.segments[:0]
	for i := range int(count) {
		v := iovAt(entry, i)
		if v.base < d.data || v.base > uint64(len(d.mem)) || v.len > uint64(len(d.mem))-v.base {
			return false
		}
		if v.len > 0 {
			c.Data = append(c.Data, d.mem[v.base:v.base+v.len:v.base+v.len])
		}
	}
	c.segments = c.Data
	return true
}

// touch reads a byte of each page of the data: whoever gets the command has found all of it there, and
// may hold locks while it uses it.
func (c *Command) touch() {
	const page = 4096 // the smallest that Linux has
	var sum byte
	for _, s := range c.Data {
		for i := 0; i < len(s); i += page {
			sum += s[i]
		}
		sum += s[len(s)-1]
	}
	c.touched = sum
}

func readTMR(entry []byte) (*TMR, error) {
	if len(entry) < tmrSize {
		return nil, fmt.Errorf("%w: task management entry of %d bytes", ErrRing, len(entry))
	}
	e := (*tmrEntry)(unsafe.Pointer(unsafe.SliceData(entry)))
	count := atomic.LoadUint32(&e.cmdCnt)
	if uint64(count) > uint64((len(entry)-tmrSize)/2) {
		return nil, fmt.Errorf("%w: task management entry of %d bytes for %d commands", ErrRing, len(entry), count)
	}
	t := &TMR{Function: e.kind}
	for i := range int(count) {
		t.IDs = append(t.IDs, idAt(entry, i))
	}
	return t, nil
}

// complete gives the kernel a response.
func (d *Device) complete(c *Command, r *cmdResponse) {
	d.mu.Lock()
	if c.state != stateLive {
		d.mu.Unlock()
		panic("tcmu: command completed twice")
	}
	d.answer(c, r)
	d.mu.Unlock()
	d.dirty.Store(true)
	if d.held.Load() == 0 {
		d.notify()
	}
}

// answer writes a response into the oldest entry, whichever command that was of,
// and lets the tail pass it. Preconditions: mu is held.
func (d *Device) answer(c *Command, r *cmdResponse) {
	if d.pass(); !d.wasReset() { // else the kernel has ended the command, and may write others there
		s := d.slots.pop()
		e := (*cmdResponse)(unsafe.Pointer(&d.ring[s.off]))
		lenOp := e.lenOp
		*e = *r
		e.lenOp, e.cmdID = lenOp, c.id
		d.advance(s)
		d.pass()
		d.dirty.Store(true)
	}
	if r.uflags&uflagKeepBuf != 0 {
		c.state = stateKept
		return
	}
	d.retire(c)
}

// pass lets the tail pass entries that take no response.
func (d *Device) pass() {
	for d.slots.n > 0 && d.slots.front().skip {
		d.advance(d.slots.pop())
	}
}

func (d *Device) advance(s slot) {
	next := s.off + s.size
	if next == uint32(len(d.ring)) {
		next = 0
	}
	if !d.lost && !d.mb.moveTail(d.tail, next) {
		d.lose()
	}
	d.tail = next
}

// wasReset reports whether the ring was reset. Preconditions: mu is held.
func (d *Device) wasReset() bool {
	if !d.lost && (d.mb.tail() != d.tail || d.tail == 0 && d.slots.n > 0 && d.beganAnew()) {
		d.lose()
	}
	return d.lost
}

// beganAnew reports whether a ring with entries was reset whose tail is at the beginning, where a reset puts it. The head is
// among what was fetched then; or it has come past that once more, and the entry at the beginning is another one.
// Preconditions: mu is held.
func (d *Device) beganAnew() bool {
	return d.mb.head() < d.cursor || !d.slots.front().skip && atomic.LoadUint64(d.firstMark()) != fetchedMark
}

// fetchedMark in the command at the beginning of the ring says that it was fetched. The kernel does not look there again, and
// clears an entry before it writes it. No entry has this value there by itself, whichever begins where: a command's
// number is not 0, and the flags behind it are, as are the counts behind that of the segments.
const fetchedMark = 0xA55A_0000_5AA5_0000

// firstMark is its place.
func (d *Device) firstMark() *uint64 {
	return &(*cmdRequest)(unsafe.Pointer(unsafe.SliceData(d.ring))).mark
}

// lose ends the service of a ring that was reset. Preconditions: mu is held.
func (d *Device) lose() {
	d.lost = true
	fault := ErrFault
	d.failure.Store(&fault)
}

// retire ends a command's use of the mapping. Preconditions: mu is held.
func (d *Device) retire(c *Command) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		d.live = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.state = stateFree
	clear(c.segments)
	c.CDB, c.Data = nil, nil
	c.prev, c.next = nil, d.free
	d.free = c
	d.count--
	if d.count == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// slot is an entry between tail and cursor.
type slot struct {
	off, size uint32
	skip      bool // takes no response
}

// slots is a queue of them, in a buffer whose length is a power of two.
type slots struct {
	buf      []slot
	first, n int
}

func (q *slots) push(s slot) {
	if q.n == len(q.buf) {
		grown := make([]slot, max(64, 2*len(q.buf)))
		for i := range q.n {
			grown[i] = q.buf[(q.first+i)&(len(q.buf)-1)]
		}
		q.buf, q.first = grown, 0
	}
	q.buf[(q.first+q.n)&(len(q.buf)-1)] = s
	q.n++
}

func (q *slots) front() slot { return q.buf[q.first] }

func (q *slots) pop() slot {
	s := q.buf[q.first]
	q.first = (q.first + 1) & (len(q.buf) - 1)
	q.n--
	return s
}
