package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// What the model found beside the promises: the last flash fails, and something else goes wrong.

// destages lets the destager work.
func (l *lab) destages() {
	l.path.open(block.OpWrite)
	l.d.destager.used = 0
	l.d.turn.wake(l.d)
	l.d.pump()
}

// TestWriteWhoseFlashFailsEnds: nothing is dirty, so nothing but the write itself stands between it
// and the mark that the flash is left out.
func TestWriteWhoseFlashFailsEnds(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.cards[0].tired = true
	l.write(0, 8, 1)
	l.wantBelow(0, 8, 1)
}

// TestFailedDestageOfTheLastFlashGivesNothingUp: the array fails for a while as well, and the host
// dies. What was acknowledged is on the flash. What waited for it fails in time.
func TestFailedDestageOfTheLastFlashGivesNothingUp(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.dirty(0, 8, 1)
	l.cards[0].tired = true
	l.a.failing = 100
	r := &block.Request{Op: block.OpWrite, Range: block.Range{Start: 100, Count: 8}, Data: [][]byte{pattern(2, 8)}}
	end := l.start(r)
	l.wait(func() bool { return l.d.local().state == memberFailing })
	l.destages()
	l.wait(func() bool { return l.d.Stats().DestageErrors > 0 && end() })
	if r.Status == block.OK {
		t.Error("a write of what is nowhere succeeds")
	}
	l.crash()
	l.cards[0].tired, l.a.failing = false, 0
	if err := l.try(0, nil); err != nil {
		t.Fatalf("what was acknowledged is given up: %v", err)
	}
	l.want(0, 8, 1)
}

// TestOffloadWaitsForARecordThatTheFlashDidNotTake: a start would serve what is clean there, and
// the array has something else.
func TestOffloadWaitsForARecordThatTheFlashDidNotTake(t *testing.T) {
	l := newLab(t, nil)
	l.write(0, 8, 1)
	l.wait(l.d.clean)
	l.d.destager.used = l.d.destager.ahead()
	l.write(100, 8, 2)
	l.cards[0].tired = true
	end := l.start(&block.Request{Op: block.OpWriteSame, Range: block.Range{Count: 8}, Data: [][]byte{pattern(9, 1)}})
	l.wait(func() bool { return l.d.local().state == memberFailing })
	l.v.RunUntil(l.v.Now() + 1_000_000_000)
	l.wantBelow(0, 8, 1)
	l.destages()
	l.wait(end)
	l.wantBelow(0, 8, 9)
	l.wantBelow(100, 8, 2)
}

// TestShortFailuresOfReadsDoNotAddUp: each has its minute.
func TestShortFailuresOfReadsDoNotAddUp(t *testing.T) {
	l := newLab(t, withoutDestager)
	for n := range uint64(2 * rereadTries) {
		l.d.destager.used = l.d.destager.ahead()
		l.write(8*n, 8, 1+n)
		l.cards[0].bad = map[int]bool{}
		for _, frame := range l.d.frameOf {
			if frame != noFrame {
				l.cards[0].bad[int(l.d.flashOffset(frame, 3))] = true
			}
		}
		l.destages()
		l.v.RunUntil(l.v.Now() + 1_200_000_000)
		l.cards[0].bad = nil
		l.wait(l.d.clean)
		if l.d.State().Damaged > 0 {
			t.Fatalf("the %d. failure of a second costs %d sectors", n+1, l.d.State().Damaged)
		}
		l.wantBelow(8*n, 8, 1+n)
	}
}

// TestDelayedWriteIsLetGoByOneOverDirtySectors: while that was on its way, its sectors counted
// twice.
func TestDelayedWriteIsLetGoByOneOverDirtySectors(t *testing.T) {
	l := newLab(t, func(w *world) {
		withoutDestager(w)
		w.opt.Throttle = Throttle{Area: 64 << 9, Threshold: 500}
	})
	l.d.throttle.san = 40_000_000_000
	l.write(0, 32, 1)
	one := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}})
	two := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 8, Count: 8}, Data: [][]byte{pattern(3, 8)}})
	l.v.RunUntil(l.v.Now() + 100_000_000)
	if !one() || !two() {
		t.Errorf("the area is at its threshold, and writes have ended: %v, %v", one(), two())
	}
}

// TestFlushBesideOneWhoseSyncFails: what the second one is to save may be what the sync of the first one has lost, and the kernel
// tells of a loss once.
func TestFlushBesideOneWhoseSyncFails(t *testing.T) {
	l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile = true })
	l.dirty(0, 8, 1)
	first, second := &block.Request{Op: block.OpFlush}, &block.Request{Op: block.OpFlush}
	l.cards[0].faults = []fault{{what: faultSync, times: 1}}
	ends := []func() bool{l.start(first)}
	l.wait(func() bool { return l.d.local().syncing })
	ends = append(ends, l.start(second))
	l.wait(func() bool { return len(l.d.local().due) > 0 })
	l.wait(func() bool { return ends[0]() && ends[1]() })
	if first.Status != block.Hardware || second.Status != block.Hardware {
		t.Errorf("the flushes end %v and %v", first.Status, second.Status)
	}
}
