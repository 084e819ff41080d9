package alloc

import (
	"math/rand/v2"
	"strings"
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
			tab := [...]*tableID{&x.homes, &x.pins, &x.refs, &x.held}[rnd.IntN(4)]
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

// TestEachDamageIsFound damages a grain of an extent whose others are plain, or of an extent of which
// nothing is known.
func TestEachDamageIsFound(t *testing.T) {
	const g, free, far = 5, 40, chunkExtents * layout.ExtentGrains
	for name, c := range map[string]struct {
		damage func(s *Space, x *extentInfo, u *Users)
		want   string
	}{
		"no map refers to it":             {func(s *Space, _ *extentInfo, u *Users) { u.Refs.Sub(g) }, "counts 1 references, the maps have 0"},
		"a second map does":               {func(s *Space, _ *extentInfo, u *Users) { u.Refs.Add(g) }, "counts 1 references, the maps have 2"},
		"it counts a second map":          {func(s *Space, _ *extentInfo, u *Users) { s.Retain(g) }, "counts 2 references, the maps have 1"},
		"it counts two and nobody shares": {func(s *Space, _ *extentInfo, u *Users) { s.Retain(g); s.sole[0] |= 1 << g }, "grain 5 has 2 references"},
		"it is free":                      {func(s *Space, _ *extentInfo, u *Users) { s.unuse(0, 1<<g) }, "is free but has 1 references"},
		"a map refers to a free one":      {func(s *Space, _ *extentInfo, u *Users) { u.Refs.Add(free) }, "is free but has 0 references, 1 in the maps"},
		"a free one has a reference":      {func(s *Space, _ *extentInfo, u *Users) { s.Retain(free) }, "is free but has 1 references, 0 in the maps"},
		"nobody has it":                   {func(s *Space, _ *extentInfo, u *Users) { s.Take(s.tenants.of(1)) }, "grain 20 is in use, and nobody has a reference to it"},
		"it is held by nobody":            {func(s *Space, _ *extentInfo, u *Users) { s.Hold(g) }, "is held by 1 copies, there is none"},
		"a hold is not counted":           {func(s *Space, x *extentInfo, u *Users) { s.Hold(g); x.holds--; u.Holds = true }, "1 held and 0 pinned, it counts 0, 0 and 0"},
		"a pin is not counted":            {func(s *Space, x *extentInfo, u *Users) { s.pin(g); x.pinned-- }, "0 held and 1 pinned, it counts 0, 0 and 0"},
		"a pin is left":                   {func(s *Space, x *extentInfo, u *Users) { x.pinned++ }, "0 held and 0 pinned, it counts 0, 0 and 1"},
		"a shared one is not counted":     {func(s *Space, x *extentInfo, u *Users) { s.Retain(g); u.Refs.Add(g); x.shared-- }, "1 grains are shared"},
		"it is no window's home":          {func(s *Space, _ *extentInfo, u *Users) { s.SetHome(g, s.tenants.of(1), 7) }, "is marked as the home of window 7"},
		"a free one is a home":            {func(s *Space, x *extentInfo, u *Users) { x.homed |= 1 << free }, "a grain that is free is a home"},
		"its mark is gone":                {func(s *Space, _ *extentInfo, u *Users) { s.sole[0] &^= 1 << g }, "counts 0 references, the maps have 1"},
		"a map refers to one far away":    {func(s *Space, _ *extentInfo, u *Users) { u.Refs.Add(far) }, "is free but has 0 references, 1 in the maps"},
		"one far away is in use":          {func(s *Space, _ *extentInfo, u *Users) { s.use(chunkExtents, 1) }, "21 grains are allocated, the count says 20"},
	} {
		s := New([]int{chunkExtents + 1}, quiet())
		who := s.AddTenant(1)
		s.Entitle(who, layout.ExtentGrains)
		u := Users{Refs: s.NewCounts()}
		for range 20 {
			g := take(t, s, who)
			s.Retain(g)
			u.Refs.Add(g)
		}
		check := func() []string { return append(s.CheckExtents(u, 0, chunkExtents+1), s.CheckTotals(u)...) }
		if got := check(); len(got) > 0 {
			t.Fatalf("%s: %q before", name, got)
		}
		if c.damage(s, s.extent(0), &u); !strings.Contains(strings.Join(check(), "\n"), c.want) {
			t.Errorf("%s: %q, not %q", name, check(), c.want)
		}
	}
}
