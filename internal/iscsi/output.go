package iscsi

import (
	"github.com/arraysim/arraysim/internal/buffers"
	"sync"
	"time"
)

const (
	slotLen    = 64  // header, two digests and the length of the sense data
	batchSlots = 256 // PDUs made at a time
	batchVec   = 960 // pieces made at a time; writev takes 1024
	// outputLimit is how many bytes of answers that no window bounds (NOP, text, rejects, task
	// management, logout) may wait before the connection stops reading.
	outputLimit = 1 << 20
)

// outItem is an entry of the output queue: one of the two is set.
type outItem struct {
	cmd *command
	ctl *control
}

// control is any PDU but a SCSI response or Data-In.
type control struct {
	hdr  [bhsLen]byte
	data []byte
	buf  *buffers.Buffer // holds data, when it is pooled
	// stat: the PDU takes a StatSN; otherwise it carries the next one.
	stat bool
	// credit: it answers a command that took a CmdSN.
	credit bool
	then   func() // called when it is sent or dropped
}

// size is the memory that it holds: of a pooled buffer all, however little of it is sent.
func (ct *control) size() int {
	if ct.buf != nil {
		return bhsLen + len(ct.buf.B)
	}
	return bhsLen + len(ct.data)
}

var controlPool = sync.Pool{New: func() any { return new(control) }}

func getControl(op byte) *control {
	ct := controlPool.Get().(*control)
	ct.hdr[0] = op
	ct.hdr[offFlags] = flagFinal
	ct.stat = true
	return ct
}

func (ct *control) release() {
	then := ct.then
	if ct.buf != nil {
		ct.buf.Put()
	}
	*ct = control{}
	controlPool.Put(ct)
	if then != nil {
		then()
	}
}

// output is a connection's way out: a queue that anybody appends to, and one
// sender at a time that makes PDUs of it and writes them.
type output struct {
	mu      sync.Mutex
	cond    *sync.Cond // drained, or failed
	queue   []outItem  // guarded by mu
	ctlSize int        // guarded by mu: bytes of queued controls, in batches too
	sending bool       // guarded by mu: the token is taken
	handed  bool       // guarded by mu: the token is for the writer
	reading bool       // guarded by mu: the reader will send when it is done
	rests   uint64     // guarded by mu: how often all that was queued had left
	failed  error      // guarded by mu: nothing is sent any more

	wake chan struct{} // for the writer
	quit chan struct{}

	sender // owned by the holder of the token
}

// sender makes batches of PDUs. Its memory is reused when a batch is out.
type sender struct {
	items []outItem
	pos   int // items[:pos] are in the batch or sent
	freed int // items[:freed] are released
	vec   [][]byte
	left  [][]byte // of vec, not yet written
	slots [batchSlots * slotLen]byte
	used  int // slots
	stat  uint32
}

// enqueue appends an item. Anybody may call it, also with the executor held.
func (c *conn) enqueue(it outItem) {
	o := &c.out
	o.mu.Lock()
	if o.failed != nil {
		o.mu.Unlock()
		it.release()
		return
	}
	o.queue = append(o.queue, it)
	if it.ctl != nil {
		o.ctlSize += it.ctl.size()
	}
	signal := !o.sending && !o.reading
	o.mu.Unlock()
	if signal {
		o.signal()
	}
}

func (it outItem) release() {
	if it.cmd != nil {
		it.cmd.release()
	} else {
		it.ctl.release()
	}
}

func (o *output) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// hold tells the output that the reader is at work and will call flush: what
// completes meanwhile needs no other goroutine.
func (o *output) hold() {
	o.mu.Lock()
	o.reading = true
	o.mu.Unlock()
}

// flush sends what is queued, as far as that goes without waiting.
func (c *conn) flush() {
	o := &c.out
	o.mu.Lock()
	o.reading = false
	if o.sending || len(o.queue) == 0 || o.failed != nil {
		o.mu.Unlock()
		return
	}
	o.sending = true
	o.mu.Unlock()
	c.pump(false)
}

