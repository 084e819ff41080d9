package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

func TestResizeDestagesAndDrops(t *testing.T) {
	l := newLab(t, nil)
	l.write(0, 64, 1)
	was := l.d.ix.Capacity()
	var got error
	ended := false
	l.d.Resize(was/2, func(err error) { got, ended = err, true })
	l.wait(func() bool { return ended })
	if got != nil || l.d.ix.Capacity() != was/2 || l.d.ix.Len() != 0 {
		t.Fatalf("error %v, capacity %d of %d, %d blocks", got, l.d.ix.Capacity(), was, l.d.ix.Len())
	}
	l.wantBelow(0, 64, 1)
	l.want(0, 64, 1)
	l.write(8, 8, 2)
	l.crash()
	l.boot(0) // with the size that the options say
	l.want(8, 8, 2)
	ended = false
	l.d.Resize(1<<40, func(err error) { got, ended = err, true })
	l.wait(func() bool { return ended })
	if got == nil {
		t.Error("a cache larger than its flash was taken")
	}
}

func TestMigrationKeepsTheCacheWarm(t *testing.T) {
	from := newLab(t, nil)
	from.write(0, 40, 1)
	quiet := false
	from.d.Quiesce(1e12, func(uint64) { quiet = true })
	from.wait(func() bool { return quiet })
	for _, migrate := range []bool{false, true} {
		to := newLab(t, func(w *world) {
			w.v, w.a, w.opt.Exec = from.v, from.a, from.v
			w.cards = []*card{newCard(w.v, w.r, 1<<20)}
		})
		if migrate {
			n, bytes := -1, uint64(0)
			to.d.MigrateFrom(from.d, Migration{}, func(blocks int, moved uint64) { n, bytes = blocks, moved })
			to.wait(func() bool { return n >= 0 && len(to.d.active) == 0 })
			if n != 5 || bytes != 40<<9 {
				t.Errorf("%d blocks of %d bytes moved, want 5 of %d", n, bytes, 40<<9)
			}
		}
		to.want(0, 40, 1)
		if hits := to.d.Views().LocalFlash.Read.IOs; (hits == 1) != migrate {
			t.Errorf("migrated %v: %d reads from flash", migrate, hits)
		}
	}
}

// TestMigrationBesideWrites: what clients of the source change while its contents are copied is not
// served by the cache that took them over, and what they did not change is.
func TestMigrationBesideWrites(t *testing.T) {
	from := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	from.write(0, 40, 1)
	to := newLab(t, func(w *world) {
		w.v, w.a, w.opt.Exec, w.opt.Policy = from.v, from.a, from.v, Policy{Mode: WriteThrough}
		w.cards = []*card{newCard(w.v, w.r, 1<<20)}
	})
	carried, n := uint64(0), -1
	slowly := func(bytes uint64, done func()) {
		carried += bytes
		from.v.Call(from.v.Now()+1e6, done)
	}
	to.d.MigrateFrom(from.d, Migration{Depth: 2, Carry: slowly}, func(blocks int, _ uint64) { n = blocks })
	from.write(0, 8, 2) // read already, and on its way
	to.wait(func() bool { return n >= 0 && len(to.d.active) == 0 })
	from.write(32, 4, 3) // has arrived
	arrived := false
	to.d.Arrive(from.d, func() { arrived = true })
	to.wait(func() bool { return arrived })
	if n != 5 || carried != 40<<9 {
		t.Errorf("%d blocks of %d bytes were carried, want 5 of %d", n, carried, 40<<9)
	}
	to.want(0, 8, 2)
	to.want(32, 4, 3)
	if hits := to.d.Views().LocalFlash.Read.IOs; hits != 0 {
		t.Errorf("%d reads of what was changed came from flash", hits)
	}
	to.want(8, 24, 1)
	if hits := to.d.Views().LocalFlash.Read.IOs; hits != 1 {
		t.Errorf("%d reads of what was not changed came from flash, want 1", hits)
	}
	if reads := from.d.Views().Effective.Read.IOs; reads != 0 {
		t.Errorf("the migration counts as %d reads of the source's clients", reads)
	}
}

// TestMemoryByBlockSize is the second figure of the paper on vFRC: the memory of the cache's
// bookkeeping halves with every doubling of the block, until the bit a sector is what remains.
func TestMemoryByBlockSize(t *testing.T) {
	const size = 1 << 30
	var last int64
	for kb := 4; kb <= 1024; kb *= 2 {
		v := &block.Virtual{}
		var d *Disk
		Open(Options{Exec: v, Below: laneDevice{newLane(v, 1, 1, 8<<30)}, Flash: laneMedium{newLane(v, 1, 1, size)}, Volatile: true,
			BlockSectors: 2 * kb, Eviction: "lru", Policy: Policy{Mode: WriteThrough}}, func(x *Disk, err error) {
			if err != nil {
				t.Fatal(err)
			}
			d = x
		})
		v.Run()
		m := d.Memory()
		bits := int64(size/512) / 8 * 2 // valid and dirty
		t.Logf("%4d KiB: %8d bytes a GiB of flash", kb, m)
		if last != 0 && !near(float64(m-bits), float64(last)/2, 0.25) && m-bits > 64<<10 {
			t.Errorf("%d KiB: %d bytes beside the bitmaps, before %d", kb, m-bits, last)
		}
		last = m - bits
		if s := d.CacheStats(); s.NumBlocks != d.ix.Capacity() || s.BlockSizeKB != kb {
			t.Errorf("%d KiB: statistics say %d blocks of %d KB", kb, s.NumBlocks, s.BlockSizeKB)
		}
	}
}

