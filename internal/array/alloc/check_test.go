package alloc

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestPlainExtentsAreChecked damages what a space, or a check, knows of an extent, and holds CheckExtents,
// which looks at most extents as a whole, to what it finds grain by grain.
func TestPlainExtentsAreChecked(t *testing.T) {
	found, whole := 0, 0
	for first, i := testkit.Seed(t), uint64(0); i < 3000; i++ {
		seed := first + i
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := New([]int{1}, quiet())
		who := s.AddTenant(1)
		s.Entitle(who, layout.ExtentGrains)
		u := Users{Refs: s.NewCounts(), Garbage: rnd.IntN(4) == 0}
		for range rnd.IntN(layout.ExtentGrains + 1) {
			g := take(t, s, who)
			s.Retain(g)
			if u.Refs.Add(g); rnd.IntN(2) == 0 {
				s.SetHome(g, who, g)
				u.Refs.AddHome(g)
			}
		}
		x, bit := s.extent(0), uint64(1)<<rnd.IntN(layout.ExtentGrains)
		c, _ := u.Refs.at(0)
		switch rnd.IntN(10) {
		case 0:
			s.sole[0] ^= bit
		case 1:
			s.use(0, bit)
		case 2:
			x.homed ^= bit
		case 3:
			c.once[0] ^= bit
		case 4:
			c.homes[0] ^= bit
		case 5:
			x.shared++
		case 6:
			x.holds++
		case 7:
			x.pinned++
		case 8:
			tab := &x.homes
			if rnd.IntN(2) == 0 {
				tab = &x.pins
			}
			if *tab == 0 {
				*tab, _ = s.tables.take()
			}
		}
		_, homes, _ := u.Refs.extent(0)
		got, want := s.CheckExtents(u, 0, 1), s.checkGrains(nil, u, x, 0, s.used[0], homes)
		if (len(got) > 0) != (len(want) > 0) {
			t.Fatalf("seed %d: %q, grain by grain %q", seed, got, want)
		}
		if len(want) > 0 {
			found++
		}
		if referred, homes, several := u.Refs.extent(0); !several && s.plain(x) && s.agrees(x, 0, s.used[0], referred, homes, u.Garbage) {
			whole++
		}
	}
	if found < 1000 || whole < 300 {
		t.Errorf("in 3000 spaces %d were damaged, and %d checked as a whole: the test is worth little", found, whole)
	}
}