// writer is the goroutine that may wait for the socket.
func (c *conn) writer() {
	defer close(c.writerDone)
	o := &c.out
	for {
		select {
		case <-o.wake:
		case <-o.quit:
			return
		}
		o.mu.Lock()
		mine := o.handed
		if !mine && !o.sending && len(o.queue) > 0 && o.failed == nil {
			o.sending, mine = true, true
		}
		o.handed = false
		o.mu.Unlock()
		if mine {
			c.pump(true)
		}
	}
}

// pump sends until nothing is left. Without wait it hands the token to the
// writer when the socket is full. Preconditions: the token is held.
func (c *conn) pump(wait bool) {
	o := &c.out
	for {
		if len(o.left) == 0 {
			if !c.fillBatch() {
				return
			}
		}
		n, err := c.write(o.left, wait)
		if n > 0 {
			o.consumed(n)
			c.count.tx.Add(uint64(n))
			c.portal.count.tx.Add(uint64(n))
		}
		if err == errWouldBlock {
			o.mu.Lock()
			o.handed = true
			o.mu.Unlock()
			o.signal()
			return
		}
		if err != nil {
			c.abort(err)
			c.dropOutput()
			return
		}
	}
}

// consumed takes n written bytes off the batch.
func (s *sender) consumed(n int) {
	for n > 0 {
		k := min(n, len(s.left[0]))
		if s.left[0] = s.left[0][k:]; len(s.left[0]) == 0 {
			s.left = s.left[1:]
		}
		n -= k
	}
}

// fillBatch releases what the last batch sent and makes the next one. It gives
// the token back and returns false when there is nothing to send.
func (c *conn) fillBatch() bool {
	o := &c.out
	sent := 0
	for ; o.freed < o.pos; o.freed++ {
		it := o.items[o.freed]
		o.items[o.freed] = outItem{}
		if it.ctl != nil {
			sent += it.ctl.size()
		}
		it.release()
	}
	if sent > 0 || o.pos == len(o.items) {
		o.mu.Lock()
		o.ctlSize -= sent
		if o.pos == len(o.items) {
			o.items, o.queue = o.queue, o.items[:0]
			o.pos, o.freed = 0, 0
		}
		idle := len(o.items) == 0
		if idle {
			o.sending = false
			o.rests++
		}
		o.cond.Broadcast()
		o.mu.Unlock()
		if idle {
			return false
		}
	}
	clear(o.vec)
	o.vec, o.used = o.vec[:0], 0
	for o.pos < len(o.items) && !o.full() {
		it := o.items[o.pos]
		if it.cmd != nil {
			if !c.makeResponse(it.cmd) {
				break
			}
		} else {
			c.makeControl(it.ctl)
		}
		o.pos++
	}
	o.left = o.vec
	return true
}

// dropOutput ends all sending. Preconditions: the token is held, abort was called.
func (c *conn) dropOutput() {
	o := &c.out
	o.mu.Lock()
	items, queue := o.items, o.queue
	freed := o.freed
	o.items, o.queue, o.left, o.pos, o.freed, o.ctlSize = nil, nil, nil, 0, 0, 0
	o.sending = false
	o.cond.Broadcast()
	o.mu.Unlock()
	for _, it := range items[min(freed, len(items)):] {
		it.release()
	}
	for _, it := range queue {
		it.release()
	}
}

// drain waits until all that is queued is sent, nothing can be sent any more, or
// the time is over. It tells whether all was sent.
func (c *conn) drain(limit time.Duration) bool {
	o := &c.out
	c.wire().SetWriteDeadline(time.Now().Add(limit)) // a failed write ends the wait
	o.signal()
	o.mu.Lock()
	defer o.mu.Unlock()
	for (o.sending || len(o.queue) > 0) && o.failed == nil {
		o.cond.Wait()
	}
	return o.failed == nil
}

// state reports whether anything is queued or being sent, and how often all that was queued had left.
func (o *output) state() (pending bool, rests uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) > 0 || o.sending, o.rests
}

// congested tells whether so many answers are queued that no more must be made.
func (o *output) congested() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctlSize > outputLimit && o.failed == nil
}

// awaitRoom waits until the queue is short again. Preconditions: the reader has
// called flush.
func (o *output) awaitRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.ctlSize > outputLimit/2 && o.failed == nil {
		o.cond.Wait()
	}
}
