package tier

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// obliging is a device below that ends a request that it keeps when that is cancelled.
type obliging struct{ *path }

func (o obliging) Cancel(r *block.Request) {
	if i := slices.Index(o.kept, r); i >= 0 {
		o.kept = slices.Delete(o.kept, i, i+1)
		o.exec.Post(func() {
			r.Status = block.Cancelled
			r.Done(r)
		})
	}
}

// newObligingLab is a lab over such a device, with peers.
func newObligingLab(t *testing.T, peers int, change func(*world)) *lab {
	l := newLab(t, func(w *world) {
		withPeers(peers)(w)
		if change != nil {
			change(w)
		}
	})
	l.crash()
	if err := l.try(0, func(o *Options) { o.Below = obliging{l.path} }); err != nil {
		t.Fatal(err)
	}
	l.wait(func() bool { return l.d.State().Why == "" })
	return l
}

// soon is the time within which a request that is withdrawn has to end: less than anything here
// takes.
const soon = 1_000

func (l *lab) cancelled(r *block.Request, end func() bool) {
	l.t.Helper()
	if end() {
		l.t.Fatalf("%v has ended %v before it was withdrawn", r.Op, r.Status)
	}
	l.d.Cancel(r)
	l.v.RunUntil(l.v.Now() + soon)
	if !end() || r.Status != block.Cancelled {
		l.t.Fatalf("%v, withdrawn: ended %v, %v", r.Op, end(), r.Status)
	}
	if len(l.d.active)+len(l.d.waiting)+len(l.d.flushers) > 0 && r.Op != block.OpFlush {
		l.t.Errorf("%v leaves %s", r.Op, l.d.dump())
	}
}

// TestRequestsAreWithdrawn: whatever a client has sent ends when it does not want it any more,
// wherever it waits, and the next ones are served.
func TestRequestsAreWithdrawn(t *testing.T) {
	buf := make([]byte, 16<<9)
	g := block.Range{Start: 60, Count: 16}
	for name, row := range map[string]struct {
		req  block.Request
		gate block.Op // of the device below, which does not answer it
	}{
		"a read":                {block.Request{Op: block.OpRead, Range: g, Data: [][]byte{buf}}, block.OpRead},
		"a flush":               {block.Request{Op: block.OpFlush}, block.OpFlush},
		"a copy that reads":     {block.Request{Op: block.OpHold, Ranges: []block.Range{g}}, block.OpHold},
		"a compare and write":   {block.Request{Op: block.OpCompareWrite, Range: g, Data: [][]byte{buf}, Compare: [][]byte{buf}}, block.OpCompareWrite},
		"a write of zeros":      {block.Request{Op: block.OpWriteSame, Range: g}, block.OpWriteSame},
		"a question":            {block.Request{Op: block.OpStatus, Range: g, Extents: make([]block.Extent, 0, 1)}, block.OpStatus},
		"for a destage, a copy": {block.Request{Op: block.OpHold, Ranges: []block.Range{g}}, block.OpWrite},
		"for a destage, a compare and write": {block.Request{Op: block.OpCompareWrite, Range: g, Data: [][]byte{buf}, Compare: [][]byte{buf}},
			block.OpWrite},
	} {
		t.Run(name, func(t *testing.T) {
			l := newObligingLab(t, 0, nil)
			l.a.gate[row.gate] = true
			if row.gate == block.OpWrite {
				l.write(62, 4, 7)
			}
			r := row.req
			end := l.start(&r)
			l.v.RunUntil(l.v.Now() + 1e9)
			if row.gate == block.OpWrite { // the destages themselves stay
				was := l.d.turn.inflight
				if l.d.Cancel(&r); was == 0 || l.d.turn.inflight != was {
					t.Fatalf("%d destages are under way, %d were", l.d.turn.inflight, was)
				}
				l.v.RunUntil(l.v.Now() + soon)
				if !end() || r.Status != block.Cancelled {
					t.Fatalf("ended %v, %v", end(), r.Status)
				}
			} else {
				l.cancelled(&r, end)
			}
			l.path.open(row.gate)
			l.write(62, 4, 8)
			l.want(62, 4, 8)
			if s := l.flush(); s != block.OK {
				t.Errorf("a flush behind it ends %v", s)
			}
		})
	}
}

