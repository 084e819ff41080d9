package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// What takes the place of damage, and a loss of power behind that.

// giveUp makes sectors damaged, durably.
func (l *lab) giveUp(g block.Range) {
	l.t.Helper()
	l.d.giveUpSectors(g)
	l.d.pump()
	l.wait(func() bool { return len(l.d.active) == 0 })
	if !l.d.damaged.overlaps(g) {
		l.t.Fatalf("%v is not damaged", g)
	}
}

// TestDamageDoesNotGiveWayToWhatTheArrayMayLose: what was flushed is damaged, and written once more beneath the cache. If the
// array loses that with its power, it has again what was there before the flush; nobody may read that.
func TestDamageDoesNotGiveWayToWhatTheArrayMayLose(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		for _, op := range []block.Op{block.OpWriteSame, block.OpWrite} {
			l := newLab(t, func(w *world) { withoutDestager(w); w.a.undo = map[uint64][][]byte{} })
			l.d.SetPolicy(Policy{Mode: WriteThrough}, nil)
			l.write(0, 8, 1)
			l.d.SetPolicy(Policy{Mode: WriteBack}, nil)
			l.write(0, 8, 2)
			if s := l.flush(); s != block.OK || l.d.ix.DirtySectors() != 8 {
				t.Fatalf("flush: %v, %d sectors are dirty", s, l.d.ix.DirtySectors())
			}
			l.giveUp(block.Range{Count: 8})
			if restarted {
				l.crash()
				l.boot(0)
			}
			if op == block.OpWrite {
				l.dirty(0, 8, 3)
				l.path.open(block.OpWrite)
				l.d.destager.used = 0
				l.d.turn.wake(l.d)
				l.d.pump()
				l.wait(l.d.clean)
			} else if s := l.do(&block.Request{Op: op, Range: block.Range{Count: 8}, Data: [][]byte{pattern(3, 1)}}); s != block.OK {
				t.Fatal(s)
			}
			l.wait(func() bool { return len(l.d.active) == 0 })
			for s, older := range l.a.undo { // each on its own: order does not matter
				l.a.data[s] = older[0]
			}
			clear(l.a.undo)
			l.path.attention = true
			l.path.hear()
			for s := range uint64(8) {
				buf := make([]byte, block.SectorSize)
				st := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Start: s, Count: 1}, Data: [][]byte{buf}})
				if v, _ := valueOf(buf); st != block.MediumRead && v != 3 {
					t.Errorf("%v, restarted %v: sector %d is %d (%v), which was there before what was flushed", op, restarted, s, v, st)
				}
			}
		}
	}
}
