package tier

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// contents is the whole list, in the order of addresses.
func (l *lab) contents() (list []block.Range) {
	for from := 0; ; {
		if list, from = l.d.Contents(list, from); from == 0 {
			break
		}
	}
	return block.Union(list)
}

// TestDropEmptiesTheCache: what is clean leaves its frames, also after a crash; what is dirty stays, and is no conflict.
func TestDropEmptiesTheCache(t *testing.T) {
	l := newLab(t, nil)
	l.write(0, 40, 1)
	quiet := uint64(0)
	l.d.Quiesce(1e12, func(token uint64) { quiet = token })
	l.wait(func() bool { return quiet != 0 })
	l.d.Resume(quiet)
	l.write(64, 8, 2)
	if n := l.d.CacheStats().NumBlocksCached; n != 6 {
		t.Fatalf("%d blocks are cached, want 6", n)
	}
	dropped := false
	l.d.Drop(func(n int64) { dropped = n >= 5 })
	l.wait(func() bool { return dropped })
	if s := l.d.CacheStats(); s.NumBlocksCached > 1 || l.d.Stats().ConflictSectors != 0 {
		t.Errorf("%d blocks are left, %d sectors count as conflicts", s.NumBlocksCached, l.d.Stats().ConflictSectors)
	}
	l.want(0, 40, 1)
	l.want(64, 8, 2)
	if hits := l.d.Views().LocalFlash.Read.IOs; hits > 1 {
		t.Errorf("%d reads came from flash", hits)
	}
	l.crash()
	l.boot(0)
	l.want(0, 40, 1)
	l.want(64, 8, 2)
}

// TestWarmByContents: a cache that is warmed by another one's contents answers what that one answered, and
// reads nothing else.
func TestWarmByContents(t *testing.T) {
	from := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	from.write(0, 40, 1)
	from.write(3000, 1, 2) // a sector of its block
	to := newLab(t, func(w *world) {
		w.v, w.a, w.opt.Exec, w.opt.Policy = from.v, from.a, from.v, Policy{Mode: WriteThrough}
		w.cards = []*card{newCard(w.v, w.r, 1<<20)}
	})
	list := from.contents()
	if want := []block.Range{{Start: 0, Count: 40}, {Start: 3000, Count: 1}}; !slices.Equal(list, want) {
		t.Fatalf("contents are %v, want %v", list, want)
	}
	warmed := uint64(0)
	to.d.Warm(append(list, block.Range{Start: 1 << 40, Count: 8}), func(bytes uint64) { warmed = bytes })
	to.wait(func() bool { return warmed > 0 && len(to.d.active) == 0 })
	if warmed != 41<<9 {
		t.Errorf("%d bytes were read, want %d", warmed, 41<<9)
	}
	to.want(0, 40, 1)
	to.want(3000, 1, 2)
	if v := to.d.Views(); v.LocalFlash.Read.IOs != 2 || v.Effective.Read.IOs != 2 {
		t.Errorf("%d of %d reads came from flash, want both", v.LocalFlash.Read.IOs, v.Effective.Read.IOs)
	}
}

// TestContentsAreBelow: another cache reads what is listed from the device below, which does not have what is dirty.
func TestContentsAreBelow(t *testing.T) {
	l := newLab(t, nil)
	l.write(0, 16, 1)
	token := uint64(0)
	l.d.Quiesce(1e12, func(n uint64) { token = n })
	l.wait(func() bool { return token != 0 })
	l.d.Resume(token)
	l.write(4, 2, 2)
	if got, want := l.contents(), []block.Range{{Start: 0, Count: 4}, {Start: 6, Count: 10}}; !slices.Equal(got, want) {
		t.Errorf("contents are %v, want %v", got, want)
	}
}

