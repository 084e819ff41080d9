package alloc

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// quiet are events that nobody hears.
func quiet() Events { return Events{Freed: func(uint64) {}, Vacated: func(uint32) {}} }

// take allocates a grain that has to be there.
func take(t *testing.T, s *Space, who *Tenant) uint64 {
	t.Helper()
	g, ok := s.Take(who)
	if !ok {
		t.Fatal("no grain is free")
	}
	return g
}

// TestExtentsGoRound: extents go round the mdisks that have any left, and each byte of an mdisk is
// at one place.
func TestExtentsGoRound(t *testing.T) {
	s := New([]int{3, 1, 2}, quiet())
	if s.Grains() != 6*layout.ExtentGrains {
		t.Fatalf("%d grains", s.Grains())
	}
	want := [...]struct {
		mdisk int
		off   uint64
	}{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {2, 1}, {0, 2}}
	for e, w := range want {
		md, off, n := s.Locate(uint64(e)*layout.ExtentSectors + 5)
		if md != w.mdisk || off != w.off*layout.ExtentBytes+5*512 || n != layout.ExtentSectors-5 {
			t.Errorf("sector 5 of extent %d is byte %d of mdisk %d, and %d follow", e, off, md, n)
		}
	}
}

// TestTenantsKeepToTheirExtents: what a volume writes in sequence lies in sequence, and another one
// begins in an extent of its own while there is one.
func TestTenantsKeepToTheirExtents(t *testing.T) {
	s := New([]int{2}, quiet())
	a, b := s.AddTenant(1), s.AddTenant(2)
	for i := range uint64(layout.ExtentGrains) {
		if g, h := take(t, s, a), take(t, s, b); g != i || h != layout.ExtentGrains+i {
			t.Fatalf("the grains %d of two volumes are %d and %d", i, g, h)
		}
	}
	if g, ok := s.Take(a); ok {
		t.Errorf("grain %d was free", g)
	}
	s.Free(70)
	if g := take(t, s, a); g != 70 {
		t.Errorf("the grain that was freed is 70, not %d", g)
	}
}

// TestNothingFromAnMdiskThatIsDown: neither the extent that a volume is in nor another one.
func TestNothingFromAnMdiskThatIsDown(t *testing.T) {
	s := New([]int{1, 1}, quiet())
	who := s.AddTenant(1)
	take(t, s, who)
	s.SetDown(0, true)
	if g := take(t, s, who); g != layout.ExtentGrains {
		t.Errorf("grain %d is on the mdisk that is down", g)
	}
	s.SetDown(1, true)
	if g, ok := s.Take(who); ok || !s.AnyDown() {
		t.Errorf("grain %d was taken while all is down", g)
	}
	s.SetDown(0, false)
	s.SetDown(1, false)
	if take(t, s, who); s.AnyDown() {
		t.Error("an mdisk is down")
	}
}

// TestPinnedGrainsLeaveLater: what is still being read is not taken again before that has ended.
func TestPinnedGrainsLeaveLater(t *testing.T) {
	var freed []uint64
	left := 0
	s := New([]int{1}, Events{Freed: func(g uint64) { freed = append(freed, g) }, Left: func() { left++ }, Vacated: func(uint32) {}})
	who := s.AddTenant(1)
	g, h := take(t, s, who), take(t, s, who)
	s.Retain(g)
	s.Retain(h)
	s.Hold(h)
	s.Pin(100, 60) // over both
	s.Release(g)
	s.Release(h)
	if len(freed) != 0 || s.Leaving() != 1 || left != 0 || s.MapRefs(h) != 0 || s.Refs(h) != 1 {
		t.Fatalf("freed %v, leaving %d, left %v", freed, s.Leaving(), left)
	}
	s.Unpin(100, 60)
	if len(freed) != 1 || freed[0] != g || s.Leaving() != 0 || left != 1 {
		t.Fatalf("after the transfer: freed %v, leaving %d, left %v", freed, s.Leaving(), left)
	}
	s.Unhold(h)
	if len(freed) != 2 || left != 1 || s.Allocated() != 0 || who.Allocated() != 0 {
		t.Fatalf("after the hold: freed %v, left %v, allocated %d", freed, left, s.Allocated())
	}
}

