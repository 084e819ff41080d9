package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// What the cache does when the device below is in doubt: it may have lost writes, or it does not say what others changed.

func (l *lab) flush() block.Status { return l.do(&block.Request{Op: block.OpFlush}) }

// losePower takes sectors back to what they were, and says so as the device below does.
func (l *lab) losePower(at, n, value uint64) {
	for s := at; s < at+n; s++ {
		l.a.data[s] = pattern(value, 1)
	}
	l.d.event(block.Event{Kind: block.EventPowerLoss})
}

// TestPowerLossBelow: what was written through and not flushed is gone below, so it must not be served from flash, and the
// client hears of it: by the event, and by a flush that fails.
func TestPowerLossBelow(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	var heard []block.EventKind
	l.d.Notify(func(e block.Event) { heard = append(heard, e.Kind) })
	l.write(0, 8, 1)
	if s := l.flush(); s != block.OK {
		t.Fatal(s)
	}
	l.write(0, 8, 2)
	l.want(0, 8, 2)
	l.losePower(0, 8, 1)
	l.want(0, 8, 1)
	if len(heard) != 1 || heard[0] != block.EventPowerLoss {
		t.Errorf("the client heard %v", heard)
	}
	if s := l.flush(); s == block.OK {
		t.Error("a flush of what is lost succeeds")
	}
	if s := l.flush(); s != block.OK {
		t.Errorf("the next one ends %v", s)
	}
	// What was flushed is not lost.
	l.write(0, 8, 3)
	if s := l.flush(); s != block.OK {
		t.Fatal(s)
	}
	invalidated := l.d.Stats().InvalidatedSectors
	l.d.event(block.Event{Kind: block.EventPowerLoss})
	l.want(0, 8, 3)
	if s := l.flush(); s != block.OK || l.d.Stats().InvalidatedSectors != invalidated {
		t.Errorf("nothing was lost; the flush ends %v, and %d sectors were forgotten", s, l.d.Stats().InvalidatedSectors-invalidated)
	}
}

// TestWritesAfterAPowerLossAreNotFlushed: what ended between the loss and the news of it is still volatile below.
func TestWritesAfterAPowerLossAreNotFlushed(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	flushes := func() (n int) {
		for _, r := range l.a.log {
			if r.Op == block.OpFlush {
				n++
			}
		}
		return n
	}
	l.write(0, 8, 1)
	l.write(8, 8, 2) // after the loss
	l.losePower(0, 8, 0)
	l.want(8, 8, 2)
	was := flushes()
	if s := l.flush(); s == block.OK {
		t.Error("a flush of what is lost succeeds")
	}
	if s := l.flush(); s != block.OK || flushes() == was {
		t.Errorf("the next flush ends %v; there were %d flushes below", s, flushes()-was)
	}
}

// TestOffloadThatBringsNewsOfALoss: the device below tells of its loss of power with a command that
// it carried out afterwards, so that this one has lost nothing. A loss behind it, before the flush
// that makes it durable has ended, may have taken it: then what was flushed here stays, and it
// fails.
func TestOffloadThatBringsNewsOfALoss(t *testing.T) {
	for _, late := range []bool{false, true} {
		l := newLab(t, withoutDestager)
		l.write(0, 8, 1)
		if s := l.flush(); s != block.OK {
			t.Fatal(s)
		}
		l.d.SetPolicy(Policy{Mode: WriteThrough}, nil)
		l.write(64, 8, 2) // volatile below, so that a loss counts
		l.d.SetPolicy(Policy{Mode: WriteBack}, nil)
		op := block.OpWriteSame
		if late {
			op = block.OpFlush
		}
		l.a.gate[op] = true
		r := &block.Request{Op: block.OpWriteSame, Range: block.Range{Count: 8}, Data: [][]byte{pattern(9, 1)}}
		end := l.start(r)
		l.wait(func() bool { return len(l.path.kept) == 1 })
		l.d.event(block.Event{Kind: block.EventPowerLoss})
		if l.d.losses != 1 {
			t.Fatal("the loss counts for nothing")
		}
		l.path.open(op)
		l.wait(end)
		switch {
		case late && (r.Status == block.OK || l.d.ix.DirtySectors() != 8):
			t.Errorf("a write that may have gone with the power ends %v, and %d sectors are dirty", r.Status, l.d.ix.DirtySectors())
		case !late && (r.Status != block.OK || l.d.ix.DirtySectors() != 0):
			t.Errorf("a write that came behind the loss ends %v, and %d sectors are dirty", r.Status, l.d.ix.DirtySectors())
		}
	}
}

// TestPowerLossDuringAFlush: the answer may be of what came after.
func TestPowerLossDuringAFlush(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.write(0, 8, 1)
	l.a.gate[block.OpFlush] = true
	r := &block.Request{Op: block.OpFlush}
	end := l.start(r)
	l.v.RunUntil(l.v.Now() + 1_000_000_000)
	l.losePower(0, 8, 0)
	l.path.open(block.OpFlush)
	l.wait(end)
	if r.Status == block.OK {
		t.Error("the flush that was under way succeeds")
	}
	if s := l.flush(); s != block.OK {
		t.Errorf("the next one ends %v", s)
	}
}

