package backend

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestBadSectors compares the list with a model, which is a slice of sectors, under random changes.
func TestBadSectors(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const pools, sectors = 3, 40
	var lists [pools]BadSectors
	for p := range lists {
		lists[p] = BadSectorsOf(uint16(p))
	}
	var m [pools][sectors]bool
	found, none := 0, 0
	for step := range 4000 {
		pool, s := rnd.IntN(pools), rnd.IntN(sectors)
		k := layout.KeyOf(uint16(pool), uint64(s))
		mask := uint8(rnd.IntN(256))
		b := &lists[pool]
		set := func(bad bool) {
			for i := range 8 {
				if mask>>i&1 != 0 {
					m[pool][s&^7+i] = bad
				}
			}
		}
		switch rnd.IntN(6) {
		case 0:
			b.Add(k, s%8)
			m[pool][s] = true
		case 1:
			b.AddMask(k, mask)
			set(true)
		case 2, 3:
			b.Forget(k, mask)
			set(false)
		case 4:
			n := 1 + rnd.IntN(sectors-s)
			want := slices.Index(m[pool][s:s+n], true)
			got, bad := b.First(uint64(s), uint64(n))
			if bad != (want >= 0) || bad && got != uint64(s+want) {
				t.Fatalf("-seed %d, step %d: the first of %d+%d is %d, %v; want %d more", seed, step, s, n, got, bad, want)
			}
			if found++; !bad {
				found, none = found-1, none+1
			}
		case 5: // a checkpoint and a start
			var v []byte
			for p := range lists {
				v = lists[p].Encode(v)
				lists[p] = BadSectorsOf(uint16(p))
			}
			if err := DecodeBad(v, func(k layout.PageKey, sector int) { lists[k.Pool()].Add(k, sector) }); err != nil {
				t.Fatalf("-seed %d, step %d: %v", seed, step, err)
			}
			var again []byte
			for p := range lists {
				again = lists[p].Encode(again)
			}
			if !bytes.Equal(v, again) {
				t.Fatalf("-seed %d, step %d: written again it is another", seed, step)
			}
		}
		for p := range m {
			var want []uint64
			for i, bad := range m[p] {
				if bad {
					want = append(want, uint64(i))
				}
				if lists[p].Has(layout.KeyOf(uint16(p), uint64(i)), i%8) != bad {
					t.Fatalf("-seed %d, step %d: sector %d of pool %d is not %v", seed, step, i, p, bad)
				}
			}
			if got := lists[p].List(); !slices.Equal(got, want) || lists[p].Len() != len(want) {
				t.Fatalf("-seed %d, step %d: the list of pool %d is %v, want %v", seed, step, p, got, want)
			}
		}
	}
	if found == 0 || none == 0 {
		t.Errorf("-seed %d: of %d looks %d found one", seed, found+none, found)
	}
}

// TestEncodingOfBadSectors: the format on disk, of one pool behind the other.
func TestEncodingOfBadSectors(t *testing.T) {
	one, zero := BadSectorsOf(1), BadSectorsOf(0)
	if v := one.Encode(nil); v != nil {
		t.Errorf("without any, it writes % x", v)
	}
	one.Add(layout.KeyOf(1, 19), 3)
	zero.Add(layout.KeyOf(0, 8), 7)
	want := []byte{15, 0, 0, 0, 0, 0, 0, 0, 19, 0, 0, 0, 0, 0, 8, 0}
	if v := one.Encode(zero.Encode(nil)); !bytes.Equal(v, want) {
		t.Errorf("written is % x, want % x", v, want)
	}
	one.Forget(layout.KeyOf(1, 19), 0xff)
	if v := one.Encode(nil); len(v) > 0 {
		t.Errorf("that there are none any more is written as %v", v)
	}
	if err := DecodeBad(want[:15], func(layout.PageKey, int) {}); err == nil {
		t.Error("a damaged list was taken")
	}
}