// TestReadOfManyPartsIsWithdrawn: all that it has below, and what another read has there stays.
func TestReadOfManyPartsIsWithdrawn(t *testing.T) {
	l := newObligingLab(t, 0, withoutDestager)
	for at := uint64(4); at < 64; at += 16 {
		l.write(at, 4, 3)
	}
	l.a.gate[block.OpRead] = true
	buf, other := make([]byte, 64<<9), make([]byte, 64<<9)
	r := &block.Request{Op: block.OpRead, Range: block.Range{Count: 64}, Data: [][]byte{buf}}
	q := &block.Request{Op: block.OpRead, Range: block.Range{Count: 64}, Data: [][]byte{other}}
	end, ends := l.start(r), l.start(q)
	l.v.RunUntil(l.v.Now() + 1e9)
	parts := len(l.path.kept) / 2
	if parts < 4 {
		t.Fatalf("a read has %d parts below", parts)
	}
	l.d.Cancel(r)
	l.v.RunUntil(l.v.Now() + soon)
	if !end() || r.Status != block.Cancelled || ends() || len(l.path.kept) != parts {
		t.Fatalf("ended %v, %v; the other %v; %d parts are left", end(), r.Status, ends(), len(l.path.kept))
	}
	l.path.open(block.OpRead)
	l.wait(ends)
	if q.Status != block.OK {
		t.Errorf("the other read ends %v", q.Status)
	}
}

// TestFlushIsWithdrawnFromASilentPeer: the peer's sync goes on, and a later flush waits for one of
// its own.
func TestFlushIsWithdrawnFromASilentPeer(t *testing.T) {
	l := newObligingLab(t, 1, func(w *world) { w.cards[1].volatile = true })
	l.write(0, 8, 1)
	l.cards[1].stalled = true
	r := &block.Request{Op: block.OpFlush}
	end := l.start(r)
	l.v.RunUntil(l.v.Now() + stallTimeout/2)
	l.cancelled(r, end)
	l.cards[1].goOn()
	if s := l.flush(); s != block.OK {
		t.Errorf("the next flush ends %v", s)
	}
	if l.d.flushing != 0 || len(l.d.active) > 0 {
		t.Errorf("%d flushes are under way; %s", l.d.flushing, l.d.dump())
	}
}

// TestWithdrawnFlushTellsNobodyOfALoss: the next one does.
func TestWithdrawnFlushTellsNobodyOfALoss(t *testing.T) {
	l := newObligingLab(t, 0, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.write(0, 8, 1)
	l.losePower(0, 8, 0)
	l.a.gate[block.OpFlush] = true
	r := &block.Request{Op: block.OpFlush}
	end := l.start(r)
	l.v.RunUntil(l.v.Now() + 1e9)
	l.cancelled(r, end)
	l.path.open(block.OpFlush)
	if s := l.flush(); s != block.Hardware {
		t.Errorf("the flush that has to tell of the loss ends %v", s)
	}
	if s := l.flush(); s != block.OK {
		t.Errorf("the next one ends %v", s)
	}
}

// TestAbortBetweenTwoSteps: an abort that finds an op on its way from the flash to the device below
// is remembered.
func TestAbortBetweenTwoSteps(t *testing.T) {
	l := newObligingLab(t, 0, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.write(0, 8, 1)
	l.wait(func() bool { return len(l.d.active) == 0 })
	l.cards[0].delay = 50_000_000 // the journal takes long
	l.a.gate[block.OpWrite] = true
	r := &block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}}
	end := l.start(r)
	l.v.RunUntil(l.v.Now() + 1_000)
	if len(l.path.kept) > 0 {
		t.Fatal("the write is below already")
	}
	l.d.Cancel(r)
	l.v.RunUntil(l.v.Now() + 1e9)
	if !end() || r.Status != block.Cancelled || len(l.path.kept) > 0 {
		t.Errorf("ended %v, %v; %d requests are below", end(), r.Status, len(l.path.kept))
	}
}

// TestAbortBeforeADelay: a write that was withdrawn is not held back by the throttle.
func TestAbortBeforeADelay(t *testing.T) {
	l := newLab(t, func(w *world) {
		withoutDestager(w)
		w.opt.Throttle = Throttle{Area: 64 << 9, Threshold: 500}
	})
	l.d.throttle.san = 40_000_000_000
	l.write(0, 32, 1)
	r := &block.Request{Op: block.OpWrite, Range: block.Range{Start: 100, Count: 24}, Data: [][]byte{pattern(2, 24)}}
	end := l.start(r)
	l.d.Cancel(r) // the flash has it
	l.v.RunUntil(l.v.Now() + 1e9)
	if !end() {
		t.Error("the write is throttled")
	}
}