// TestHomes: a shared home is not one; another grain is reserved until it stops being shared.
func TestHomes(t *testing.T) {
	vacated := 0
	s := New([]int{1}, Events{Freed: func(uint64) {}, Vacated: func(vol uint32) { vacated += int(vol) }})
	thick, thin := s.AddTenant(1000), s.AddTenant(1)
	s.Entitle(thick, 10)
	g := take(t, s, thick)
	s.SetHome(g, thick, 3)
	s.Retain(g)
	if s.Reserved() != 9 || !s.SoleHome(g) || s.Homeless(g) || !s.IsHome(g, 1000, 3) || s.IsHome(g, 1000, 2) || s.IsHome(g, 1, 3) {
		t.Fatalf("%d grains are reserved for 9 windows without a home", s.Reserved())
	}
	s.Retain(g)
	if s.Reserved() != 10 || s.SoleHome(g) {
		t.Fatalf("%d grains are reserved for 10 windows, one of which shares its home", s.Reserved())
	}
	s.Release(g)
	if s.Reserved() != 9 || vacated != 0 {
		t.Fatalf("%d grains are reserved after the clone has gone", s.Reserved())
	}
	s.Release(g)
	if s.Reserved() != 10 || vacated != 1000 || s.Allocated() != 0 {
		t.Fatalf("%d grains are reserved, %d allocated", s.Reserved(), s.Allocated())
	}
	// A volume that gets another's grain for a home owns it from then on.
	h := take(t, s, thin)
	s.Retain(h)
	s.SetHome(h, thick, 0)
	if thin.Allocated() != 0 || thick.Allocated() != 1 {
		t.Fatalf("the grain is counted to the volumes %d and %d times", thin.Allocated(), thick.Allocated())
	}
}

// check verifies all of a space, extent by extent.
func check(s *Space, u Users) (problems []string) {
	for e := range s.extents {
		problems = append(problems, s.CheckExtents(u, e, 1)...)
	}
	return append(problems, s.CheckTotals(u)...)
}

// TestCheckBites: each kind of damage has its line.
func TestCheckBites(t *testing.T) {
	for _, row := range []struct {
		name, want string
		damage     func(s *Space, who *Tenant, u *Users)
	}{
		{"none", "", func(*Space, *Tenant, *Users) {}},
		{"a reference too many", "counts 2 references, the maps have 1", func(s *Space, _ *Tenant, _ *Users) { s.Retain(1) }},
		{"one too many that garbage has", "", func(s *Space, _ *Tenant, u *Users) { s.Retain(1); u.Garbage = true }},
		{"a reference too few", "counts 1 references, the maps have 2", func(_ *Space, _ *Tenant, u *Users) { u.Refs.Add(1) }},
		{"one too few, whatever the garbage", "counts 1 references, the maps have 2", func(_ *Space, _ *Tenant, u *Users) { u.Refs.Add(1); u.Garbage = true }},
		{"a reference to free space", "grain 9 is free but has 0 references, 1 in the maps", func(_ *Space, _ *Tenant, u *Users) { u.Refs.Add(9) }},
		{"a hold of nobody", "grain 1 is held by 1 copies, there is none", func(s *Space, _ *Tenant, _ *Users) { s.Hold(1) }},
		{"a hold", "", func(s *Space, _ *Tenant, u *Users) { s.Hold(1); u.Holds = true }},
		{"the mark of one reference", "grain 1 counts 0 references, the maps have 1", func(s *Space, _ *Tenant, _ *Users) { s.sole[0] = 1 }},
		{"the same beside a table", "grain 1 has 1 references and holds, the mark of those with one says false", func(s *Space, _ *Tenant, u *Users) {
			s.Retain(0)
			u.Refs.Add(0)
			s.sole[0] = 0
		}},
		{"what is shared", "0 grains are shared, 0 held and 0 pinned, it counts 1, 0 and 0", func(s *Space, _ *Tenant, _ *Users) { s.extent(0).shared++ }},
		{"what is pinned", "0 grains are shared, 0 held and 0 pinned, it counts 0, 0 and 1", func(s *Space, _ *Tenant, _ *Users) { s.extent(0).pinned++ }},
		{"a home of nobody", "a grain that is free is a home", func(s *Space, _ *Tenant, _ *Users) { s.extent(0).homed |= 1 << 9 }},
		{"a table without need", "it has a table without need", func(s *Space, _ *Tenant, _ *Users) { s.countRefs(s.extent(0), 0) }},
		{"overlooked", "extent 0 is worth a discard", func(s *Space, _ *Tenant, _ *Users) {
			s.Track([]int{1})
			s.discards.stale[0] = 1 << 9
		}},
		{"allocated", "2 grains are allocated, the count says 3", func(s *Space, _ *Tenant, _ *Users) { s.allocated++ }},
		{"reserved", "have reserved 4 grains, the count says 5", func(s *Space, _ *Tenant, _ *Users) { s.reserved++ }},
		{"homes", "volume 7: its account", func(s *Space, who *Tenant, _ *Users) { s.reserved--; who.Homes++ }},
		{"marked", "volume 7: its account", func(_ *Space, who *Tenant, _ *Users) { who.Marked-- }},
		{"owned", "volume 7: its account", func(_ *Space, who *Tenant, _ *Users) { who.allocated-- }},
		{"more than there is", "of 64 grains 2 are allocated and 63 reserved, 1 more than there are", func(s *Space, who *Tenant, _ *Users) { s.Entitle(who, 64) }},
		{"more than there is, with garbage", "", func(s *Space, who *Tenant, u *Users) { s.Entitle(who, 64); u.Garbage = true }},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := New([]int{1}, quiet())
			who := s.AddTenant(7)
			s.Entitle(who, 5)
			u := Users{Refs: s.NewCounts()}
			for w := range uint64(2) {
				g := take(t, s, who)
				s.Retain(g)
				u.Refs.Add(g)
				if w == 0 {
					s.SetHome(g, who, w)
					u.Refs.AddHome(g)
				}
			}
			row.damage(s, who, &u)
			got := check(s, u)
			if row.want == "" && len(got) > 0 || row.want != "" && (len(got) != 1 || !strings.Contains(got[0], row.want)) {
				t.Errorf("the check says %q, not %q", got, row.want)
			}
		})
	}
}

