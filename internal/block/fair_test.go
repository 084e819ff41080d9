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

// TestShares: what users have adds up, and those who have given all back are forgotten.
func TestShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var s Shares[int]
	var own [5]int
	for range 10_000 {
		u := rng.IntN(len(own))
		n := rng.IntN(5) - min(own[u], rng.IntN(6))
		own[u] += n
		s.Add(u, n)
		sum, users := 0, 0
		for _, n := range own {
			if sum += n; n > 0 {
				users++
			}
		}
		if s.All() != sum || s.Of(u) != own[u] || s.Left(u, 100) != Left(own[u], sum, 100) {
			t.Fatalf("%v: %d in all, %d has %d", own, s.All(), u, s.Of(u))
		}
		for v, n := range s.Each() {
			if users--; n != own[v] {
				t.Fatalf("%v: %d has %d", own, v, n)
			}
		}
		if users != 0 {
			t.Fatalf("%v: %d users too many or too few", own, users)
		}
	}
}
