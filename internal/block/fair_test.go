package block

import (
	"math/rand/v2"
	"testing"
)

// TestLeft: users who take all that they may never leave nothing to one that has nothing, and one that is alone has half.
func TestLeft(t *testing.T) {
	for most := range 70 {
		if got := Left(0, 0, most); got != (most+1)/2 {
			t.Errorf("of %d one alone has %d", most, got)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const most, users = 1024, 8
	var own [users]int
	all := 0
	for range 100_000 {
		u := rng.IntN(users)
		if n := Left(own[u], all, most); n > 0 && rng.IntN(3) > 0 {
			k := 1 + rng.IntN(n)
			own[u] += k
			all += k
		} else if own[u] > 0 {
			k := 1 + rng.IntN(own[u])
			own[u] -= k
			all -= k
		}
		if all > most || Left(0, all, most) <= 0 {
			t.Fatalf("%v: one that comes gets %d", own, Left(0, all, most))
		}
	}
	// Whoever is above its part gives back and gets no more, so that all come to have the same.
	for range 100 {
		for u := range own {
			k := Left(own[u], all, most)
			k = max(k, -own[u])
			own[u] += k
			all += k
		}
	}
	for _, n := range own {
		if n < most/(users+1)-1 || n > most/(users+1)+1 {
			t.Errorf("at rest they have %v of %d", own, most)
		}
	}
}