// TestRecount: after a start the first that refers to a grain owns it.
func TestRecount(t *testing.T) {
	s := New([]int{1}, quiet())
	a, b := s.AddTenant(1), s.AddTenant(2)
	u := Users{Refs: s.NewCounts()}
	for _, x := range []struct {
		g   uint64
		who *Tenant
	}{{5, a}, {5, b}, {6, b}, {5, a}} {
		s.Recount(x.g, x.who)
		u.Refs.Add(x.g)
	}
	if got := check(s, u); len(got) > 0 || s.Allocated() != 2 || a.Allocated() != 1 || b.Allocated() != 1 || s.MapRefs(5) != 3 {
		t.Errorf("%q; %d grains are allocated, %d and %d of the two", got, s.Allocated(), a.Allocated(), b.Allocated())
	}
}

// TestReleaseOfNothing: a reference that was never counted must not free what somebody else has.
func TestReleaseOfNothing(t *testing.T) {
	s := New([]int{1}, quiet())
	g := take(t, s, s.AddTenant(1))
	defer func() {
		if recover() == nil {
			t.Error("a grain without references was released")
		}
	}()
	s.Release(g)
}

// TestLittleIsKept: of grains that are nobody else's, neither held nor read, next to nothing is kept,
// and tables that were needed are used again.
func TestLittleIsKept(t *testing.T) {
	const extents = 4 * chunkExtents
	s := New([]int{extents}, quiet())
	empty := s.Bytes()
	who := s.AddTenant(7)
	s.Entitle(who, extents*layout.ExtentGrains)
	for w := range uint64(extents * layout.ExtentGrains) {
		g := take(t, s, who)
		s.SetHome(g, who, w)
		s.Retain(g)
	}
	full := s.Bytes()
	if n := full - empty; n > extents*layout.ExtentGrains {
		t.Errorf("of %d grains %d bytes are kept", extents*layout.ExtentGrains, n)
	}
	once := func() {
		for g := uint64(0); g < extents*layout.ExtentGrains; g += layout.ExtentGrains / 2 {
			s.Retain(g)
			s.Hold(g)
			s.Pin(g<<layout.WindowShift, layout.WindowSectors)
			s.Release(g)
			s.Unhold(g)
			s.Unpin(g<<layout.WindowShift, 1)
		}
	}
	once()
	if n := s.Bytes() - full; n > 4096 {
		t.Errorf("%d bytes are kept of what has ended", n)
	}
	if n := testing.AllocsPerRun(3, once); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for g := range uint64(extents * layout.ExtentGrains) {
		if !s.IsHome(g, 7, g) || s.MapRefs(g) != 1 || s.Refs(g) != 1 {
			t.Fatalf("grain %d has %d references, or is not at home", g, s.Refs(g))
		}
	}
}
