package tier

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// coarse is a LUN with blocks of 4096 bytes: it takes no parts of them.
type coarse struct{ *path }

func (c coarse) Info() block.Info {
	i := c.path.Info()
	i.BlockSize = 4096
	return i
}

func (c coarse) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		if parts := func(g block.Range) bool { return (g.Start|g.Count)%8 != 0 }; parts(r.Range) || slices.ContainsFunc(r.Ranges, parts) {
			r.Status = block.Unsupported
			c.exec.Post(func() { r.Done(r) })
			continue
		}
		c.path.Submit([]*block.Request{r})
	}
}

// coarsely opens a lab's cache on such a LUN.
func (l *lab) coarsely() {
	l.t.Helper()
	if err := l.try(0, func(o *Options) { o.Below = coarse{l.path} }); err != nil {
		l.t.Fatal(err)
	}
	l.wait(func() bool { return l.d.State().Why == "" || l.d.requested.Mode != WriteBack })
}

// coarseLab is a lab with such a LUN and with blocks of 8 KiB.
func coarseLab(t *testing.T, change func(*world)) *lab {
	l := newLab(t, func(w *world) {
		withoutDestager(w)
		w.opt.BlockSectors, w.opt.PowerSafe = 16, true
		if change != nil {
			change(w)
		}
	})
	l.crash()
	l.coarsely()
	return l
}

// unreadable makes a sector of the flash unreadable.
func (l *lab) unreadable(sector uint64) {
	s := l.d.ix.Lookup(0)
	l.cards[0].bad = map[int]bool{int(l.d.flashOffset(l.d.frameOf[s], int(sector))): true}
}

// destagesAll has everything destaged, and no destage may fail.
func (l *lab) destagesAll() {
	l.t.Helper()
	l.destages()
	l.wait(l.d.clean)
	if n := l.d.Stats().DestageErrors; n > 0 {
		l.t.Errorf("%d destages fail", n)
	}
}

// TestUnreadableSectorAboveLargeBlocks: a destage that meets it goes by blocks of the LUN, and what is given up in the end is one of
// those.
func TestUnreadableSectorAboveLargeBlocks(t *testing.T) {
	for _, mended := range []bool{true, false} {
		l := coarseLab(t, nil)
		l.write(0, 16, 1)
		l.write(64, 8, 2)
		l.unreadable(3)
		l.destages()
		l.v.RunUntil(l.v.Now() + 300_000_000)
		l.wantBelow(8, 8, 1)
		l.wantBelow(64, 8, 2)
		if mended {
			l.cards[0].bad = nil
		}
		l.destagesAll()
		if mended {
			l.wantBelow(0, 8, 1)
			continue
		}
		for at := uint64(0); at < 16; at += 8 {
			r := &block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: 8}, Data: [][]byte{make([]byte, 4096)}}
			if s := l.do(r); (s == block.MediumRead) != (at == 0) {
				t.Errorf("a read at %d ends %v", at, s)
			}
		}
	}
}

// TestUnreadableCleanSectorAboveLargeBlocks: it is read below, with the block that it is in.
func TestUnreadableCleanSectorAboveLargeBlocks(t *testing.T) {
	l := coarseLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
	l.write(0, 16, 1)
	l.wait(func() bool { return len(l.d.active) == 0 })
	l.unreadable(3)
	for range 3 {
		l.want(0, 16, 1)
		l.want(0, 8, 1)
	}
}

// TestHoleOfAnEarlierVersion: it forgot one sector of a block of the LUN, which cannot be read there alone.
func TestHoleOfAnEarlierVersion(t *testing.T) {
	l := coarseLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
	l.write(0, 16, 1)
	l.wait(func() bool { return len(l.d.active) == 0 })
	if !l.d.forget(l.d.ix.Lookup(0), 3, 1) {
		t.Fatal("the sector is not there")
	}
	l.d.j.ranged(recIntent, block.Range{Start: 3, Count: 1})
	l.write(64, 8, 2) // the record is on the flash before this one ends
	l.crash()
	l.coarsely()
	if l.d.ix.Lookup(0) == hostcache.None {
		t.Fatal("the start is cold")
	}
	l.want(0, 16, 1)
}

// TestUnfinishedWriteAboveLargeBlocks: some sectors of a write got to the flash before a crash, or what was acknowledged there is
// damaged. The others of the same block of the LUN cannot be destaged alone.
func TestUnfinishedWriteAboveLargeBlocks(t *testing.T) {
	for _, writes := range []uint64{1, 2} {
		l := coarseLab(t, nil)
		for n := range writes {
			l.write(0, 16, 1+n)
		}
		s := l.d.ix.Lookup(0)
		off := l.d.flashOffset(l.d.frameOf[s], 3)
		l.crash()
		l.cards[0].b[off] ^= 1
		l.mayFail[3] = true
		for range 2 {
			l.coarsely()
			r := &block.Request{Op: block.OpRead, Range: block.Range{Count: 8}, Data: [][]byte{make([]byte, 4096)}}
			switch s := l.do(r); {
			case writes == 1: // it may never have been acknowledged
				l.want(0, 8, 0)
			case s != block.MediumRead:
				t.Errorf("a read of damage ends %v", s)
			}
			l.want(8, 8, writes)
			l.crash()
		}
		l.opt.Destager = nil
		l.coarsely()
		l.destagesAll()
		l.wantBelow(0, 8, 0)
		l.wantBelow(8, 8, writes)
		l.write(0, 8, 9)
		l.want(0, 8, 9)
		l.destagesAll()
		l.wantBelow(0, 8, 9)
	}
}
