package array

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// lives is an array over mdisks that answer when the test wants, with the requests that it was given.
//
//	pool p (4 MiB): the thick volume full, which takes all of it
//	pool c:         copies move data; volume v
//	pool m:         copies are edits; volume w
type lives struct {
	*rig
	*stuck
	v, w, full *Volume
	reqs       []*block.Request
	ended      []bool
}

func newLives(t *testing.T, pol Policy, cache int64) *lives {
	l := &lives{}
	l.rig, l.stuck = stuckRig(t, Options{CacheBytes: cache, LogBytes: 64 << 10, CapPercent: []int{100}, Policy: pol})
	l.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 20}}}, 0)
	l.pool("c", PoolSpec{CopyData: true, Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
	l.pool("m", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
	l.full = l.volume("full", "p", 4<<20, false)
	l.v, l.w = l.volume("v", "c", 32<<20, true), l.volume("w", "m", 32<<20, true)
	return l
}

// submit hands a request to a volume and returns it, not waiting for its end.
func (l *lives) submit(v *Volume, q *block.Request) *block.Request {
	n := len(l.reqs)
	l.reqs, l.ended = append(l.reqs, q), append(l.ended, false)
	q.Done = func(*block.Request) { l.ended[n] = true }
	v.Submit([]*block.Request{q})
	return q
}

// quiet lets everything reach the mdisks, which stop to answer then.
func (l *lives) quiet() {
	l.clock.RunUntil(l.clock.Now() + 90e9)
	l.stuck.stuck = true
}

// fillLog leaves the log without room. A checkpoint makes some, when the clock runs.
func (l *lives) fillLog() {
	for {
		room, ok := l.a.log.Claim(1)
		if !ok {
			return
		}
		room.Append([]nvlog.Edit{{Volume: l.w.ID(), State: block.Zero, Range: rng(60000, 8)}}, 0)
	}
}

// hold returns a reference to a range.
func (l *lives) hold(v *Volume, g block.Range) block.Ref {
	q := &block.Request{Op: block.OpHold, Ranges: []block.Range{g}}
	mustOK(l.t, l.do(v, q))
	return q.Ref
}

func (l *lives) place(v *Volume, ref block.Ref, at, n uint64) *block.Request {
	return l.submit(v, &block.Request{Op: block.OpPlace, Range: rng(at, n), Ref: ref, Origin: block.OriginXCopy})
}

// lock has a compare-and-write hold the lock of sectors 0 to 7 until the mdisk answers.
func (l *lives) lock(v *Volume) *block.Request {
	l.submit(v, write(0, 8))
	l.quiet()
	return l.submit(v, compare(0, 8))
}

// pinned has sectors 0 to 7 of the full volume wait for a read of what they were.
func (l *lives) pinned() {
	for at := uint64(0); at < 4<<11; at += 512 {
		mustOK(l.t, l.do(l.full, write(at, 512)))
	}
	l.quiet()
	l.submit(l.full, &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{make([]byte, 4096)}})
	l.submit(l.full, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 128)}})
}

func compare(start, count uint64) *block.Request {
	zeros := func() [][]byte { return [][]byte{make([]byte, count*512)} }
	return &block.Request{Op: block.OpCompareWrite, Range: rng(start, count), Compare: zeros(), Data: zeros()}
}

// stripes returns a reference to so many runs: every second one reads zeros, the others are unmapped.
func (l *lives) stripes(v *Volume, runs uint64) block.Ref {
	q := &block.Request{Op: block.OpWriteSame}
	for i := uint64(0); i < runs; i += 2 {
		q = &block.Request{Op: block.OpWriteSame, Range: rng(i*16, 16)}
		mustOK(l.t, l.do(v, q))
	}
	return l.hold(v, rng(0, runs*16))
}

// largeCache takes an array whose cache takes many pieces, so that only turns hold a write up.
func (l *lives) largeCache() { *l = *newLives(l.t.(*testing.T), Policy{}, 32<<20) }

func from(o block.Origin, q *block.Request) *block.Request {
	q.Origin = o
	return q
}

func withFUA(q *block.Request) *block.Request {
	q.Flags |= block.FUA
	return q
}

