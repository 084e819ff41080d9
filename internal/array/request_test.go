package array

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/request"
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
	prepare    func(*request.Engine)
}

func newLives(t *testing.T, pol Policy, cache int64, prepare func(*request.Engine)) *lives {
	l := &lives{prepare: prepare}
	l.rig, l.stuck = stuckRig(t, Options{CacheBytes: cache, LogBytes: 64 << 10, CapPercent: []int{100}, Policy: pol})
	prepare(l.a.engine)
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

// late has data get into NVRAM beside the core: in a microsecond, of which the core hears in another one.
func (l *lives) late() { l.clock.Late = func() int64 { return 1000 } }

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

// litter returns a thin volume of the pool that is full, whose map was cut off: 64 nodes are garbage, and no grain
// comes back with them.
func (l *lives) litter() *Volume {
	v := l.volume("litter", "p", 1<<30, true)
	for at := uint64(0); at < 1<<21; at += 1 << 15 {
		mustOK(l.t, l.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(at, 8)}))
	}
	l.submit(v, unmap(0, rng(0, 1<<21)))
	return v
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

// absent has all leaves of maps leave memory that may: not those in which volumes end.
func (l *lives) absent() { l.evict() }

// largeCache takes an array whose cache takes many pieces, so that only turns hold a write up.
func (l *lives) largeCache() { *l = *newLives(l.t.(*testing.T), Policy{}, 32<<20, l.prepare) }

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
	kind request.Kind
	name string
	pol  Policy
	do   func(*lives)
	want string
}{
	{request.KindWrite, "a write", Policy{}, func(l *lives) { l.submit(l.v, write(0, 8)) }, "ended"},
	{request.KindWrite, "FUA", Policy{}, func(l *lives) { l.submit(l.v, withFUA(write(0, 8))) }, "ended"},
	{request.KindWrite, "no room", Policy{}, func(l *lives) { l.stuck.stuck = true; l.submit(l.v, write(0, 4096)) }, "waiting for room"},
	{request.KindWrite, "no budget", Policy{Budget: Budget{Percent: 10}}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, from(block.OriginXCopy, write(0, 1024)))
	}, "waiting for budget"},
	{request.KindWrite, "a lock", Policy{}, func(l *lives) { l.lock(l.v); l.submit(l.v, write(0, 8)) }, "ended, fetching, waiting for lock"},
	{request.KindWrite, "no space", Policy{}, func(l *lives) { l.pinned(); l.submit(l.full, write(0, 8)) }, "read, ended, waiting for space"},
	{request.KindWrite, "others' turn", Policy{}, func(l *lives) {
		l.largeCache()
		l.submit(l.v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 20*512), Data: [][]byte{make([]byte, 512)}})
	}, "waiting for turn"},
	{request.KindWrite, "the back end", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.submit(l.v, write(0, 8))
	}, "settling"},
	{request.KindWrite, "given up while it settles", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.v.Cancel(l.submit(l.v, write(0, 8)))
	}, "ended"},

	{request.KindCompare, "a compare", Policy{}, func(l *lives) { l.submit(l.v, compare(0, 8)) }, "ended"},
	{request.KindCompare, "a miscompare, after a read", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.quiet()
		l.submit(l.v, compare(0, 8)).Compare[0][0] = 1
	}, "ended, fetching"},
	{request.KindCompare, "FUA", Policy{}, func(l *lives) { l.submit(l.v, withFUA(compare(0, 8))) }, "ended"},
	{request.KindCompare, "given up while it reads", Policy{}, func(l *lives) { l.v.Cancel(l.lock(l.v)) }, "ended, unwanted"},
	{request.KindCompare, "a lock", Policy{}, func(l *lives) { l.lock(l.v); l.submit(l.v, compare(4, 8)) }, "ended, fetching, waiting for lock"},
	{request.KindCompare, "no room", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(8192, 4096))
		l.submit(l.v, compare(0, 8))
	}, "waiting for room, waiting for room"},
	{request.KindCompare, "no budget", Policy{Budget: Budget{Percent: 10}}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, from(block.OriginXCopy, write(0, 512)))
		l.submit(l.v, from(block.OriginXCopy, compare(1024, 8)))
	}, "ended, waiting for budget"},
	{request.KindCompare, "no space", Policy{}, func(l *lives) { l.pinned(); l.submit(l.full, compare(0, 8)) }, "read, ended, waiting for space"},
	{request.KindCompare, "others' turn", Policy{}, func(l *lives) {
		l.largeCache()
		l.submit(l.v, compare(0, 20*512))
	}, "waiting for turn"},
	{request.KindCompare, "the back end", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.submit(l.v, compare(0, 8))
	}, "settling"},
	{request.KindCompare, "given up while it settles", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.v.Pool().SetWriteMode(FlushThrough)
		l.v.Cancel(l.submit(l.v, compare(0, 8)))
		l.submit(l.v, compare(4, 8)) // its lock is gone
	}, "ended, settling"},

	{request.KindEdit, "an UNMAP", Policy{}, func(l *lives) { l.submit(l.v, unmap(0, rng(0, 8))) }, "ended"},
	{request.KindEdit, "a lock", Policy{}, func(l *lives) { l.lock(l.v); l.submit(l.v, unmap(0, rng(0, 8))) }, "ended, fetching, waiting for lock"},
	{request.KindEdit, "no log", Policy{}, func(l *lives) { l.fillLog(); l.submit(l.v, unmap(0, rng(0, 8))) }, "waiting for log"},

	{request.KindEdit, "others' turn", Policy{}, func(l *lives) { l.submit(l.litter(), unmap(block.Anchor, rng(0, 8))) }, "ended, waiting for turn"},

	{request.KindClone, "a clone", Policy{}, func(l *lives) {
		l.submit(l.w, write(0, 8))
		l.place(l.w, l.hold(l.w, rng(0, 8)), 128, 8)
	}, "ended, ended"},
	{request.KindClone, "a lock", Policy{}, func(l *lives) {
		ref := l.hold(l.w, rng(0, 8))
		l.lock(l.w)
		l.place(l.w, ref, 0, 8)
	}, "ended, fetching, waiting for lock"},
	{request.KindClone, "no log", Policy{}, func(l *lives) {
		ref := l.hold(l.w, rng(0, 8))
		l.fillLog()
		l.place(l.w, ref, 128, 8)
	}, "waiting for log"},
	{request.KindClone, "others' turn", Policy{}, func(l *lives) {
		l.place(l.w, l.stripes(l.w, nvlog.MaxEdits+8), 32768, 16*(nvlog.MaxEdits+8))
	}, "waiting for turn"},

	{request.KindMove, "a move", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.place(l.v, l.hold(l.v, rng(0, 8)), 128, 8)
	}, "ended, ended"},
	{request.KindMove, "its pieces", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 16))
		l.quiet()
		l.place(l.v, ref, 128, 16)
	}, "ended, moving (fetching)"},
	{request.KindMove, "stopped", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 16))
		l.quiet()
		l.v.Cancel(l.place(l.v, ref, 128, 16))
	}, "ended, moving (fetching)"},
	{request.KindMove, "a lock, behind the first piece", Policy{CopyPieces: 1}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.submit(l.v, write(264, 8))
		ref := l.hold(l.v, rng(0, 16))
		l.quiet()
		l.place(l.v, ref, 256, 16)
		l.submit(l.v, compare(264, 8))
	}, "ended, ended, moving (fetching), fetching"},
	{request.KindMove, "no log", Policy{}, func(l *lives) {
		ref := l.hold(l.v, rng(0, 8))
		l.fillLog()
		l.place(l.v, ref, 128, 8)
	}, "waiting for log"},
	{request.KindMove, "others' turn", Policy{}, func(l *lives) {
		l.place(l.v, l.stripes(l.v, request.StepPieces+2), 32768, 16*(request.StepPieces+2))
	}, "waiting for turn"},
	{request.KindMove, "no room in the copy engine", Policy{CopyBytes: 1}, func(l *lives) {
		l.submit(l.v, write(0, 1024))
		ref := l.hold(l.v, rng(0, 1024))
		l.quiet()
		l.place(l.v, ref, 2048, 1024)
	}, "ended, waiting for copy engine"},

	{request.KindPiece, "pieces", Policy{}, func(l *lives) {
		l.submit(l.v, write(256, 512))
		l.place(l.v, l.hold(l.v, rng(256, 512)), 2304, 512)
	}, "ended, ended"},
	{request.KindPiece, "no room for its read", Policy{CopyReads: 1}, func(l *lives) {
		l.submit(l.v, write(0, 1024))
		ref := l.hold(l.v, rng(0, 1024))
		l.quiet()
		l.place(l.v, ref, 2048, 1024)
	}, "ended, moving (fetching, waiting for copy read)"},
	{request.KindPiece, "no room", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.submit(l.v, write(8192, 4096))
		l.place(l.v, ref, 128, 8)
	}, "ended, waiting for room, moving (waiting for room)"},
	{request.KindPiece, "no budget", Policy{Budget: Budget{Percent: 10}}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 1024))
		l.place(l.v, l.hold(l.v, rng(0, 1024)), 2048, 1024)
	}, "ended, moving (waiting for budget)"},
	{request.KindPiece, "a lock, behind its read", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.submit(l.v, write(256, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.quiet()
		l.place(l.v, ref, 256, 8)
		l.submit(l.v, compare(256, 8))
	}, "ended, ended, moving (fetching), fetching"},
	{request.KindPiece, "no space", Policy{}, func(l *lives) {
		l.pinned()
		l.submit(l.v, write(0, 8))
		l.place(l.full, l.hold(l.v, rng(0, 8)), 0, 8)
	}, "read, ended, ended, moving (waiting for space)"},
	{request.KindPiece, "others' turn", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.place(l.litter(), l.hold(l.v, rng(0, 8)), 0, 8)
	}, "ended, ended, moving (waiting for turn)"},
	{request.KindPiece, "the back end", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.v.Pool().SetWriteMode(FlushThrough)
		l.place(l.v, ref, 128, 8)
	}, "ended, moving (settling)"},
	{request.KindPiece, "given up while it settles", Policy{}, func(l *lives) {
		l.stuck.stuck = true
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.v.Pool().SetWriteMode(FlushThrough)
		l.v.Cancel(l.place(l.v, ref, 128, 8))
	}, "ended, ended"},

	{request.KindWrite, "its data beside the core", Policy{}, func(l *lives) {
		l.late()
		l.submit(l.v, write(0, 700))
	}, "filling"},
	{request.KindWrite, "given up with its data beside the core", Policy{}, func(l *lives) {
		l.late()
		l.v.Cancel(l.submit(l.v, write(0, 8)))
	}, "unwanted"},
	{request.KindWrite, "filled, and others have the log", Policy{}, func(l *lives) {
		l.late()
		l.submit(l.v, write(0, 8))
		l.fillLog()
	}, "filling"},
	{request.KindWrite, "filled, and under another's lock", Policy{}, func(l *lives) {
		l.submit(l.v, write(8, 8))
		l.quiet()
		l.late()
		l.submit(l.v, write(0, 16))
		l.submit(l.v, compare(8, 8))
	}, "ended, filling, fetching"},
	{request.KindWrite, "filled, and its pool writes through", Policy{}, func(l *lives) {
		l.late()
		l.submit(l.v, write(0, 16))
		l.v.Pool().SetWriteMode(FlushThrough)
	}, "filling"},

	{request.KindWrite, "a leaf", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.absent()
		l.submit(l.v, write(8, 8))
	}, "ended, waiting for map"},
	{request.KindCompare, "a leaf", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.absent()
		l.submit(l.v, compare(0, 8))
	}, "ended, waiting for map"},
	{request.KindEdit, "a leaf", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		l.absent()
		l.submit(l.v, unmap(0, rng(0, 4)))
	}, "ended, waiting for map"},
	{request.KindClone, "a leaf", Policy{}, func(l *lives) {
		l.submit(l.w, write(0, 8))
		ref := l.hold(l.w, rng(0, 8))
		l.absent()
		l.place(l.w, ref, 16, 8)
	}, "ended, waiting for map"},
	{request.KindMove, "a leaf", Policy{}, func(l *lives) {
		l.submit(l.v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 8)})
		ref := l.hold(l.v, rng(0, 8))
		l.absent()
		l.place(l.v, ref, 16, 8)
	}, "ended, waiting for map"},
	{request.KindPiece, "a leaf", Policy{}, func(l *lives) {
		l.submit(l.v, write(0, 8))
		ref := l.hold(l.v, rng(0, 8))
		l.absent()
		l.place(l.v, ref, 128, 8)
	}, "ended, moving (waiting for map)"},

	{request.KindFlush, "SYNCHRONIZE CACHE", Policy{}, func(l *lives) { l.submit(l.v, &block.Request{Op: block.OpFlush}) }, "ended"},
}

