package alloc

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestBitset compares sets of all sizes with a map.
func TestBitset(t *testing.T) {
	seed := testkit.Seed(t)
	for round, bound := range []int{0, 1, 63, 64, 65, 4095, 4096, 4097, MaxExtents} {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		b, has := newBitset(bound), map[uint32]bool{}
		if _, ok := b.next(0); ok || !b.empty() {
			t.Errorf("bound %d: a new set is not empty", bound)
		}
		var added []uint32
		for range min(bound, 1000) {
			i := uint32(rnd.IntN(bound))
			if rnd.IntN(4) == 0 { // ends of words
				i = min(i|63, uint32(bound-1))
			}
			if rnd.IntN(5) < 3 {
				b.add(i)
				has[i], added = true, append(added, i)
			} else {
				if len(added) > 0 && rnd.IntN(4) > 0 {
					i = added[rnd.IntN(len(added))]
				}
				b.remove(i)
				delete(has, i)
			}
			from := uint32(rnd.IntN(bound + 2))
			want, some := uint32(0), false
			for x := range has {
				if x >= from && (!some || x < want) {
					want, some = x, true
				}
			}
			if got, ok := b.next(from); ok != some || got != want || b.empty() != (len(has) == 0) {
				t.Fatalf("-seed %d, bound %d: behind %d comes %d, %v; it should be %d, %v; empty: %v of %d", seed, bound, from, got, ok, want, some, b.empty(), len(has))
			}
		}
	}
}

// BenchmarkNextOfFew finds the only number of a set that could have a million.
func BenchmarkNextOfFew(b *testing.B) {
	s := newBitset(MaxExtents)
	s.add(MaxExtents - 7)
	for b.Loop() {
		if _, ok := s.next(3); !ok {
			b.Fatal("nothing")
		}
	}
}
