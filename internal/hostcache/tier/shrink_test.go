package tier

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// A LUN that shrinks and grows again: what was behind its end in between is gone, whatever the cache had of it.

// heardOfSize has the cache hear that the LUN has another size.
func (w *world) heardOfSize() {
	for _, fn := range w.a.notify {
		fn(block.Event{Kind: block.EventCapacity})
	}
}

// shrinking reports whether the disk has not yet recorded what the LUN has cut off.
func (d *Disk) shrinking() bool {
	cut := func(o *op) bool { return o.req == nil && o.mode == belowMode }
	return slices.ContainsFunc(d.active, cut) || slices.ContainsFunc(d.waiting, cut)
}

// eventShrinkAndGrow: the LUN shrinks and grows again, with destages on their way, and the flash may lose its power between any
// two steps.
func (w *world) eventShrinkAndGrow() {
	if w.taker > 0 {
		return
	}
	for range 1 + w.r.IntN(2) {
		w.steps(w.r.IntN(10))
		n := w.a.sectors
		to := max(400, n-1-w.r.Uint64N(120))
		for range w.r.IntN(4) {
			count := 1 + w.r.Uint64N(min(40, n-to))
			w.putAt(block.OpWrite, block.Range{Start: n - count - w.r.Uint64N(n-to-count+1), Count: count})
		}
		if w.r.IntN(3) == 0 {
			w.flush()
		}
		w.settle()
		if w.r.IntN(2) == 0 { // destages get under way, or end
			w.v.RunUntil(w.v.Now() + w.r.Int64N(2*w.a.delay))
		}
		cut := w.cutTo(to)
		w.smallest = everything // no request is under way
		heard := w.r.IntN(4) > 0
		if heard {
			w.heardOfSize()
		}
		if w.mayCrash(cutOff{}) {
			heard = true // it was started with this size
		}
		if !heard {
			w.heardOfSize()
		}
		if w.r.IntN(2) == 0 {
			w.mayCrash(cutOff{})
		}
		w.settle()
		w.resize(max(to+1, n-20+w.r.Uint64N(60)))
		w.heardOfSize()
		w.mayCrash(cut)
		w.checkAll(false)
		if w.r.IntN(2) == 0 {
			w.mayCrash(cut)
		}
	}
}

// mayCrash lets pass some time, or requests, and the host may die behind that, with a loss of power or without. If the cache has
// not yet recorded then that the LUN had shrunk, and the LUN has grown again, what was cut off may come back.
func (w *world) mayCrash(cut cutOff) (crashed bool) {
	w.pass(w.r.IntN(4))
	if w.r.IntN(2) == 0 {
		w.settle()
	}
	if w.r.IntN(3) == 0 {
		return false
	}
	if w.d.shrinking() {
		w.comesBack(cut, nil)
	}
	w.crash()
	if w.r.IntN(3) > 0 {
		w.cutHost()
	}
	w.reboot()
	return true
}

// TestShrinkSurvivesALossOfPower: what was cut off is gone for good before anything can be read there again.
func TestShrinkSurvivesALossOfPower(t *testing.T) {
	for _, destaged := range []bool{false, true} {
		l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile = true })
		l.write(4080, 8, 1)
		if s := l.do(&block.Request{Op: block.OpFlush}); s != block.OK {
			t.Fatal(s)
		}
		if destaged { // the flash has not synced that
			l.d.destager.used = 0
			l.d.turn.wake(l.d)
			l.d.pump()
			l.wait(l.d.clean)
		}
		l.a.resize(4000)
		l.heardOfSize()
		l.a.resize(4096)
		l.heardOfSize()
		l.want(4080, 8, 0)
		l.crash()
		l.cards[0].undoAll()
		l.opt.Boot++
		if _, err := l.open(nil); err != nil {
			t.Fatal(err)
		}
		l.want(4080, 8, 0)
		l.crash()
	}
}

// undoAll has a card lose all that it has not synced.
func (c *card) undoAll() {
	for _, u := range slices.Backward(c.undo) {
		copy(c.b[u.off:], u.old)
	}
	c.forgotten += len(c.undo)
	c.undo = c.undo[:0]
}

// TestDestageOfWhatIsCutOff: a destage has read what the LUN cuts off then, and the LUN grows again. What was read does not go below
// any more, and a copy that waits for it ends.
func TestDestageOfWhatIsCutOff(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(4080, 8, 1)
	l.d.destager.used = 0
	l.d.turn.wake(l.d)
	l.d.pump()
	if len(l.a.writes) > 0 || l.d.turn.inflight != 1 {
		t.Fatalf("%d writes are below, %d destages under way", len(l.a.writes), l.d.turn.inflight)
	}
	held := l.start(&block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 4080, Count: 8}}})
	l.a.resize(4000)
	l.heardOfSize()
	l.a.resize(4096)
	l.heardOfSize()
	l.wait(func() bool { return held() && l.d.clean() })
	l.want(4080, 8, 0)
	l.wantBelow(4080, 8, 0)
	if n := l.d.Stats().DestageErrors; n != 0 || l.d.turn.pausedTo != 0 {
		t.Errorf("%d destages have failed, and the disk pauses to %d", n, l.d.turn.pausedTo)
	}
}

// TestRefusedDestageBeforeTheNewEndIsHeard: the LUN refuses a destage that reaches behind its new end, of which the cache has not
// heard. A copy of what lies before the end has it; one of what lies behind is refused.
func TestRefusedDestageBeforeTheNewEndIsHeard(t *testing.T) {
	l := newLab(t, nil)
	l.dirty(4000, 80, 1)
	l.wait(func() bool { return len(l.a.kept) == 1 })
	hold := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 4000, Count: 8}}}
	over := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 4064, Count: 8}}}
	held, refused := l.start(hold), l.start(over)
	l.wait(func() bool { return len(l.d.flushers) == 2 })
	l.a.resize(4044)
	l.path.open(block.OpWrite)
	l.wait(func() bool { return held() && refused() })
	if hold.Status != block.OK || over.Status != block.OutOfRange {
		t.Errorf("a copy of what lies before the end ends %v, and one of what lies behind %v", hold.Status, over.Status)
	}
	l.heardOfSize()
	l.wait(l.d.clean)
	l.wantBelow(4000, 44, 1)
}

// TestSizeChangesAsTheCacheStarts: a cache that starts while the LUN shrinks has the new size, and none of what is cut off.
func TestSizeChangesAsTheCacheStarts(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(4080, 8, 1)
	l.crash()
	opened := false
	l.begin(0, nil, func(err error) { opened = err == nil })
	l.a.resize(4000)
	l.wait(func() bool { return opened })
	if n := l.d.Info().Sectors; n != 4000 {
		t.Errorf("the LUN has 4000 sectors, and the cache says %d", n)
	}
	if n := l.d.Recovery().DirtySectors; n != 8 {
		t.Fatalf("%d sectors are found dirty: the test comes too late", n)
	}
	l.wait(l.d.clean)
	l.a.resize(4096)
	l.heardOfSize()
	l.want(4080, 8, 0)
}