// waitsFor returns the resource that a request waits for, ticket.Nothing if for none.
func waitsFor(q *block.Request) ticket.Resource {
	for r := ticket.Map; r > ticket.Nothing; r-- {
		if request.Doing(q) == "waiting for "+r.String() {
			return r
		}
	}
	return ticket.Nothing
}

// doing says what a request does now, and its pieces.
func doing(q *block.Request, ended bool) string {
	what := request.Doing(q)
	switch {
	case !ended && what == "" && q.Op == block.OpRead:
		return "read"
	case ended || what == "":
		return "ended" // or its Done is due
	}
	return what
}

// walk takes the steps of a kind, of all kinds where that is numKinds, each on an array of its own
// that prepare is given first, and returns what went otherwise than it should.
func walk(t *testing.T, k request.Kind, prepare func(*request.Engine)) (msg string) {
	at := ""
	defer func() {
		if r := recover(); r != nil {
			msg = fmt.Sprintf("%s: %v", at, r)
		}
	}()
	for _, s := range walks {
		if k != request.NumKinds && s.kind != k {
			continue
		}
		at = s.kind.String() + ", " + s.name
		l := newLives(t, s.pol, 1<<20, prepare)
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
		if what := l.a.engine.Leftover(); slices.Contains(l.ended, false) || what != "" {
			return fmt.Sprintf("%s: a request never ended: %s", at, what)
		}
	}
	return ""
}