// walks take requests of each kind through every transition of its table, and have them wait for
// every resource. Each says what its requests do then; the mdisks' answers and the clock end them.
var walks = []struct {
	kind kind
	name string
	pol  Policy
	do   func(*lives)
	want string
}{
	{kindWrite, "a write", Policy{}, func(l *lives) { l.submit(l.v, write(0, 8)) }, "ended"},
	{kindWrite, "FUA", Policy{}, func(l *lives) { l.submit(l.v, withFUA(write(0, 8))) }, "ended"},
	{kindWrite, "no room", Policy{}, func(l *lives) { l.stuck.stuck = true; l.submit(l.v, write(0, 4096)) }, "waiting for room"},
	{kindWrite, "no budget", Policy{Budget: Budget{Percent: 10}}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, from(block.OriginXCopy, write(0, 1024)))
	}, "waiting for budget"},
	{kindWrite, "a lock", Policy{}, func(l *lives) { l.lock(l.v); l.submit(l.v, write(0, 8)) }, "ended, fetching, waiting for lock"},
	{kindWrite, "no space", Policy{}, func(l *lives) { l.pinned(); l.submit(l.full, write(0, 8)) }, "read, ended, waiting for space"},
	{kindWrite, "others' turn", Policy{}, func(l *lives) {
		l.largeCache()
		l.submit(l.v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 20*512), Data: [][]byte{make([]byte, 512)}})
	}, "waiting for turn"},
	{kindWrite, "the back end", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.submit(l.v, write(0, 8))
	}, "settling"},
	{kindWrite, "given up while it settles", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.v.Cancel(l.submit(l.v, write(0, 8)))
	}, "ended"},

	{kindCompare, "a compare", Policy{}, func(l *lives) { l.submit(l.v, compare(0, 8)) }, "ended"},
	{kindCompare, "a miscompare, after a read", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.quiet()
		l.submit(l.v, compare(0, 8)).Compare[0][0] = 1
	}, "ended, fetching"},
	{kindCompare, "FUA", Policy{}, func(l *lives) { l.submit(l.v, withFUA(compare(0, 8))) }, "ended"},
	{kindCompare, "given up while it reads", Policy{}, func(l *lives) { l.v.Cancel(l.lock(l.v)) }, "ended, unwanted"},
	{kindCompare, "a lock", Policy{}, func(l *lives) { l.lock(l.v); l.submit(l.v, compare(4, 8)) }, "ended, fetching, waiting for lock"},
	{kindCompare, "no room", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(8192, 4096))
		l.submit(l.v, compare(0, 8))
	}, "waiting for room, waiting for room"},
	{kindCompare, "no budget", Policy{Budget: Budget{Percent: 10}}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, from(block.OriginXCopy, write(0, 512)))
		l.submit(l.v, from(block.OriginXCopy, compare(1024, 8)))
	}, "ended, waiting for budget"},
	{kindCompare, "no space", Policy{}, func(l *lives) { l.pinned(); l.submit(l.full, compare(0, 8)) }, "read, ended, waiting for space"},
	{kindCompare, "others' turn", Policy{}, func(l *lives) {
		l.largeCache()
		l.submit(l.v, compare(0, 20*512))
	}, "waiting for turn"},
	{kindCompare, "the back end", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.submit(l.v, compare(0, 8))
	}, "settling"},
	{kindCompare, "given up while it settles", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.v.Cancel(l.submit(l.v, compare(0, 8)))
		l.submit(l.v, compare(4, 8)) // its lock is gone
	}, "ended, settling"},

	{kindEdit, "an UNMAP", Policy{}, func(l *lives) { l.submit(l.v, unmap(0, rng(0, 8))) }, "ended"},
	{kindEdit, "a lock", Policy{}, func(l *lives) { l.lock(l.v); l.submit(l.v, unmap(0, rng(0, 8))) }, "ended, fetching, waiting for lock"},
	{kindEdit, "no log", Policy{}, func(l *lives) { l.fillLog(); l.submit(l.v, unmap(0, rng(0, 8))) }, "waiting for log"},

	{kindClone, "a clone", Policy{}, func(l *lives) {
		l.submit(l.w, write(0, 8))
		l.place(l.w, l.hold(l.w, rng(0, 8)), 128, 8)
	}, "ended, ended"},
	{kindClone, "a lock", Policy{}, func(l *lives) {
		ref := l.hold(l.w, rng(0, 8))
		l.lock(l.w)
		l.place(l.w, ref, 0, 8)
	}, "ended, fetching, waiting for lock"},
	{kindClone, "no log", Policy{}, func(l *lives) {
		ref := l.hold(l.w, rng(0, 8))
		l.fillLog()
		l.place(l.w, ref, 128, 8)
	}, "waiting for log"},
	{kindClone, "others' turn", Policy{}, func(l *lives) {
		l.place(l.w, l.stripes(l.w, nvlog.MaxEdits+8), 32768, 16*(nvlog.MaxEdits+8))
	}, "waiting for turn"},

	{kindMove, "a move", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.place(l.v, l.hold(l.v, rng(0, 8)), 128, 8)
	}, "ended, ended"},
	{kindMove, "its pieces", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 16))
		l.quiet()
		l.place(l.v, ref, 128, 16)
	}, "ended, moving (fetching)"},
	{kindMove, "stopped", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 16))
		l.quiet()
		l.v.Cancel(l.place(l.v, ref, 128, 16))
	}, "ended, moving (fetching)"},
	{kindMove, "a lock, behind the first piece", Policy{CopyPieces: 1}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.submit(l.v, write(264, 8))
		ref := l.hold(l.v, rng(0, 16))
		l.quiet()
		l.place(l.v, ref, 256, 16)
		l.submit(l.v, compare(264, 8))
	}, "ended, ended, moving (fetching), fetching"},
	{kindMove, "no log", Policy{}, func(l *lives) {
		ref := l.hold(l.v, rng(0, 8))
		l.fillLog()
		l.place(l.v, ref, 128, 8)
	}, "waiting for log"},
	{kindMove, "others' turn", Policy{}, func(l *lives) {
		l.place(l.v, l.stripes(l.v, stepPieces+2), 32768, 16*(stepPieces+2))
	}, "waiting for turn"},
	{kindMove, "no room in the copy engine", Policy{CopyBytes: 1}, func(l *lives) {
		l.submit(l.v, write(0, 1024))
		ref := l.hold(l.v, rng(0, 1024))
		l.quiet()
		l.place(l.v, ref, 2048, 1024)
	}, "ended, waiting for copy engine"},

	{kindPiece, "pieces", Policy{}, func(l *lives) {
		l.submit(l.v, write(256, 512))
		l.place(l.v, l.hold(l.v, rng(256, 512)), 2304, 512)
	}, "ended, ended"},
	{kindPiece, "no room for its read", Policy{CopyReads: 1}, func(l *lives) {
		l.submit(l.v, write(0, 1024))
		ref := l.hold(l.v, rng(0, 1024))
		l.quiet()
		l.place(l.v, ref, 2048, 1024)
	}, "ended, moving (fetching, waiting for copy read)"},
	{kindPiece, "no room", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.submit(l.v, write(8192, 4096))
		l.place(l.v, ref, 128, 8)
	}, "ended, waiting for room, moving (waiting for room)"},
	{kindPiece, "no budget", Policy{Budget: Budget{Percent: 10}}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 1024))
		l.place(l.v, l.hold(l.v, rng(0, 1024)), 2048, 1024)
	}, "ended, moving (waiting for budget)"},
	{kindPiece, "a lock, behind its read", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.submit(l.v, write(256, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.quiet()
		l.place(l.v, ref, 256, 8)
		l.submit(l.v, compare(256, 8))
	}, "ended, ended, moving (fetching), fetching"},
	{kindPiece, "no space", Policy{}, func(l *lives) {
		l.pinned()
		l.submit(l.v, write(0, 8))
		l.place(l.full, l.hold(l.v, rng(0, 8)), 0, 8)
	}, "read, ended, ended, moving (waiting for space)"},
	{kindPiece, "the back end", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.v.Pool().SetWriteMode(FlushThrough)
		l.place(l.v, ref, 128, 8)
	}, "ended, moving (settling)"},
	{kindPiece, "given up while it settles", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.v.Pool().SetWriteMode(FlushThrough)
		l.v.Cancel(l.place(l.v, ref, 128, 8))
	}, "ended, ended"},

	{kindFlush, "SYNCHRONIZE CACHE", Policy{}, func(l *lives) { l.submit(l.v, &block.Request{Op: block.OpFlush}) }, "ended"},
}

