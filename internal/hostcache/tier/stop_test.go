package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// eventStop: the cache is stopped in good order and started again, by starts that may die. What the array loses by power until
// a request changes something is nothing of the cache's: a flush succeeds. What it loses behind that is, as ever.
func (w *world) eventStop() {
	if w.taker > 0 || len(w.mayFail) > 0 || !w.d.flashed() || w.d.marks.owed {
		return
	}
	w.settle()
	w.stop()
	tells := w.d.lostWrites || w.path.attention || w.d.local().label.state != labelClosed
	w.crash()
	cut := w.r.IntN(2) == 0
	if cut {
		w.cutArray()
	}
	for range w.r.IntN(3) {
		ended := false
		w.begin(0, nil, func(error) { ended = true })
		for until := w.v.Now() + w.r.Int64N(4_000_000); w.v.Now() < until && w.v.Step(); {
		}
		w.note("the start has ended: %v", ended)
		w.crash()
		if !cut && w.r.IntN(2) == 0 {
			cut = true
			w.cutArray()
		}
	}
	w.reboot()
	if w.taker > 0 || w.d.Recovery().Fresh || tells {
		return
	}
	w.path.hear()
	if w.r.IntN(3) == 0 {
		w.mayOwe = false
		w.flush()
		w.settle()
	}
	w.steps(w.r.IntN(20))
	if w.r.IntN(2) == 0 { // all of it is destaged, and not flushed
		w.settle()
		w.v.RunUntil(w.v.Now() + 10*w.a.delay)
	}
	switch w.r.IntN(3) {
	case 0:
		w.crash()
		lost := w.cutArray()
		w.reboot()
		if w.taker == 0 && !w.d.Recovery().Fresh {
			w.path.hear()
			w.owed += lost
			w.flush()
			w.settle()
		}
	case 1:
		w.arrayPowerUnder()
	}
}

// TestShrinkUnderAWriteThatWaitsForTheLabel: the first write behind an orderly stop waits until the label does not vouch for that
// any more. The LUN shrinks meanwhile, and what is behind its end must not become dirty: it could never be destaged.
func TestShrinkUnderAWriteThatWaitsForTheLabel(t *testing.T) {
	for _, op := range []block.Op{block.OpWrite, block.OpWriteSame} {
		l := newLab(t, nil)
		l.stop()
		l.path.dead = true
		l.again(false)
		r := &block.Request{Op: op, Range: block.Range{Start: 4088, Count: 8}, Data: [][]byte{pattern(2, 8)}}
		end := l.start(r)
		if len(l.d.parked) != 1 {
			t.Fatalf("%v does not wait for the label", op)
		}
		l.a.resize(4080)
		for _, fn := range l.path.notify {
			fn(block.Event{Kind: block.EventCapacity})
		}
		l.wait(end)
		if r.Status != block.OutOfRange {
			t.Errorf("%v behind the end ends %v", op, r.Status)
		}
		l.stop()
	}
}
