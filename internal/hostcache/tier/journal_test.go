package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// TestJournalTakesMoreRecordsThanItHasRoomFor: while a snapshot is written more records come than fit behind one. They are written
// all the same, what was acknowledged is there after a crash, and fills, of which nobody needs the record, are left out meanwhile.
func TestJournalTakesMoreRecordsThanItHasRoomFor(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.want(64, 8, 0)
	l.wait(func() bool { return len(l.d.active) == 0 && len(l.d.j.buf) == 0 && len(l.d.j.batches) == 0 })
	l.cards[0].delay = 50_000_000
	l.d.j.renew()
	l.d.pump()
	l.wait(func() bool { return l.d.j.snapshot != nil && len(l.d.j.batches) > 0 })
	wrote := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 16, Count: 8}, Data: [][]byte{pattern(2, 8)}})
	s := l.d.ix.Lookup(hostcache.MakeKey(0, 8))
	for uint64(len(l.d.j.buf)) <= l.d.j.half {
		l.d.j.filled(l.d.ix.Key(s), l.d.frameOf[s], 0, 8)
	}
	skipped := l.d.stats.FillsSkipped
	l.want(128, 8, 0)
	l.v.RunUntil(l.v.Now())
	if l.d.stats.FillsSkipped == skipped {
		t.Error("a fill adds to the records that do not fit")
	}
	l.cards[0].delay = cardDelay
	l.wait(wrote)
	l.crash()
	l.boot(0)
	l.want(0, 8, 1)
	l.want(16, 8, 2)
	l.want(64, 8, 0)
}

// TestWritesWithoutAFlushTakeNoMemory: what was written since the last flush is noted once a frame, however long a client does without
// one, and with FUA not at all. A flush covers it all the same.
func TestWritesWithoutAFlushTakeNoMemory(t *testing.T) {
	l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile = true })
	put := func(flags block.Flags, value uint64) {
		r := &block.Request{Op: block.OpWrite, Flags: flags, Range: block.Range{Count: 16}, Data: [][]byte{pattern(value, 16)}}
		if s := l.do(r); s != block.OK {
			t.Fatal(s)
		}
	}
	for n := range uint64(20) {
		put(block.FUA, n)
	}
	if n := len(l.d.j.looseness); n > 0 {
		t.Errorf("%d frames are noted for writes with FUA", n)
	}
	for n := range uint64(20) {
		put(0, n)
		put(block.FUA, n)
	}
	put(0, 30)
	if n := len(l.d.j.looseness); n != 2 {
		t.Errorf("two frames are noted %d times", n)
	}
	if s := l.flush(); s != block.OK {
		t.Fatal(s)
	}
	if len(l.d.j.looseness) > 0 || !l.d.j.firm(l.d.ix.Lookup(0), 0) {
		t.Error("what was flushed can be overwritten without a sync")
	}
	put(0, 31)
	if n := len(l.d.j.looseness); n != 2 {
		t.Errorf("behind a flush, two frames are noted %d times", n)
	}
}
