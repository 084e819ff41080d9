// An operation's way from Read or Write down to its medium, and its end. It is recycled when it has
// ended, which is once.

package backend

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Op is one operation of an mdisk on its way:
//
//	prepared (Op) -> started (Read, Write) -> handed over (Submit) -> ended -> reused
//
// Limits delay the third step. Whoever prepares one sets IO.Vec, IO.Sums and Bytes, and starts it.
type Op struct {
	// IO is what the medium gets. Its Done and Ctx are not the caller's.
	IO     block.IO
	Reason block.Reason
	Tries  uint8 // how often its sectors were read before
	// Bytes are the origins of the bytes, for the counters; a read has one.
	Bytes [block.NumOrigins]uint32

	// The caller's: who waits for it, the physical sector that it begins at, and a number.
	Ctx  any
	Phys uint64
	Tag  uint64

	d       *Mdisk
	started int64
	handed  int64 // when the medium got it, -1: it did not yet
	done    func(*Op)
	place   int // in the mdisk's list of reads
	waited  bool
	next    *Op
	handFn  func()
}

// Mdisk returns the operation's mdisk.
func (x *Op) Mdisk() *Mdisk { return x.d }

// Op prepares a transfer of n bytes at an offset; n may grow until it is started.
func (d *Mdisk) Op(write bool, off, n uint64, why block.Reason) *Op {
	b := d.b
	x := b.free
	if x == nil {
		x = &Op{}
		x.IO.Ctx = x
		x.IO.Done = ended
		x.handFn = x.hand
	} else {
		b.free = x.next
		x.next = nil
	}
	x.d = d
	x.IO.Write, x.IO.Off, x.IO.N, x.Reason, x.IO.Class = write, off, n, why, classes[why]
	return x
}

// classes says how urgent what has a reason is.
var classes = [block.NumReasons]block.Class{block.ReasonDestage: block.ClassDestage, block.ReasonWriteThrough: block.ClassHost,
	block.ReasonFlush: block.ClassDestage, block.ReasonStage: block.ClassHost, block.ReasonCopyRead: block.ClassCopy,
	block.ReasonRMW: block.ClassHost, block.ReasonScrub: block.ClassScrub}

// recycle takes an operation back that has ended.
func (b *Backend) recycle(x *Op) {
	if len(x.IO.Vec) > 0 {
		clear(x.IO.Vec)
		x.IO.Vec = x.IO.Vec[:0]
	}
	x.IO.Err, x.IO.Sums = nil, x.IO.Sums[:0]
	x.Bytes = [block.NumOrigins]uint32{}
	x.done, x.Ctx, x.Tries = nil, nil, 0
	x.next = b.free
	b.free = x
}

// Read starts a read that somebody waits for: Hooks.Read or Hooks.Abandoned hears of its end.
func (d *Mdisk) Read(x *Op) {
	x.waited, x.place = true, len(d.reads)
	d.reads = append(d.reads, x)
	d.b.waitedFor++
	d.start(x, d.b.hooks.Read)
}

// forget takes a read off the list of those that somebody waits for.
func (d *Mdisk) forget(x *Op) {
	x.waited = false
	last := d.reads[len(d.reads)-1]
	d.reads[x.place], last.place = last, x.place
	d.reads[len(d.reads)-1] = nil
	d.reads = d.reads[:len(d.reads)-1]
	d.b.waitedFor--
}

// Write starts a write; Hooks.Written hears of its end.
func (d *Mdisk) Write(x *Op) { d.start(x, d.b.hooks.Written) }

// start takes an operation into the mdisk's queue. Those without a limit are collected at once, and
// go to the medium in one batch at the end of the step.
func (d *Mdisk) start(x *Op, done func(*Op)) {
	b := d.b
	x.done, x.started, x.handed = done, b.exec.Now(), -1
	d.depth++
	if d.limits == (Limits{}) && d.delayed == 0 { // none passes one that limits of before still delay
		b.collect(x)
		return
	}
	cost := int64(0)
	if l := d.limits.Bandwidth; l != 0 {
		cost = int64(x.IO.N * 1e9 / l)
	}
	if l := d.limits.IOPS; l != 0 {
		cost = max(cost, int64(1e9/l))
	}
	d.nextFree = max(d.nextFree, x.started) + cost
	d.delayed++
	block.Call(b.exec, d.nextFree, x.handFn)
}

// hand is called when the limits let an operation go. When the back end has stopped, nobody waits for it.
func (x *Op) hand() {
	x.d.delayed--
	if x.d.b.stopped {
		return
	}
	x.d.b.collect(x)
	x.d.b.hooks.Step()
}

// collect collects an operation for its medium. It never submits: a medium may complete at once,
// and what that causes must not meet a map or a list that somebody is walking over.
func (b *Backend) collect(x *Op) {
	x.handed = b.exec.Now()
	if x.IO.Deadline = 0; x.IO.Class <= block.ClassCopy { // else nobody waits
		x.IO.Deadline = x.handed + Patience
	}
	if x.d.out++; x.d.out == 1 {
		x.d.progress = x.handed
	}
	b.batch = append(b.batch, &x.IO)
}

// Submit sends the collected operations off, those of one mdisk in a row as one batch. It is called
// at the end of a step: what completes inside finds nothing half done.
func (b *Backend) Submit() {
	left := false
	for len(b.batch) > 0 {
		batch := b.batch
		b.batch, b.spare = b.spare[:0], nil
		for rest := batch; len(rest) > 0; {
			d, n := rest[0].Ctx.(*Op).d, 1
			for n < len(rest) && rest[n].Ctx.(*Op).d == d {
				n++
			}
			b.submitting = true
			d.medium.Submit(rest[:n:n])
			b.submitting = false
			left = left || d.out > 0
			rest = rest[n:]
		}
		clear(batch)
		b.spare = batch[:0]
	}
	if left || b.waitedFor > 0 {
		b.hooks.Watch() // they may never end
	}
}

// ended is called by the medium.
func ended(io *block.IO) {
	x := io.Ctx.(*Op)
	d := x.d
	b := d.b
	d.depth--
	d.out--
	b.answered++
	// What ends inside Submit came from memory, and says nothing of the disk.
	if !b.submitting {
		d.progress = b.exec.Now()
		d.speaks()
	}
	b.took(x)
	if x.IO.Err == nil {
		d.count(x)
	}
	if x.IO.Write {
		d.sync.due = true
	}
	if x.waited {
		d.forget(x)
	}
	if x.done != nil {
		x.done(x)
	} else { // it was given up
		d.discards.given = slices.DeleteFunc(d.discards.given, func(o *Op) bool { return o == x })
	}
	b.recycle(x)
	b.hooks.Step()
}

// instant is a transfer that has ended inside Submit, and its time has yet to be counted.
type instant struct {
	d       *Mdisk
	dir     int
	started int64
}

// took counts how long an operation took. One that has ended inside Submit is counted after the
// step: an executor's time stands still in one, and to read its clock for each would cost more than
// the transfer where it is a page cache's.
func (b *Backend) took(x *Op) {
	if !b.submitting {
		x.d.duration[x.dir()].Observe(b.exec.Now() - x.started)
		return
	}
	if len(b.instant) == 0 {
		b.exec.Post(b.instantFn)
	}
	b.instant = append(b.instant, instant{x.d, x.dir(), x.started})
}

func (b *Backend) countInstant() {
	now := b.exec.Now()
	for _, i := range b.instant {
		i.d.duration[i.dir].Observe(now - i.started)
	}
	clear(b.instant)
	b.instant = b.instant[:0]
}
