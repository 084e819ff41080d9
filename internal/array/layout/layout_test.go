package layout

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestSizes: sizes are part of the format on disk and of the counters' meaning.
func TestSizes(t *testing.T) {
	for _, row := range []struct {
		name      string
		got, want int
	}{
		{"page", PageBytes, 4 << 10},
		{"grain", GrainBytes, 64 << 10},
		{"pages of a grain", GrainPages * PageBytes, GrainBytes},
		{"extent", ExtentBytes, 4 << 20},
		{"piece", PieceSectors * 512, 256 << 10},
		{"pages that a piece touches", PiecePages, (PieceSectors-1+PageSectors-1)/PageSectors + 1},
		{"windows that a piece touches", PieceWindows, (PieceSectors-1+WindowSectors-1)/WindowSectors + 1},
	} {
		if row.got != row.want {
			t.Errorf("%s: %d, not %d", row.name, row.got, row.want)
		}
	}
}

func TestPageKey(t *testing.T) {
	for _, pool := range []uint16{0, 1, 0x8000, 0xffff} {
		for _, phys := range []uint64{0, 7, 8, 1<<51 - 8, 1<<51 - 1} {
			k := KeyOf(pool, phys)
			if k.Pool() != pool || k.Phys() != phys&^(PageSectors-1) {
				t.Errorf("the key of sector %d of pool %d names sector %d of pool %d", phys, pool, k.Phys(), k.Pool())
			}
		}
	}
	if a, b := KeyOf(3, WindowSectors), KeyOf(3, 2*WindowSectors-1); a%GrainPages != 0 || b != a+GrainPages-1 {
		t.Errorf("the keys of a grain go from %#x to %#x", a, b)
	}
}

// TestMaskAgainstSets compares masks with arrays of booleans.
func TestMaskAgainstSets(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	type set [WindowSectors]bool
	check := func(what string, m Mask, want set) {
		t.Helper()
		count, next := int64(0), uint64(WindowSectors)
		for i := uint64(WindowSectors); i > 0; {
			if i--; want[i] {
				count, next = count+1, i
			}
			if m.Has(i) != want[i] {
				t.Fatalf("-seed %d: %s: sector %d is in: %v", seed, what, i, m.Has(i))
			}
			if got := m.Next(i); got != next {
				t.Fatalf("-seed %d: %s: behind %d comes %d, not %d", seed, what, i, got, next)
			}
		}
		if m.Count() != count || m.Empty() != (count == 0) || m.Full() != (count == WindowSectors) {
			t.Fatalf("-seed %d: %s: count %d, empty %v, full %v; it has %d", seed, what, m.Count(), m.Empty(), m.Full(), count)
		}
	}
	random := func() (m Mask, s set) {
		for range rnd.IntN(4) {
			first := rnd.Uint64N(WindowSectors)
			n := rnd.Uint64N(WindowSectors-first) + 1
			if rnd.IntN(8) == 0 {
				first, n = 0, WindowSectors
			}
			m = m.Or(MaskOf(first, n))
			for i := first; i < first+n; i++ {
				s[i] = true
			}
		}
		return m, s
	}
	both := func(a, b set, fn func(x, y bool) bool) (s set) {
		for i := range s {
			s[i] = fn(a[i], b[i])
		}
		return s
	}
	for range 2000 {
		m, a := random()
		o, b := random()
		check("itself", m, a)
		check("and", m.And(o), both(a, b, func(x, y bool) bool { return x && y }))
		check("or", m.Or(o), both(a, b, func(x, y bool) bool { return x || y }))
		check("and not", m.AndNot(o), both(a, b, func(x, y bool) bool { return x && !y }))
		check("not", m.Not(), both(a, b, func(x, _ bool) bool { return !x }))
	}
	if got := (Mask{}).Next(WindowSectors); got != WindowSectors {
		t.Errorf("behind the last sector comes %d", got)
	}
}
