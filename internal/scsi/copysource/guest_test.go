package copysource

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestGuestsLeave: whoever has not left is found, in the order of coming, and of those that have, no more are kept than of the
// others.
func TestGuestsLeave(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	m := New(nil)
	var there []*Guest
	for range 5000 {
		if rnd.IntN(3) > 0 {
			there = append(there, m.admit(nil, 0, nil))
		}
		if n := len(there); n > 0 && rnd.IntN(2) == 0 {
			i := rnd.IntN(n)
			there[i].Leave()
			there[i].Leave() // a second time it has no effect
			there = slices.Delete(there, i, i+1)
		}
		if !slices.Equal(m.present(), there) {
			t.Fatalf("%d guests are present, want %d, or the order differs", len(m.present()), len(there))
		}
		if len(m.guests) > 2*len(there) {
			t.Fatalf("%d guests are kept, %d of them are present", len(m.guests), len(there))
		}
	}
	for _, g := range there {
		g.Leave()
	}
	if len(m.guests) != 0 {
		t.Errorf("%d guests are left over", len(m.guests))
	}
}
