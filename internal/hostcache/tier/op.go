package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// op is one thing under way on a Disk: a request of a client, or the disk's own. Its
// step runs whenever nothing is pending any more. Ops and parts are used again.
type op struct {
	d      *Disk
	req    *block.Request // of the client; nil for a destage, and once it was answered
	mode   mode
	queued bool
	ranges []block.Range
	one    [1]block.Range
	step   func(*op)

	pending int
	status  block.Status  // the first failure below
	flash   bool          // the flash failed
	unread  []block.Range // what could not be read from it
	// careful: after such a failure, a grain at a time. marker: it writes marks, and waits for none.
	// unmarked: those it waited for could not be written.
	careful, marker, unmarked bool
	durable                   bool   // what it did below was flushed
	start                     int64  // when it came
	sent                      int64  // when it went below
	covers                    uint64 // of a flush: see volatileWrites
	flushes                   uint64 // that had begun before this write was recorded

	segs   []segment
	frames []hostcache.Slot // pinned
	buf    []byte
	// rewritten are the sectors, from the start of a destage's range, that were written
	// to the flash while the destage was under way: they stay dirty.
	rewritten [maxDestageSectors / 64]uint64
	down      *part  // at work below for a client
	below     *part  // all that are at work below
	cancelled bool   // its client does not want it any more
	released  bool   // ... and has its answer: req is a copy; see release
	onFlash   int    // transfers and syncs of flash devices that are under way
	losses    uint64 // of power below, when a flush began
	delayed   bool   // it is on flash, and the throttle holds its answer back
	since     int64  // since when
	due       int64  // until when
	through   bool
	drops     bool // what the device below has cut off; see shrunk
	next      *op
}

// segment is a run of an op's sectors that are together on flash, or below.
type segment struct {
	block.Range
	slot hostcache.Slot // None: below
}

// part is one transfer of an op: a request to the device below or an I/O of a medium.
type part struct {
	req block.Request
	io  block.IO
	vec [][]byte
	o   *op
	m   *member
	// onFlash tells which of the two it is.
	onFlash bool
	write   bool
	dirty   bool // of a read: other members have it
	tries   int
	began   int64 // when the last try did
	off     uint64
	at      block.Range
	next    *part // of the op's that are below, or of the free ones
}

func (d *Disk) newOp(req *block.Request, m mode) *op {
	o := d.freeOps
	if o == nil {
		o = &op{d: d}
	} else {
		d.freeOps = o.next
		o.next = nil
	}
	o.req, o.mode, o.start = req, m, d.exec.Now()
	return o
}

// close ends an op that has given its ranges back.
func (d *Disk) close(o *op) {
	if o.buf != nil {
		d.buffers.give(o.buf)
	}
	*o = op{d: d, segs: o.segs[:0], frames: o.frames[:0], unread: o.unread[:0], next: d.freeOps}
	d.freeOps = o
}

// run makes the op's step run soon, from pump.
func (d *Disk) run(o *op) { d.ready = append(d.ready, o) }

// pump runs steps until none is ready. Everything that enters the disk ends with it;
// steps never run inside each other, however the media complete.
func (d *Disk) pump() {
	if d.pumping {
		return
	}
	d.pumping = true
	for {
		for i := 0; i < len(d.ready); i++ {
			o := d.ready[i]
			d.ready[i] = nil
			o.step(o)
		}
		d.ready = d.ready[:0]
		d.destage()
		d.j.kick()
		if len(d.ready) == 0 {
			break
		}
	}
	d.pumping = false
}

// less ends one of the op's parts.
func (o *op) less() {
	if o.pending--; o.pending == 0 {
		o.d.run(o)
		return
	}
	o.d.release(o)
}

// answer completes the client's request, unless that was released; Done comes from a posted
// function, never from inside Submit.
func (d *Disk) answer(o *op, s block.Status) {
	r := o.req
	o.req = nil
	if o.released {
		return
	}
	r.Status = s
	if d.opt.Observer != nil {
		d.opt.Observer.Ended(r, d.exec.Now()-o.start)
	}
	d.reply(r)
}

func (d *Disk) reply(r *block.Request) {
	d.ended = append(d.ended, r)
	if !d.posted {
		d.posted = true
		d.exec.Post(d.drain)
	}
}

func (d *Disk) drainEnded() {
	d.posted = false
	list := d.ended
	d.ended = d.spare[:0]
	for i, r := range list {
		list[i] = nil
		r.Done(r)
	}
	d.spare = list[:0]
}

func (d *Disk) newPart(o *op) *part {
	p := d.freeParts
	if p == nil {
		p = &part{}
	} else {
		d.freeParts = p.next
		p.next = nil
	}
	p.o = o
	o.pending++
	return p
}

func (d *Disk) freePart(p *part) {
	clear(p.vec)
	*p = part{vec: p.vec[:0], next: d.freeParts}
	d.freeParts = p
}

// sendBelow submits a part's request to the device below.
func (d *Disk) sendBelow(p *part) {
	p.req.Done, p.req.Ctx = d.belowDone, p
	p.o.sent = d.exec.Now()
	p.next, p.o.below = p.o.below, p
	d.batch[0] = &p.req
	d.below.Submit(d.batch[:])
}

func (d *Disk) partDone(r *block.Request) {
	p := r.Ctx.(*part)
	o := p.o
	for at := &o.below; *at != nil; at = &(*at).next {
		if *at == p {
			*at = p.next
			break
		}
	}
	if r.Status != block.OK && o.status == block.OK {
		o.status = r.Status
	}
	switch c := o.req; {
	case o.down == p:
		o.down = nil
		if c != nil {
			c.Ref, c.Extents, c.Offset, c.Located = r.Ref, r.Extents, r.Offset, r.Located
		}
	case c != nil && c.Op == block.OpRead && r.Op == block.OpRead && r.Status != block.OK && r.Located:
		// Of several parts that fail, the first in the client's range counts.
		if at := (r.Range.Start-c.Range.Start)<<block.SectorShift + r.Offset; !c.Located || at < c.Offset {
			c.Offset, c.Located = at, true
		}
	}
	d.freePart(p)
	o.less()
	d.pump()
}

// clip appends the part of v from byte off on, n bytes long, to to.
func clip(to, v [][]byte, off, n uint64) [][]byte {
	for _, b := range v {
		l := uint64(len(b))
		if off >= l {
			off -= l
			continue
		}
		k := min(l-off, n)
		to = append(to, b[off:off+k])
		if n -= k; n == 0 {
			break
		}
		off = 0
	}
	return to
}
