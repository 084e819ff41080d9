// The state machine of a request that changes something. Each is of one kind, and in one state;
// what it waits for says its ticket.
//
//	          begin              lacks something          all is committed
//	free -----------> running -----------------> waiting
//	 ^                 ^ |  ^      <----------------
//	 |                 | |  |          woken
//	 |   end           | |  +----------- fetching, unwanted    a read for a compare or a piece
//	 +-----------------+-+  +----------- moving               a data copy, by its pieces
//	 |                 | |  +----------- settling, answered   the mdisks take what was written
//	 +-- flushing <----+ +----------- filling, unwanted     its data is on its way into NVRAM
//
// Invariants: only op.to changes the state, and holds each change against the engine's rules. Only
// a request that waits or settles has its ticket in a queue, and one that was answered while it
// settles keeps it there. What is running is on the stack: no other call finds it. A request is
// ended once, and by itself; answered is one whose host has heard before.

package request

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// Kind is what a request does.
type Kind uint8

const (
	KindWrite   Kind = iota // WRITE, or WRITE SAME of a pattern
	KindCompare             // COMPARE AND WRITE, ORWRITE: a read and a write under a range lock
	KindEdit                // WRITE SAME of zeros, UNMAP: an edit of the map
	KindClone               // a copy by reference: edits of the map
	KindMove                // a copy that moves data: pieces, and edits for what is no data
	KindPiece               // a piece of it: a read and a write
	KindFlush

	NumKinds
)

var kindNames = [NumKinds]string{"write", "compare", "edit", "clone", "move", "piece", "flush"}

// State is where a request is in its life.
type State uint8

const (
	free     State = iota // it is recycled
	running               // it is being carried out, now
	waiting               // its ticket waits for a resource
	fetching              // the mdisks read for it
	unwanted              // the same, but who sent it has given it up
	filling               // its data is on its way into pages of NVRAM, beside the executor
	moving                // its pieces are under way, and the last one goes on with it
	settling              // all is committed, and the mdisks have to have it before it ends
	answered              // the same, but who sent it has its answer: what was committed stays
	flushing              // it ends when NVRAM was flushed

	NumStates
)

var stateNames = [NumStates]string{"free", "running", "waiting", "fetching", "unwanted", "filling", "moving", "settling", "answered", "flushing"}

// rules are what requests may do. Each engine has its own.
type rules struct {
	// may says for each kind, as a set of bits, from which states each state may be entered.
	may [NumKinds][NumStates]uint16
	// lack says for each kind which resources it may wait for.
	lack [NumKinds]ticket.Set
}

// allowed are the rules of a new engine.
var allowed = rules{may: [NumKinds][NumStates]uint16{
	KindWrite: {free: 1<<running | 1<<flushing, running: 1<<free | 1<<waiting | 1<<filling | 1<<unwanted | 1<<settling | 1<<answered,
		waiting: 1 << running, filling: 1 << running, unwanted: 1 << filling, settling: 1 << running, answered: 1 << settling, flushing: 1 << running},
	KindCompare: {free: 1<<running | 1<<flushing, running: 1<<free | 1<<waiting | 1<<fetching | 1<<unwanted | 1<<settling | 1<<answered,
		waiting: 1 << running, fetching: 1 << running, unwanted: 1 << fetching, settling: 1 << running, answered: 1 << settling, flushing: 1 << running},
	KindEdit:  {free: 1 << running, running: 1<<free | 1<<waiting, waiting: 1 << running},
	KindClone: {free: 1 << running, running: 1<<free | 1<<waiting, waiting: 1 << running},
	KindMove:  {free: 1 << running, running: 1<<waiting | 1<<moving, waiting: 1 << running, moving: 1 << running}, // it begins as a clone
	KindPiece: {free: 1 << running, running: 1<<free | 1<<waiting | 1<<fetching | 1<<settling | 1<<answered,
		waiting: 1 << running, fetching: 1 << running, settling: 1 << running, answered: 1 << settling},
	KindFlush: {free: 1 << flushing, running: 1 << free, flushing: 1 << running},
}, lack: [NumKinds]ticket.Set{
	KindWrite:   ticket.SetOf(ticket.Room, ticket.Budget, ticket.Lock, ticket.Space, ticket.Turn, ticket.BackEnd, ticket.Map),
	KindCompare: ticket.SetOf(ticket.Room, ticket.Budget, ticket.Lock, ticket.Space, ticket.Turn, ticket.BackEnd, ticket.Map),
	KindEdit:    ticket.SetOf(ticket.Log, ticket.Lock, ticket.Turn, ticket.Map),
	KindClone:   ticket.SetOf(ticket.Log, ticket.Lock, ticket.Turn, ticket.Map),
	KindMove:    ticket.SetOf(ticket.Log, ticket.Lock, ticket.Turn, ticket.CopyEngine, ticket.Map),
	KindPiece:   ticket.SetOf(ticket.Room, ticket.Budget, ticket.Lock, ticket.Space, ticket.Turn, ticket.BackEnd, ticket.CopyRead, ticket.Map),
}}

// op is a request that changes something, on its way. Ops are recycled, with all that they have
// allocated.
type op struct {
	ticket.Ticket // what it waits for; Since: since when nothing of it was committed, or it settles
	kind          Kind
	state         State // changed by to only
	work                // what it does this time

	e      *Engine
	pieces []*op  // of a move, that are under way
	buf    []byte // what a compare or a piece read
	fill   admission.Fill
	needs  needs

	fns fns

	next *op // that is free
}