// doing says what a request does now, and its pieces.
func doing(q *block.Request, ended bool) string {
	o, ok := q.Priv.(*op)
	switch {
	case !ended && !ok && q.Op == block.OpRead:
		return "read"
	case ended || !ok:
		return "ended" // or its Done is due
	}
	what := o.doing()
	if len(o.pieces) > 0 && o.state == moving {
		var pieces []string
		for _, c := range o.pieces {
			pieces = append(pieces, c.doing())
		}
		what += " (" + strings.Join(pieces, ", ") + ")"
	}
	return what
}

func (o *op) doing() string {
	if o.state == waiting {
		return "waiting for " + o.For().String()
	}
	return stateNames[o.state]
}

// walk takes the steps of a kind, of all kinds where that is numKinds, each on an array of its own,
// and returns what went otherwise than it should.
func walk(t *testing.T, k kind) (msg string) {
	at := ""
	defer func() {
		if r := recover(); r != nil {
			msg = fmt.Sprintf("%s: %v", at, r)
		}
	}()
	for _, s := range walks {
		if k != numKinds && s.kind != k {
			continue
		}
		at = kindNames[s.kind] + ", " + s.name
		l := newLives(t, s.pol, 1<<20)
		s.do(l)
		var now []string
		for i, q := range l.reqs {
			now = append(now, doing(q, l.ended[i]))
		}
		if got := strings.Join(now, ", "); got != s.want {
			return fmt.Sprintf("%s: %s, want %s", at, got, s.want)
		}
		l.answer()
		l.clock.RunUntil(l.clock.Now() + 90e9)
		if slices.Contains(l.ended, false) || l.v.ops+l.w.ops+l.full.ops != 0 || l.a.gate.Waiters.N != 0 {
			return fmt.Sprintf("%s: a request never ended", at)
		}
		if o := l.a.engine.freeOp; o != nil && (o.state != free || o.Queued() || o.For() != ticket.Nothing) {
			return fmt.Sprintf("%s: a recycled request is %s", at, stateNames[o.state])
		}
	}
	return ""
}

