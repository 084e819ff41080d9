package copying

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestHeldLeavesRoom: hosts of the array and of others make references and give them back, as large as they may. Whatever they
// have, a host of the array that has nothing can make a reference, other arrays have half of all at most, and no host has less
// because another array asks in its name.
func TestHeldLeavesRoom(t *testing.T) {
	type made struct {
		by   Holder
		runs int
	}
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	for range 50 {
		var h Held
		var all []made
		hosts := 1 + rng.IntN(8)
		for range 300 {
			if len(all) > 0 && rng.IntN(4) == 0 {
				i := rng.IntN(len(all))
				h.GiveBack(all[i].by, all[i].runs)
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
				continue
			}
			q := &block.Request{Origin: block.OriginXCopy, Host: uint32(1 + rng.IntN(hosts)), Lent: rng.IntN(2) == 0}
			room := h.Room(q)
			if room <= 0 {
				continue
			}
			runs := room
			if rng.IntN(3) == 0 {
				runs = 1 + rng.IntN(room)
			}
			all = append(all, made{HolderOf(q), h.Book(q, runs)})
			lent, sum := 0, 0
			for _, m := range all {
				sum += m.runs
				if m.by.lent {
					lent += m.runs
				}
			}
			if sum != h.runs.All() || lent != h.lent || sum > maxRunsOfAll || lent > maxRunsLent {
				t.Fatalf("%d runs, %d of them lent, where %d and %d are booked", sum, lent, h.runs.All(), h.lent)
			}
			if n := h.Room(&block.Request{Host: 1000}); n < maxRuns/256 {
				t.Fatalf("%d hosts have %d runs, %d of them lent, and another one may have %d", hosts, sum, lent, n)
			}
		}
		there := Held{lent: h.lent}
		for by, n := range h.runs.Each() {
			there.runs.Add(by, n)
		}
		n := max(h.Room(&block.Request{Host: 1, Lent: true}), 0)
		own := &block.Request{Host: 1}
		h.Book(&block.Request{Host: 1, Lent: true}, n)
		there.Book(&block.Request{Host: 2, Lent: true}, n)
		if a, b := h.Room(own), there.Room(own); a != b {
			t.Fatalf("a host may have %d runs where another array has asked in its name, and %d where it has asked in that of another one", a, b)
		}
		h.GiveBack(Holder{1, true}, n)
		for _, m := range all {
			h.GiveBack(m.by, m.runs)
		}
		if h.runs.All() != 0 || h.lent != 0 || len(maps.Collect(h.runs.Each())) != 0 {
			t.Fatalf("all was given back, and there are %+v", h)
		}
	}
}