// fns are methods of an op as values, made when they are needed first.
type fns struct {
	compare, moved func(block.Status)
	fetched        func([]byte, block.Status)
	flushed        func(error)
	fill, filled   func()
}

// work is the part of an op that is cleared when it ends.
type work struct {
	v      *Volume
	req    *block.Request // nil: a piece, or it is answered
	origin block.Origin
	host   uint32 // whose budget it counts in
	cur    uint64 // next sector
	stop   uint64
	src    block.Cursor
	status block.Status // of a move, or of a write that was given up

	// Of a write's way into the cache.
	since     int64 // when it began to wait for its partition, 0 if it does not
	throttled int64 // when it began to wait for its offload budget, 0 if it does not
	claim     admission.Claim
	unsettled int // pages of what was committed that the back end has to have
	logEdits  int // edits that it waits for room in the log for

	started uint64 // of a copy: sectors of the Ref that are placed, or handed to pieces; of an edit: ranges that are done
	ref     source // of a copy

	// Of a piece.
	parent *op
	bytes  int64  // that it counts in the copy engine
	from   uint64 // the physical sector that it reads
}

// to changes the state. A change that is not in the table is a fault of this package.
func (o *op) to(s State) {
	if o.e.rules.may[o.kind][s]>>(o.state&15)&1 == 0 {
		illegal(o, "become "+stateNames[s])
	}
	o.state = s
}

// lack makes the request one that waits; the caller queues its ticket.
func (o *op) lack(r ticket.Resource) {
	if !o.e.rules.lack[o.kind].Has(r) {
		illegal(o, "wait for "+r.String())
	}
	if r == ticket.BackEnd {
		o.to(settling)
		return
	}
	o.keepLeaves()
	o.to(waiting)
}

// lacksLeaf has the op wait if a leaf that it needs next is absent, and reports whether it does.
func (o *op) lacksLeaf() bool {
	q := o.missing()
	if q != nil {
		o.needs.hopes = false
		o.await(q)
	}
	return q != nil
}

// await queues the request for what it lacks.
func (o *op) await(q *ticket.Queue) {
	o.lack(q.Of)
	q.Push(&o.Ticket)
}

// unqueue takes the request out of the queue that it waits in, where others may take its place. The
// caller goes on with it.
func (o *op) unqueue() {
	o.Leave()
	o.to(running)
	o.gavePlace()
}

func illegal(o *op, what string) {
	panic("array: internal error: a " + kindNames[o.kind] + " that is " + stateNames[o.state] + " cannot " + what)
}

// headOf returns the request that is first in a queue, nil if nobody waits.
func headOf(q *ticket.Queue) *op { return opOf(q.Head()) }

func opOf(t *ticket.Ticket) *op {
	if t == nil {
		return nil
	}
	return t.Waiter().(*op)
}

func (e *Engine) newOp(k Kind, v *Volume, r *block.Request) *op {
	o := e.freeOp
	if o == nil {
		o = &op{e: e}
		o.Init(o)
	} else {
		e.freeOp, o.next = o.next, nil
	}
	o.kind = k
	o.to(running)
	o.v, o.req = v, r
	v.ops++
	if r != nil {
		r.Priv = o
		o.origin, o.host, o.Rank, o.cur, o.stop = r.Origin, r.Host, r.Priority, r.Range.Start, r.Range.End()
	}
	return o
}

// end completes an op.
func (o *op) end(s block.Status) {
	o.answer(s)
	o.v.ops--
	o.to(free)
	o.Reset()
	o.work = work{}
	o.fill.Forget()
	o.needs.pins.Release()
	o.needs.exact, o.needs.hopes = false, false
	o.pieces = o.pieces[:0]
	if cap(o.buf) > layout.PageBytes { // what nearly all compare is less
		o.buf = nil
	}
	o.next = o.e.freeOp
	o.e.freeOp = o
}

// answer tells whoever waits for the op that it has ended, or that its end is the array's own
// business from now on, and lets those go on that wait for its lock.
func (o *op) answer(s block.Status) {
	e, v := o.e, o.v
	if o.state == settling {
		o.to(answered)
	}
	r, p := o.req, o.parent
	if o.req = nil; r != nil {
		r.Priv = nil
	}
	if o.kind == KindCompare {
		// Who goes on may overwrite what this op waits for to be settled, end it in a whole step,
		// and use it again: from here on only a piece, which has no lock, is still looked at.
		v.unlock(o)
	}
	if r != nil {
		if v.Changes != nil {
			v.Changes.Ended(r, s)
		}
		e.finish(r, s)
	}
	if p != nil {
		o.parent = nil
		v.Pool().Copying(o.origin, -o.bytes)
		e.copies.Out -= o.bytes
		if !e.copies.Moves.Empty() {
			e.gave(ticket.CopyEngine)
		}
		e.copies.PutBuf(o.buf)
		o.buf = nil
		p.pieceDone(o, s)
	}
}

// pieceDone books a piece that has ended. A move that waits for its pieces goes on; one that waits
// for something else, or is just handing out more, does so anyway.
func (o *op) pieceDone(c *op, s block.Status) {
	if s != block.OK && o.status == block.OK {
		o.status = s
	}
	i := slices.Index(o.pieces, c)
	o.pieces = slices.Delete(o.pieces, i, i+1)
	if o.state == moving {
		o.Waiter().Resume()
	}
}
