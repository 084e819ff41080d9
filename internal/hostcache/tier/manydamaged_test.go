package tier

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// Damage in so many places that a snapshot has hardly room for it.

// damageEvery makes one sector in 16 damaged, n of them, durably.
func (l *lab) damageEvery(n uint64) {
	l.t.Helper()
	for i := range n {
		l.d.damage(block.Range{Start: 16 * i, Count: 1})
		l.d.pump()
		if l.d.j.crowded() {
			l.wait(func() bool { return !l.d.j.crowded() })
		}
	}
	l.snapshot()
}

// snapshot has the journal begin with a new one.
func (l *lab) snapshot() {
	l.t.Helper()
	l.d.j.renew()
	l.d.pump()
	l.wait(func() bool { return !l.d.j.compact && len(l.d.j.batches) == 0 })
}

// damagedLab has a LUN with room for n places that are damaged, and a flash of 4 MiB.
func damagedLab(t *testing.T, n uint64) *lab {
	return newLab(t, func(w *world) {
		w.a = newArray(w.v, w.r, 16*n)
		w.cards[0] = newCard(w.v, w.r, 4<<20)
	})
}

// TestDamageInManyPlacesSparesWhatLiesBetween: also at the next start.
func TestDamageInManyPlacesSparesWhatLiesBetween(t *testing.T) {
	const n = 5000
	l := damagedLab(t, n)
	l.write(17, 1, 7)
	l.damageEvery(n)
	for range 2 {
		l.want(1, 15, 0)
		l.want(17, 1, 7)
		l.want(16*n-8, 8, 0)
		for _, s := range []uint64{0, 16, 16 * (n - 1)} {
			r := &block.Request{Op: block.OpRead, Range: block.Range{Start: s, Count: 1}, Data: [][]byte{make([]byte, block.SectorSize)}}
			if st := l.do(r); st != block.MediumRead {
				t.Errorf("sector %d is read: %v", s, st)
			}
		}
		if got := l.d.State().Damaged; got != n {
			t.Fatalf("%d sectors are damaged, not %d", got, n)
		}
		l.crash()
		l.boot(0)
	}
}

// TestDamageBeyondTheRoomOfASnapshot: as few neighbours as possible are joined, and only for later
// starts. What the cache has between them stays readable, and a full cache leaves room for the
// records behind the snapshot.
func TestDamageBeyondTheRoomOfASnapshot(t *testing.T) {
	const n = 20_000
	l := damagedLab(t, n)
	for at := uint64(1); l.d.ix.Len() < l.d.ix.Capacity(); at += 16 {
		l.want(at, 7, 0)
		l.v.RunUntil(l.v.Now() + 1_000_000)
	}
	l.dirty(16*n-15, 7, 7)
	l.damageEvery(n)
	if room := l.d.j.half - l.d.j.used; room < l.d.j.slack/2 {
		t.Fatalf("records have %d bytes behind the snapshot; they may need %d", room, l.d.j.slack/2)
	}
	if got := l.d.State().Damaged; got != n {
		t.Errorf("before a start, %d sectors are damaged, not %d", got, n)
	}
	l.crash()
	l.boot(0)
	for i := range uint64(n) {
		if !l.d.damaged.overlaps(block.Range{Start: 16 * i, Count: 1}) {
			t.Fatalf("the damage of sector %d is forgotten", 16*i)
		}
	}
	if len(l.d.damaged) < 7000 {
		t.Errorf("%d sectors are damaged in %d places", l.d.State().Damaged, len(l.d.damaged))
	}
	l.want(16*n-15, 7, 7)
}

// TestCoarsen: the nearest neighbours are joined, and no more of them than must be.
func TestCoarsen(t *testing.T) {
	at := func(starts ...uint64) (s rangeSet) {
		for _, a := range starts {
			s.add(block.Range{Start: a, Count: 1})
		}
		return s
	}
	for _, row := range []struct {
		in, want rangeSet
		most     int
	}{
		{at(0, 10, 20, 30), at(0, 10, 20, 30), 4},
		{at(0, 10, 20, 30), rangeSet{{Start: 0, Count: 11}, {Start: 20, Count: 1}, {Start: 30, Count: 1}}, 3},
		{at(0, 10, 12, 30, 40), rangeSet{{Start: 0, Count: 13}, {Start: 30, Count: 1}, {Start: 40, Count: 1}}, 3},
		{at(0, 10, 20), rangeSet{{Start: 0, Count: 21}}, 1},
	} {
		got := slices.Clone(row.in)
		if got.coarsen(row.most); !slices.Equal(got, row.want) {
			t.Errorf("%v becomes %v, want %v", row.in, got, row.want)
		}
	}
}