// TestPieces: a cache of many blocks is listed and dropped in pieces that have a bound, and what comes between two of them
// does not wait for the last one.
func TestPieces(t *testing.T) {
	const blocks = 3 * pieceSlots
	l := newLab(t, func(w *world) {
		w.opt.Policy = Policy{Mode: WriteThrough}
		w.a = newArray(w.v, w.r, blocks*8)
		w.cards = []*card{newCard(w.v, w.r, 16<<20)}
	})
	for at := uint64(0); at < blocks*8; at += 512 {
		l.write(at, 512, 1)
	}
	l.wait(func() bool { return len(l.d.active) == 0 })
	var list []block.Range
	for from, n := 0, 1; ; n++ {
		was := len(list)
		if list, from = l.d.Contents(list, from); len(list)-was > pieceSlots {
			t.Fatalf("piece %d lists %d blocks", n, len(list)-was)
		}
		if from == 0 {
			break
		}
	}
	if len(list) != blocks {
		t.Fatalf("%d of %d blocks are listed", len(list), blocks)
	}
	dropped, next := int64(0), 0
	for {
		heard := false
		l.d.DropSome(next, func(n int64, behind int) {
			if heard, next = true, behind; n > pieceSlots {
				t.Errorf("a piece drops %d blocks", n)
			}
			dropped += n
		})
		l.wait(func() bool { return heard })
		if next == 0 {
			break
		}
		l.write(0, 8, 2) // behind the piece that has dropped it
	}
	if n := l.d.CacheStats().NumBlocksCached; dropped != blocks || n != 1 {
		t.Errorf("%d blocks are dropped and %d left, want %d and the one that was written meanwhile", dropped, n, blocks)
	}
	l.want(0, 8, 2)
	l.crash()
	l.boot(0)
	l.want(0, 8, 2)
	l.want(8, 512, 1)
}

// TestWarmEnds: it reads what the LUN has of the ranges, whatever they say, and ends when it is stopped.
func TestWarmEnds(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	heard, bytes := 0, uint64(0)
	done := func(n uint64) { heard, bytes = heard+1, n }
	l.d.Warm([]block.Range{{Start: 1 << 40, Count: 1 << 63}, {Start: 4000, Count: 1 << 63}, {}}, done)
	l.wait(func() bool { return heard == 1 })
	if bytes != 96<<9 {
		t.Errorf("%d bytes were read of the last 96 sectors", bytes)
	}
	var many []block.Range
	for i := range uint64(100) {
		many = append(many, block.Range{Start: i * 40, Count: 40})
	}
	stop := l.d.Warm(many, done)
	stop()
	l.wait(func() bool { return heard == 2 })
	if bytes != warmDepth*40<<9 {
		t.Errorf("%d bytes were read behind a stop, want those of %d reads under way", bytes, warmDepth)
	}
}

// TestDropBesideALUNThatGrows: a drop waits for the part of the last block that the LUN had, and what has been added to that is written
// meanwhile. The block stays.
func TestDropBesideALUNThatGrows(t *testing.T) {
	l := newLab(t, func(w *world) { w.a = newArray(w.v, w.r, 4092) })
	l.write(4088, 4, 1)
	l.wait(l.d.clean)
	l.d.destager.used = l.d.destager.ahead()
	l.a.gate[block.OpHold] = true
	hold := l.start(&block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 4088, Count: 4}}})
	l.wait(func() bool { return len(l.a.kept) == 1 })
	dropped := int64(-1)
	l.d.Drop(func(blocks int64) { dropped = blocks })
	l.a.resize(4096)
	l.d.event(block.Event{Kind: block.EventCapacity})
	l.cards[0].delay = 50_000_000
	wrote := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 4092, Count: 4}, Data: [][]byte{pattern(2, 4)}})
	l.path.open(block.OpHold)
	l.wait(func() bool { return hold() && dropped >= 0 && wrote() })
	if dropped > 0 {
		t.Errorf("%d blocks are dropped, one of which is being written", dropped)
	}
	l.want(4092, 4, 2)
	l.want(4088, 4, 1)
	l.destages()
	l.wait(l.d.clean)
	l.wantBelow(4092, 4, 2)
	l.wantBelow(4088, 4, 1)
}
