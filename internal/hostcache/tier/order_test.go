package tier

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// The order of what happens to one sector: writes, flushes, damage, deaths.

// values reads sectors, which must all be whole: the value of each.
func (l *lab) values(at, n uint64) (v []uint64) {
	l.t.Helper()
	buf := make([]byte, n<<block.SectorShift)
	if s := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: n}, Data: [][]byte{buf}}); s != block.OK {
		l.t.Fatalf("read: %v, %+v", s, l.d.Recovery())
	}
	for ; len(buf) > 0; buf = buf[block.SectorSize:] {
		x, whole := valueOf(buf)
		if !whole {
			l.t.Fatalf("a sector is torn: %x", buf[:block.SectorSize])
		}
		v = append(v, x)
	}
	return v
}

// TestFlushBesideAWriteOfTheSameSector: a flush covers the version before the write that is under way, and the next write
// must not lie on the flash without a durable record that there was something to keep.
func TestFlushBesideAWriteOfTheSameSector(t *testing.T) {
	for n := range 50 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile = true })
			for range n {
				l.r.Uint64()
			}
			l.write(0, 8, 1)
			wrote := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}})
			flush := &block.Request{Op: block.OpFlush}
			flushed := l.start(flush)
			l.wait(func() bool { return wrote() && flushed() })
			if flush.Status != block.OK {
				t.Fatal(flush.Status)
			}
			l.write(0, 8, 3)
			l.crash()
			l.cards[0].powerCut()
			l.open(nil)
			for i, v := range l.values(0, 8) {
				if v < 1 || v > 3 {
					t.Errorf("sector %d is %d after a loss of power; 1 was flushed", i, v)
				}
			}
		})
	}
}

// TestDamageBesideAWriteUnderWay: sectors that cannot be read are given up while they are being written. The write was
// acknowledged, so it is what counts, at the next start too.
func TestDamageBesideAWriteUnderWay(t *testing.T) {
	for _, ms := range []int64{0, 100_000, 200_000, 400_000} {
		l := newLab(t, withoutDestager)
		l.write(0, 8, 1)
		wrote := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 2, Count: 4}, Data: [][]byte{pattern(2, 4)}})
		l.v.RunUntil(l.v.Now() + ms)
		if wrote() {
			t.Fatalf("the write ended within %d ns", ms)
		}
		l.d.giveUpSectors(block.Range{Count: 4})
		l.d.pump()
		l.wait(wrote)
		for range 2 {
			if s := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Count: 1}, Data: [][]byte{make([]byte, 512)}}); s != block.MediumRead {
				t.Errorf("a sector that was given up: %v", s)
			}
			l.want(2, 4, 2)
			l.want(6, 2, 1)
			l.crash()
			l.open(nil)
		}
	}
}

// TestUnfinishedWriteOverDamage: a write of a damaged sector that the host did not live to finish. It is there, or the sector
// is still damaged: what the LUN below has is older than what was acknowledged and lost. Half of the writes come before the
// damage is durable; then the sector may still be as it was.
func TestUnfinishedWriteOverDamage(t *testing.T) {
	there, damaged := 0, 0
	for n := range int64(40) {
		l := newLab(t, func(w *world) { withoutDestager(w); w.opt.PowerSafe = n%2 == 0 })
		for range n {
			l.r.Uint64()
		}
		l.write(0, 8, 1)
		l.d.giveUpSectors(block.Range{Count: 8})
		l.d.pump()
		durable := n%4 < 2
		if durable {
			l.wait(func() bool { return len(l.d.active) == 0 })
		}
		l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}})
		l.v.RunUntil(l.v.Now() + n*10_000)
		l.crash()
		for range 2 {
			if _, err := l.open(nil); err != nil {
				t.Fatal(err)
			}
			for i := range uint64(8) {
				buf := make([]byte, 512)
				s := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Start: i, Count: 1}, Data: [][]byte{buf}})
				v, whole := valueOf(buf)
				switch {
				case s == block.MediumRead:
					damaged++
				case s == block.OK && v == 2 && whole:
					there++
				case s == block.OK && v == 1 && whole && !durable:
				default:
					t.Fatalf("sector %d, death after %d us: %v, %d", i, n*10, s, v)
				}
			}
			l.crash()
		}
	}
	if there == 0 || damaged == 0 {
		t.Errorf("%d reads found the write, %d the damage: want both", there, damaged)
	}
}