// TestTransitions holds the tables of each kind against the code in both directions: what is not in
// them panics, and there is nothing that no request does.
func TestTransitions(t *testing.T) {
	if msg := walk(t, numKinds); msg != "" {
		t.Fatal(msg)
	}
	panics := func(fn func()) (why string) {
		defer func() {
			if r := recover(); r != nil {
				why = fmt.Sprint(r)
			}
		}()
		fn()
		return ""
	}
	for k := range numKinds {
		for to := range numStates {
			for from := range numStates {
				may := transitions[k][to]>>from&1 != 0
				name := fmt.Sprintf("a %s that is %s cannot become %s", kindNames[k], stateNames[from], stateNames[to])
				o := &op{kind: k, state: from}
				if why := panics(func() { o.to(to) }); may != (why == "") || !may && !strings.Contains(why, name) {
					t.Errorf("%s: %q, in the table %v", name, why, may)
				}
				if !may {
					continue
				}
				transitions[k][to] &^= 1 << from
				if msg := walk(t, k); !strings.Contains(msg, name) {
					t.Errorf("no request needs that %s: %q", strings.Replace(name, "cannot", "can", 1), msg)
				}
				transitions[k][to] |= 1 << from
			}
		}
		for r := ticket.Nothing; r <= ticket.BackEnd; r++ {
			if !lackable[k].Has(r) {
				continue
			}
			lackable[k].Take(r)
			if msg := walk(t, k); !strings.Contains(msg, "cannot wait for "+r.String()) {
				t.Errorf("no %s waits for %v: %q", kindNames[k], r, msg)
			}
			lackable[k].Add(r)
		}
	}
}
