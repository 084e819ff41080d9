package plug

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrder compares the list with a slice, over random pushes and removals.
func TestOrder(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 1 + r.IntN(9)
		o, want := NewOrder(n), []int(nil)
		for range 200 {
			slot := r.IntN(n)
			want = slices.DeleteFunc(want, func(s int) bool { return s == slot })
			if r.IntN(3) == 0 {
				o.Remove(slot)
			} else {
				o.Push(slot)
				want = append(want, slot)
			}
			var got []int
			for s := o.Oldest(); s >= 0; s = o.Newer(s) {
				got = append(got, s)
			}
			pins := r.Uint64()
			pinned := func(s int) bool { return pins>>s&1 == 1 }
			victim := -1
			if k := slices.IndexFunc(want, func(s int) bool { return !pinned(s) }); k >= 0 {
				victim = want[k]
			}
			if !slices.Equal(got, want) || o.Len() != len(want) || o.Has(slot) != slices.Contains(want, slot) || o.Victim(pinned) != victim {
				t.Fatalf("seed %d: %v with %d and the victim %d, not %v with %d", seed, got, o.Len(), o.Victim(pinned), want, victim)
			}
		}
	}
}
