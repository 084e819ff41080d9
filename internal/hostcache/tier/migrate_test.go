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
			n := -1
			to.d.MigrateFrom(from.d, func(blocks int) { n = blocks })
			to.wait(func() bool { return n >= 0 && len(to.d.active) == 0 })
			if n != 5 {
				t.Errorf("%d blocks moved, want 5", n)
			}
		}
		to.want(0, 40, 1)
		if hits := to.d.Views().LocalFlash.Read.IOs; (hits == 1) != migrate {
			t.Errorf("migrated %v: %d reads from flash", migrate, hits)
		}
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