// TestUnfinishedWriteOverAForgottenSector: the flash cannot read a clean sector, which is forgotten, and written at once by a
// write that the host did not live to finish. What a start finds must not be taken for what the LUN below has.
func TestUnfinishedWriteOverAForgottenSector(t *testing.T) {
	for n := range int64(40) {
		l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
		for range n {
			l.r.Uint64()
		}
		l.write(0, 8, 1)
		l.wait(func() bool { return len(l.d.active) == 0 })
		l.d.SetPolicy(Policy{Mode: WriteBack}, nil)
		l.d.destager.used = l.d.destager.ahead()
		l.write(64, 8, 7)                   // what is filled is durable with the next record
		l.a.delay, l.d.opt.FillBytes = 0, 1 // the read ends at once, and is not filled in
		s := l.d.ix.Lookup(0)
		l.cards[0].bad = map[int]bool{}
		for i := range 8 {
			l.cards[0].bad[int(l.d.flashOffset(l.d.frameOf[s], i))] = true
		}
		l.want(0, 8, 1)
		l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}})
		l.v.RunUntil(l.v.Now() + n*10_000)
		l.crash()
		l.cards[0].bad = nil
		l.boot(0)
		was := l.values(0, 8)
		l.d.Drop(func(int64) {})
		l.wait(func() bool { return len(l.d.active) == 0 })
		if now := l.values(0, 8); !slices.Equal(was, now) {
			t.Fatalf("death after %d us: %v was read, and then %v", n*10, was, now)
		}
	}
}

// TestFUAPastTheCacheOverDirtyData: what it replaces is void, durably, before it is acknowledged.
func TestFUAPastTheCacheOverDirtyData(t *testing.T) {
	for n := range 20 {
		l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile = true })
		for range n {
			l.r.Uint64()
		}
		l.write(0, 8, 1)
		if n%2 == 0 {
			l.do(&block.Request{Op: block.OpFlush})
		}
		r := &block.Request{Op: block.OpWrite, Flags: block.FUA | block.Atomic, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}}
		if s := l.do(r); s != block.OK {
			t.Fatal(s)
		}
		l.crash()
		l.cards[0].powerCut()
		l.open(nil)
		if v := l.values(0, 8); slices.Max(v) != 2 || slices.Min(v) != 2 {
			t.Fatalf("after a loss of power the sectors are %v; 2 was written with FUA", v)
		}
	}
}

// TestFUASurvivesTheLossOfTheArraysPower: a client that asks for durability by FUA alone, and never by a flush, has it behind a
// destage, and behind a write past the cache that takes its place.
func TestFUASurvivesTheLossOfTheArraysPower(t *testing.T) {
	for name, then := range map[string]func(l *lab){
		"destaged": func(l *lab) { l.d.destager.used = 0; l.d.turn.wake(l.d); l.d.pump(); l.wait(l.d.clean) },
		"on its way as it is written": func(l *lab) {
			l.path.open(block.OpWrite)
			l.wait(l.d.clean)
		},
		"overwritten past the cache": func(l *lab) {
			if s := l.do(&block.Request{Op: block.OpWriteSame, Range: block.Range{Count: 8}, Data: [][]byte{pattern(3, 1)}}); s != block.OK {
				t.Fatal(s)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(w *world) {
				if name != "on its way as it is written" {
					withoutDestager(w)
				}
				w.a.undo = map[uint64][][]byte{}
			})
			if name == "on its way as it is written" {
				l.dirty(4, 8, 1)
				l.wait(func() bool { return len(l.a.kept) == 1 }) // that destage has no FUA
			}
			r := &block.Request{Op: block.OpWrite, Flags: block.FUA, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}}
			if s := l.do(r); s != block.OK {
				t.Fatal(s)
			}
			then(l)
			l.a.powerCut()
			l.wait(func() bool { return len(l.d.active) == 0 })
			for i := range uint64(8) {
				if v, _ := valueOf(l.a.sector(i)); v < 2 && !l.d.ix.Dirty(l.d.ix.Lookup(0), int(i), 1) {
					t.Errorf("sector %d of the array is %d after a loss of its power, and clean here; 2 was written with FUA", i, v)
				}
			}
		})
	}
}