// TestMigrationBesideQueuedWrites: a write that a client gave before the copy began, and that gets below behind it, is
// no more in the copy than one that comes later.
func TestMigrationBesideQueuedWrites(t *testing.T) {
	from := newLab(t, nil)
	from.write(0, 8, 1)
	token := uint64(0)
	from.d.Quiesce(1e12, func(n uint64) { token = n })
	from.wait(func() bool { return token != 0 })
	from.d.Resume(token)
	to := newLab(t, func(w *world) {
		w.v, w.a, w.opt.Exec, w.opt.Policy = from.v, from.a, from.v, Policy{Mode: WriteThrough}
		w.cards = []*card{newCard(w.v, w.r, 1<<20)}
	})
	ended, copied := 0, false
	done := func(*block.Request) { ended++ }
	from.d.Submit([]*block.Request{
		{Op: block.OpRead, Range: block.Range{Count: 16}, Data: [][]byte{make([]byte, 16<<block.SectorShift)}, Done: done},
		{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}, Done: done},
	})
	from.d.Quiesce(1e12, func(uint64) {
		to.d.MigrateFrom(from.d, Migration{}, func(int, uint64) { copied = true })
	})
	to.wait(func() bool { return copied && ended == 2 && len(to.d.active) == 0 })
	arrived := false
	to.d.Arrive(from.d, func() { arrived = true })
	to.wait(func() bool { return arrived })
	to.want(0, 8, 2)
}

// TestChangesOfAGrownLUN: what is noted of a copy has room for a LUN that grows meanwhile.
func TestChangesOfAGrownLUN(t *testing.T) {
	l := &leaving{changed: make([]uint64, 1)}
	l.note([]block.Range{{Start: 8 * 64 * 9, Count: 16}}, 8)
	if len(l.changed) != 10 || l.changed[9] != 3 {
		t.Errorf("changed is %x", l.changed)
	}
}

// TestMigrationOfWhatCannotBeRead: a run that the source could not read, neither from its flash nor from the array, is not taken
// for its contents.
func TestMigrationOfWhatCannotBeRead(t *testing.T) {
	from := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	from.write(0, 40, 1)
	to := newLab(t, func(w *world) {
		w.v, w.a, w.opt.Exec, w.opt.Policy = from.v, from.a, from.v, Policy{Mode: WriteThrough}
		w.cards = []*card{newCard(w.v, w.r, 1<<20)}
	})
	copied := false
	from.cards[0].broken, from.a.failing = true, 100
	to.d.MigrateFrom(from.d, Migration{}, func(int, uint64) { copied = true })
	to.wait(func() bool { return copied && len(to.d.active) == 0 })
	from.a.failing = 0
	to.want(0, 40, 1)
	if hits := to.d.Views().LocalFlash.Read.IOs; hits != 0 {
		t.Errorf("%d reads of what could not be copied came from flash", hits)
	}
}

// TestResizeBesideGrowth: the LUN grows while its cache waits for another size. What is written behind the former end is kept.
func TestResizeBesideGrowth(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.a.gate[block.OpWrite] = true
	resized := false
	l.d.Resize(60, func(err error) {
		if resized = true; err != nil {
			t.Error(err)
		}
	})
	l.wait(func() bool { return len(l.a.kept) == 1 })
	l.a.resize(8192)
	for _, fn := range l.path.notify {
		fn(block.Event{Kind: block.EventCapacity})
	}
	wrote := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 5000, Count: 8}, Data: [][]byte{pattern(2, 8)}})
	l.v.RunUntil(l.v.Now() + 10_000_000)
	l.path.open(block.OpWrite)
	l.wait(func() bool { return resized && wrote() })
	l.want(0, 8, 1)
	l.want(5000, 8, 2)
}

// TestResizeBesideShrink: the LUN shrinks while its cache waits for another size. The cache gets it.
func TestResizeBesideShrink(t *testing.T) {
	l := newLab(t, nil)
	l.dirty(4000, 80, 2)
	l.wait(func() bool { return len(l.a.kept) == 1 })
	resized := false
	l.d.Resize(60, func(err error) {
		if resized = true; err != nil {
			t.Error(err)
		}
	})
	l.wait(func() bool { return len(l.d.flushers) == 1 })
	l.a.resize(4044)
	for _, fn := range l.path.notify {
		fn(block.Event{Kind: block.EventCapacity})
	}
	l.path.open(block.OpWrite)
	l.wait(func() bool { return resized })
	l.want(4000, 44, 2)
	l.wantBelow(4000, 44, 2)
	if n := l.d.ix.Capacity(); n != 60 {
		t.Errorf("it has %d blocks", n)
	}
}
