package names

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestLUNs: every number has one form that is sent, and is understood in both that there are.
func TestLUNs(t *testing.T) {
	for n := range MaxLUN + 1 {
		wire := binary.BigEndian.Uint64(AppendLUN(nil, n))
		if got, ok := ParseLUN(wire); !ok || got != n {
			t.Fatalf("LUN %d is sent as %016x and understood as %d, %v", n, wire, got, ok)
		}
		if got, ok := ParseLUN(uint64(n|1<<14) << 48); !ok || got != n {
			t.Fatalf("flat space LUN %d is understood as %d, %v", n, got, ok)
		}
	}
	if wire := AppendLUN(nil, 255); wire[0] != 0 {
		t.Errorf("LUN 255 is sent as % x", wire)
	}
	for _, lun := range []uint64{1, 1 << 47, 0x0100 << 48, 0x8000 << 48, 0xC101 << 48} {
		if n, ok := ParseLUN(lun); ok {
			t.Errorf("%016x is understood as %d", lun, n)
		}
	}
}

// TestLUNMaps holds the maps against a plain one after random changes.
func TestLUNMaps(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+50; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		var m LUNMaps[*int]
		units := []*int{new(int), new(int), new(int)}
		model := map[string]map[uint16]*int{}
		initiators := []string{"", "a", "b"}
		for range 100 {
			who, lun, u := initiators[rng.IntN(3)], uint16(rng.IntN(6)), units[rng.IntN(3)]
			switch rng.IntN(4) {
			case 0:
				m.Clear(who, lun)
				delete(model[who], lun)
			case 1:
				if rng.IntN(5) > 0 {
					continue
				}
				m.Remove(u)
				for _, own := range model {
					for at, v := range own {
						if v == u {
							delete(own, at)
						}
					}
				}
			default:
				if model[who] == nil {
					model[who] = map[uint16]*int{}
				}
				there := model[who][lun]
				taken := m.Set(who, lun, u)
				if (taken != nil) != (there != nil && there != u) || taken != nil && taken != there {
					t.Fatalf("seed %d: LUN %d of %q is taken by %p, want %p", seed, lun, who, taken, there)
				}
				if taken == nil {
					model[who][lun] = u
				}
			}
			for _, who := range append(initiators, "nobody") {
				own := model[who]
				if own == nil {
					own = model[""]
				}
				for lun, u := range m.Of(who) {
					if u != own[uint16(lun)] {
						t.Fatalf("seed %d: LUN %d of %q", seed, lun, who)
					}
				}
				for lun := range own {
					if int(lun) >= len(m.Of(who)) {
						t.Fatalf("seed %d: %q has no LUN %d", seed, who, lun)
					}
				}
			}
		}
	}
}

// TestInitiators: a name keeps its number; those beyond the bound share one.
func TestInitiators(t *testing.T) {
	var all Initiators
	for i := range maxInitiators {
		if got := all.Named(fmt.Sprint(i)); got.ID != uint32(i+1) || got.Name != fmt.Sprint(i) {
			t.Fatalf("initiator %d is %+v", i, got)
		}
	}
	a, b := all.Named("one more"), all.Named("another")
	if a != b || a.Name != otherInitiators || a.ID != maxInitiators+1 {
		t.Errorf("beyond the bound are %+v and %+v", a, b)
	}
	if got := all.Named("7"); got.ID != 8 {
		t.Errorf("the number of 7 became %d", got.ID)
	}
}
