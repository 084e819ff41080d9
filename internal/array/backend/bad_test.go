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
	var b BadSectors
	var m [pools][sectors]bool
	found, none := 0, 0
	for step := range 4000 {
		pool, s := rnd.IntN(pools), rnd.IntN(sectors)
		k := layout.KeyOf(uint16(pool), uint64(s))
		mask := uint8(rnd.IntN(256))
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
			got, bad := b.First(uint16(pool), uint64(s), uint64(n))
			if bad != (want >= 0) || bad && got != uint64(s+want) {
				t.Fatalf("-seed %d, step %d: the first of %d+%d is %d, %v; want %d more", seed, step, s, n, got, bad, want)
			}
			if found++; !bad {
				found, none = found-1, none+1
			}
		case 5: // a checkpoint and a start
			v, ok := b.Encode()
			var c BadSectors
			if err := c.Load(v); err != nil || ok && !slices.Equal(b.List(), c.List()) {
				t.Fatalf("-seed %d, step %d: %v is read as %v, %v", seed, step, b.List(), c.List(), err)
			}
			if again, _ := c.Encode(); len(v) > 0 && !bytes.Equal(v, again) {
				t.Fatalf("-seed %d, step %d: written again it is another", seed, step)
			}
			b = c
		}
		var want []BadSector
		for p := range m {
			for i, bad := range m[p] {
				if bad {
					want = append(want, BadSector{uint16(p), uint64(i)})
				}
				if b.Has(layout.KeyOf(uint16(p), uint64(i)), i%8) != bad {
					t.Fatalf("-seed %d, step %d: sector %d of pool %d is not %v", seed, step, i, p, bad)
				}
			}
		}
		if !slices.Equal(b.List(), want) && len(want)+b.Len() > 0 {
			t.Fatalf("-seed %d, step %d: the list is %v, want %v", seed, step, b.List(), want)
		}
	}
	if found == 0 || none == 0 {
		t.Errorf("-seed %d: of %d looks %d found one", seed, found+none, found)
	}
}

// TestEncodingOfBadSectors: the format on disk, and when there is something to write.
func TestEncodingOfBadSectors(t *testing.T) {
	var b BadSectors
	if v, changed := b.Encode(); changed || v != nil {
		t.Errorf("without any, it writes % x, %v", v, changed)
	}
	b.Add(layout.KeyOf(1, 19), 3)
	b.Add(layout.KeyOf(0, 8), 7)
	want := []byte{15, 0, 0, 0, 0, 0, 0, 0, 19, 0, 0, 0, 0, 0, 8, 0}
	if v, changed := b.Encode(); !changed || !bytes.Equal(v, want) {
		t.Errorf("written is % x, want % x", v, want)
	}
	b.Forget(layout.KeyOf(1, 19), 0xff)
	b.Forget(layout.KeyOf(0, 8), 0xff)
	if v, changed := b.Encode(); !changed || v == nil || len(v) > 0 {
		t.Errorf("that there are none any more is written as %v, %v", v, changed)
	}
	if v, changed := b.Encode(); changed {
		t.Errorf("written twice: %v", v)
	}
	if err := b.Load(want[:15]); err == nil {
		t.Error("a damaged list was taken")
	}
}