// deaf makes the device below answer no question of changes.
type deafBelow struct {
	*path
	deaf bool
}

func (d *deafBelow) ChangedSince(since uint64, done func(uint64, []block.Range, bool)) {
	if d.deaf {
		d.exec.Post(func() { done(0, nil, false) })
		return
	}
	d.path.ChangedSince(since, done)
}

// TestUnansweredQuestions: while nobody says what others have changed, nothing clean is served, at open and later.
func TestUnansweredQuestions(t *testing.T) {
	var below *deafBelow
	l := newLab(t, func(w *world) {
		w.a.listens, w.a.gen = true, 5
		w.opt.Policy = Policy{Mode: WriteThrough}
	})
	open := func(deaf bool) {
		t.Helper()
		if err := l.try(0, func(o *Options) {
			below = &deafBelow{l.path, deaf}
			o.Below = below
		}); err != nil {
			t.Fatal(err)
		}
	}
	reads := func() (n int) {
		for _, r := range l.a.log {
			if r.Op == block.OpRead {
				n++
			}
		}
		return n
	}
	other := func(at, n, value uint64) {
		for s := at; s < at+n; s++ {
			l.a.data[s] = pattern(value, 1)
		}
		l.a.gen++
		l.a.changed = append(l.a.changed, block.Range{Start: at, Count: n})
	}
	settle := func() {
		l.v.RunUntil(l.v.Now() + 100_000_000)
	}
	l.crash()
	open(false)
	l.write(0, 64, 1)
	settle()
	was := reads()
	l.want(0, 64, 1)
	if reads() != was {
		t.Fatal("what was written is not on flash")
	}
	// While the cache is down, another host changes something; at the start nobody says what.
	l.crash()
	other(8, 8, 2)
	open(true)
	l.want(0, 8, 1)
	l.want(8, 8, 2)
	if s := l.d.State(); !s.Unsure || l.d.Stats().UnansweredQuestions == 0 {
		t.Errorf("it does not say that it is unsure: %+v", s)
	}
	if reads() == was {
		t.Error("what may have been changed is served from flash")
	}
	// The answer comes: what was changed is forgotten, the rest is warm.
	below.deaf = false
	l.v.RunUntil(l.v.Now() + 2*askAgainNanos)
	was = reads()
	l.want(16, 48, 1)
	if reads() != was || l.d.State().Unsure {
		t.Error("after the answer what nobody changed is not served from flash")
	}
	// The same later, when the device says that something changed and then not what.
	below.deaf = true
	other(32, 8, 3)
	l.d.event(block.Event{Kind: block.EventGeneration})
	settle()
	l.want(32, 8, 3)
	l.want(40, 8, 1)
}

// TestUnansweredQuestionsSpareWhatIsDirty: it is newer than anything below.
func TestUnansweredQuestionsSpareWhatIsDirty(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 4, 7)
	l.d.generation.unsure = true
	l.a.data[4] = pattern(9, 1)
	l.want(0, 4, 7)
	l.want(4, 1, 9)
	l.write(2, 1, 8)
	l.want(2, 1, 8)
	l.want(0, 2, 7)
}

// TestThrottledWritesAreLetGo: when the area has drained, and when their client withdraws them.
func TestThrottledWritesAreLetGo(t *testing.T) {
	throttled := func() (*lab, *block.Request, func() bool) {
		l := newLab(t, func(w *world) {
			withoutDestager(w)
			w.opt.Throttle = Throttle{Area: 64 << 9, Threshold: 500}
		})
		l.d.throttle.san = 40_000_000_000 // a device below that takes its time
		l.write(0, 32, 1)
		r := &block.Request{Op: block.OpWrite, Range: block.Range{Start: 100, Count: 24}, Data: [][]byte{pattern(2, 24)}}
		end := l.start(r)
		l.v.RunUntil(l.v.Now() + 1_000_000_000)
		if end() {
			t.Fatal("the write is not throttled")
		}
		return l, r, end
	}
	l, r, end := throttled()
	l.d.Cancel(r)
	l.v.RunUntil(l.v.Now() + 1_000)
	if !end() || r.Status != block.Cancelled {
		t.Errorf("a write that is withdrawn has ended: %v, %v", end(), r.Status)
	}
	l.want(100, 24, 2)

	l, r, end = throttled()
	l.d.destager.used = 0 // the destager works again
	l.d.turn.wake(l.d)
	l.d.pump()
	l.v.RunUntil(l.v.Now() + 100_000_000)
	if !end() || r.Status != block.OK {
		t.Errorf("after the area has drained the write has ended: %v, %v", end(), r.Status)
	}

	l, _, end = throttled()
	l.v.RunUntil(l.v.Now() + maxInjected)
	if !end() {
		t.Errorf("after the longest delay the write has not ended")
	}
}
