package wcache

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestPot compares a pot with what its partitions use and are promised, under random changes: what
// of it is taken is the larger of the two, of each partition. Below its floor a partition tells the
// pot nothing that anything is granted by.
func TestPot(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	pot := Pot{limit: 100}
	shares := make([]Share, 4)
	taken := func() (n int) {
		for _, s := range shares {
			n += max(s.used, s.floor)
		}
		return n
	}
	silent, told := 0, 0
	for step := range 20000 {
		s := &shares[rnd.IntN(len(shares))]
		lent := pot.lent
		switch k := rnd.IntN(100); {
		case k == 0:
			pot.floors, pot.lent = 0, 0
			for i := range shares {
				pot.setFloor(&shares[i], rnd.IntN(20))
			}
			continue
		case k < 50 && pot.Fits(s, 1):
			within := s.WithinFloor(1)
			if pot.take(s); within != (pot.lent == lent) {
				t.Fatalf("-seed %d, step %d: a page, within the floor %v, changes what is lent from %d to %d", seed, step, within, lent, pot.lent)
			}
		case k >= 50 && s.used > 0:
			above := !s.WithinFloor(0)
			if pot.give(s); above != (pot.lent < lent) {
				t.Fatalf("-seed %d, step %d: a page back, above the floor %v, changes what is lent from %d to %d", seed, step, above, lent, pot.lent)
			}
		}
		if pot.lent == lent {
			silent++
		} else {
			told++
		}
		n, all := 1+rnd.IntN(12), 0
		before := taken()
		want := before-max(s.used, s.floor)+s.used+n <= pot.limit // beside what others use or are promised
		if got := pot.Fits(s, n); got != want {
			t.Fatalf("-seed %d, step %d: %d more pages fit: %v; %d are taken", seed, step, n, got, before)
		}
		for _, x := range shares {
			all += x.used
		}
		if pot.floors+pot.lent != before || pot.used != all {
			t.Fatalf("-seed %d, step %d: floors %d, lent %d, used %d; taken are %d, used %d", seed, step, pot.floors, pot.lent, pot.used, before, all)
		}
	}
	if silent == 0 || told == 0 {
		t.Errorf("-seed %d: %d changes were silent, %d told", seed, silent, told)
	}
}
