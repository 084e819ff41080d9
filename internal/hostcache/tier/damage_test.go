package tier

import (
	"maps"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
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

// eventReplacedDamage: what was flushed cannot be read any more and is given up. It is written again, and the array loses
// power with that.
func (w *world) eventReplacedDamage() {
	if w.taker > 0 || len(w.mayFail) > 0 || !w.sole() || w.doubted || !w.d.flashed() {
		return
	}
	w.settle()
	w.flush()
	w.settle()
	w.troubled, w.a.failing = true, 100 // nothing is destaged
	for range 1 + w.r.IntN(4) {
		w.put(block.OpWrite)
	}
	w.settle()
	w.flush()
	w.settle()
	c := w.cards[0]
	c.bad = map[int]bool{}
	w.badSince = w.nextID
	w.d.eachDirty(block.Range{Count: w.a.sectors}, func(g block.Range) bool {
		per := uint64(w.d.per)
		frame := w.d.frameOf[w.d.ix.Lookup(hostcache.MakeKey(0, g.Start/per))]
		c.bad[int(w.d.flashOffset(frame, int(g.Start%per)))] = true
		w.spoil(g.Start)
		return len(c.bad) < 4
	})
	w.note("bad: %d, may fail: %v", len(c.bad), w.mayFail)
	w.v.RunUntil(w.v.Now() + 90_000_000_000)
	w.a.failing = 0
	w.v.RunUntil(w.v.Now() + max(10_000_000_000, 4*w.a.delay))
	w.troubled = false
	if w.r.IntN(2) == 0 {
		w.crash()
		w.reboot()
	}
	for _, s := range slices.Sorted(maps.Keys(w.mayFail)) {
		if s < w.a.sectors {
			w.putAt([]block.Op{block.OpWrite, block.OpWriteSame, block.OpUnmap}[w.r.IntN(3)], block.Range{Start: s, Count: 1})
		}
	}
	w.settle()
	w.v.RunUntil(w.v.Now() + w.r.Int64N(20*w.a.delay)) // some of it is destaged
	w.loseArrayPower()
}

// TestLossOfPowerUndoesAWriteOverDamage: the record that a sector was written goes with the flash's power
// like any other that was not flushed, and then the sector is damaged again: the cache cannot tell
// whether what the LUN below has is that write. The model knows this. What was flushed, or written with FUA, stays.
func TestLossOfPowerUndoesAWriteOverDamage(t *testing.T) {
	at := block.Range{Count: 8}
	for name, c := range map[string]struct {
		over    func(*lab)
		durable bool
	}{
		"an offload":              {func(l *lab) { l.putAt(block.OpWriteSame, at) }, false},
		"a write":                 {func(l *lab) { l.putAt(block.OpWrite, at) }, false},
		"an offload, and a flush": {func(l *lab) { l.putAt(block.OpWriteSame, at); l.settle(); l.world.flush() }, true},
		"a write, and a flush":    {func(l *lab) { l.putAt(block.OpWrite, at); l.settle(); l.world.flush() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			returned := 0
			for n := range 40 {
				l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile, w.a = true, newArray(w.v, w.r, 64) })
				for range n {
					l.r.Uint64()
				}
				l.mem, l.traced = &arena{}, true
				l.may, l.back = blank(l.a.sectors), blank(l.a.sectors)
				l.putAt(block.OpWrite, at)
				l.settle()
				l.giveUp(at)
				for s := range at.Count {
					l.spoil(s)
				}
				c.over(l)
				l.settle()
				if len(l.mayFail) > 0 {
					t.Fatalf("sectors that were written may still fail: %v", l.mayFail)
				}
				l.crash()
				l.cutHost()
				l.reboot()
				if len(l.d.damaged) > 0 {
					returned++
				}
				if c.durable && len(l.mayFail) > 0 {
					t.Fatalf("sectors that were flushed may fail: %v", l.mayFail)
				}
				l.checkAll(false)
			}
			if c.durable != (returned == 0) {
				t.Errorf("damage came back in %d of 40 losses of power", returned)
			}
		})
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
