package alloc

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestRunsAreGrainsOneByOne: TakeRun takes the grains that Take would, and leaves the space as that and
// Retain do, whatever else is in the extents.
func TestRunsAreGrainsOneByOne(t *testing.T) {
	for first, i := testkit.Seed(t), uint64(0); i < 200; i++ {
		seed := first + i
		runs, singles := New([]int{3, 2}, quiet()), New([]int{3, 2}, quiet())
		var tenants [2][2]*Tenant // by space, then volume
		for i, s := range [...]*Space{runs, singles} {
			rnd := rand.New(rand.NewPCG(seed, 1))
			a, b := s.AddTenant(1), s.AddTenant(2)
			tenants[i] = [...]*Tenant{a, b}
			var taken []uint64
			for range rnd.IntN(200) {
				who := tenants[i][rnd.IntN(2)]
				g := take(t, s, who)
				if s.Retain(g); rnd.IntN(4) == 0 {
					s.Retain(g)
				}
				if rnd.IntN(8) == 0 {
					s.Hold(g)
				}
				if taken = append(taken, g); rnd.IntN(3) == 0 {
					k := rnd.IntN(len(taken))
					s.Release(taken[k])
					taken[k] = taken[len(taken)-1]
					taken = taken[:len(taken)-1]
				}
			}
		}
		rnd := rand.New(rand.NewPCG(seed, 2))
		for {
			who, n := rnd.IntN(2), rnd.IntN(130)
			first, got := runs.TakeRun(tenants[0][who], n)
			if got == 0 && n > 0 {
				break
			}
			for i := range uint64(got) {
				g := take(t, singles, tenants[1][who])
				if singles.Retain(g); g != first+i {
					t.Fatalf("seed %d: grain %d of a run is %d, that of Take %d", seed, i, first+i, g)
				}
			}
		}
		if g, ok := singles.Take(tenants[1][0]); ok {
			t.Fatalf("seed %d: no run is free, and grain %d is", seed, g)
		}
		for g := range uint64(runs.Grains()) {
			x, y := runs.extent(g), singles.extent(g)
			if a, b := runs.grain(x, g), singles.grain(y, g); a != b || runs.Sole(g) != singles.Sole(g) || runs.isFree(g) != singles.isFree(g) {
				t.Fatalf("seed %d: grain %d is %+v, one by one %+v", seed, g, a, b)
			}
		}
		for i := range tenants[0] {
			if *tenants[0][i] != *tenants[1][i] {
				t.Fatalf("seed %d: a tenant is %+v, one by one %+v", seed, tenants[0][i], tenants[1][i])
			}
		}
		if a, b := runs.Allocated(), singles.Allocated(); a != b {
			t.Fatalf("seed %d: %d grains are allocated, one by one %d", seed, a, b)
		}
		for _, why := range runs.CheckTotals(Users{Holds: true}) {
			t.Fatalf("seed %d: %s", seed, why)
		}
	}
}