// TestTransitions holds the tables of each kind against the code in both directions: what is not in
// them panics, and there is nothing that no request does.
func TestTransitions(t *testing.T) {
	all := func(*request.Engine) {}
	if msg := walk(t, request.NumKinds, all); msg != "" {
		t.Fatal(msg)
	}
	some := newLives(t, Policy{}, 1<<20, all).a.engine // what it forbids it has
	for k := range request.NumKinds {
		for to := range request.NumStates {
			for from := range request.NumStates {
				if !some.Forbid(k, from, to) {
					continue
				}
				name := fmt.Sprintf("a %s that is %s cannot become %s", k, from, to)
				if msg := walk(t, k, func(e *request.Engine) { e.Forbid(k, from, to) }); !strings.Contains(msg, name) {
					t.Errorf("no request needs that %s: %q", strings.Replace(name, "cannot", "can", 1), msg)
				}
			}
		}
		for r := ticket.Nothing; r <= ticket.Map; r++ {
			if !some.ForbidWait(k, r) {
				continue
			}
			if msg := walk(t, k, func(e *request.Engine) { e.ForbidWait(k, r) }); !strings.Contains(msg, "cannot wait for "+r.String()) {
				t.Errorf("no %s waits for %v: %q", k, r, msg)
			}
		}
	}
}
