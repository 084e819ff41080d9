package window

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// anyLeaf makes a leaf of anything that a leaf may have, be it what a map would never make.
func anyLeaf(ws *Slab, rnd *rand.Rand) (leaf Leaf, sums Sums) {
	anyPhys := func() uint64 {
		p := rnd.Uint64() >> (3 + rnd.IntN(60))
		switch rnd.IntN(4) {
		case 0:
			return p
		case 1:
			return -p // as a copy makes of the tail of a source
		}
		return p &^ (layout.WindowSectors - 1)
	}
	anyMask := func() (m layout.Mask) {
		switch rnd.IntN(4) {
		case 0:
			return layout.Mask{rnd.Uint64(), rnd.Uint64()}
		case 1:
			return m
		case 2:
			return layout.MaskOf(0, layout.WindowSectors)
		}
		return layout.MaskOf(rnd.Uint64N(16)*8, 8)
	}
	sums = Sums{rnd.Int64N(1 << 40), rnd.Int64N(1000), rnd.Int64N(1 << 20), rnd.Int64N(LeafWindows)}
	for i := 0; i < LeafWindows; {
		n := 1 + rnd.IntN(1+rnd.IntN(LeafWindows-i))
		s := []Slot{KindUnmapped, KindZero, KindAnchored, Data(anyPhys())}[rnd.IntN(4)]
		for range n {
			if leaf[i] = s; s.Kind() == KindData && rnd.IntN(50) > 0 {
				s = s.behind(1)
			}
			if rnd.IntN(4) == 0 {
				last := uint32(0)
				for range 1 + rnd.IntN(1+rnd.IntN(5)) {
					id, d := ws.alloc()
					d.phys, d.mask = anyPhys(), anyMask()
					if last == 0 {
						leaf[i] = detailOf(id)
						ws.setStates(d, states{anyMask(), anyMask()})
					} else {
						ws.at(last).next = id
					}
					last = id
				}
			}
			i++
		}
	}
	return leaf, sums
}

// forms returns what the windows of a leaf are, and the layers of those that are not of one piece as
// they follow each other.
func forms(ws *Slab, leaf *Leaf) (list []Slot, layers []detail, st []states) {
	for _, s := range leaf {
		if s.Kind() != KindDetail {
			list = append(list, s)
			continue
		}
		head := uint32(s.Value())
		list, st = append(list, KindDetail), append(st, ws.statesOf(ws.at(head)))
		for i := head; i != 0; i = ws.at(i).next {
			d := *ws.at(i)
			d.next, d.states = 0, 0
			layers = append(layers, d)
		}
	}
	return list, layers, st
}

// TestUnpackedAsItWas: a leaf that was packed is the same again, whatever it has.
func TestUnpackedAsItWas(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 5))
	var ws Slab
	large := 0
	for round := range 300 {
		leaf, sums := anyLeaf(&ws, rnd)
		slots, layers, st := forms(&ws, &leaf)
		live, packed := ws.live, ws.packed.live
		s, ok := ws.Pack(&leaf, sums)
		if ok != (len(ws.buf) <= maxPacked) {
			t.Fatalf("-seed %d, round %d: %d bytes fit: %v", seed, round, len(ws.buf), ok)
		}
		if !ok {
			large++
			if again, _, _ := forms(&ws, &leaf); !slices.Equal(again, slots) || ws.live != live || ws.packed.live != packed || len(ws.buf) > maxPacked+4096 {
				t.Fatalf("-seed %d, round %d: a leaf that was too large is another, or was written to %d bytes", seed, round, len(ws.buf))
			}
			ws.Forget(&leaf)
			continue
		}
		if s.Kind() != KindPacked || ws.live != 0 || ws.Sums(s) != sums {
			t.Fatalf("-seed %d, round %d: it is packed to %#x with %+v, and leaves %d layers", seed, round, s, ws.Sums(s), ws.live)
		}
		for _, read := range []func(Slot, *Leaf) Sums{ws.Copy, ws.Unpack} {
			var again Leaf
			had := read(s, &again)
			slots2, layers2, st2 := forms(&ws, &again)
			if had != sums || !slices.Equal(slots2, slots) || !slices.Equal(layers2, layers) || !slices.Equal(st2, st) {
				t.Fatalf("-seed %d, round %d: another leaf comes back", seed, round)
			}
			ws.Forget(&again)
			if ws.live+ws.liveStates != 0 {
				t.Fatalf("-seed %d, round %d: %d details are left", seed, round, ws.live)
			}
		}
		if ws.Packed() != 0 {
			t.Fatalf("-seed %d, round %d: %d leaves are packed", seed, round, ws.Packed())
		}
	}
	if large > 200 {
		t.Errorf("-seed %d: %d of 300 are too large: little is shown", seed, large)
	}
}

// TestLayersOfAPackedLeaf: they are those of its windows, in their order, and who asks may end it at any.
func TestLayersOfAPackedLeaf(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 6))
	type layer struct {
		base uint64
		mask layout.Mask
	}
	var ws Slab
	for round := range 300 {
		leaf, sums := anyLeaf(&ws, rnd)
		var want []layer
		for _, s := range leaf {
			ws.Layers(s, func(base uint64, mask layout.Mask) bool {
				want = append(want, layer{base, mask})
				return true
			})
		}
		s, ok := ws.Pack(&leaf, sums)
		if !ok {
			ws.Forget(&leaf)
			continue
		}
		most := len(want) + 1
		for range 2 { // all, then some
			var got []layer
			ws.Layers(s, func(base uint64, mask layout.Mask) bool {
				got = append(got, layer{base, mask})
				return len(got) < most
			})
			if !slices.Equal(got, want[:min(most, len(want))]) {
				t.Fatalf("-seed %d, round %d: up to %d of %d layers are %d others", seed, round, most, len(want), len(got))
			}
			most = 1 + rnd.IntN(len(want)+1)
		}
		if ws.live+ws.liveStates != 0 || ws.Packed() != 1 {
			t.Fatalf("-seed %d, round %d: %d details are left of %d leaves", seed, round, ws.live, ws.Packed())
		}
		ws = Slab{}
	}
}

// TestPackedPlaces: places of all sizes are used again, and none is another's.
func TestPackedPlaces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 1))
	var p places
	have := map[Slot][]byte{}
	var order []Slot
	put := func() {
		b := make([]byte, 1+rnd.IntN(packedSizes[rnd.IntN(len(packedSizes))]))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		s := p.put(b)
		if s.Kind() != KindPacked || have[s] != nil {
			t.Fatalf("%d bytes are put to %#x", len(b), s)
		}
		have[s] = b
		order = append(order, s)
	}
	for range 3000 {
		put()
	}
	full := p.bytes
	for range 20_000 {
		i := rnd.IntN(len(order))
		s := order[i]
		if !bytes.HasPrefix(p.at(s), have[s]) {
			t.Fatalf("the place of %#x has something else", s)
		}
		p.release(s)
		delete(have, s)
		order[i] = order[len(order)-1]
		order = order[:len(order)-1]
		put()
	}
	if p.live != 3000 || p.bytes > full+full/2 {
		t.Errorf("%d leaves are kept in %d bytes, %d before", p.live, p.bytes, full)
	}
}

// BenchmarkPackedLeaf packs and unpacks a leaf, and reports what leaves like it take, packed and not, for a
// TiB of addresses.
func BenchmarkPackedLeaf(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 1))
	grain := func() uint64 { return rnd.Uint64N(1<<24) << layout.WindowShift } // of a pool of a TiB
	some := func() layout.Mask {
		m := layout.Mask{}
		for range 8 {
			m = m.Or(layout.MaskOf(rnd.Uint64N(16)*8, 8))
		}
		return m
	}
	for _, row := range []struct {
		name   string
		window func(ws *Slab, i int) Slot
	}{
		{"sequence", func(_ *Slab, i int) Slot { return Data(5 << 20).behind(i) }},
		{"windows", func(*Slab, int) Slot { return Data(grain()) }},
		{"pages", func(ws *Slab, _ int) Slot {
			id, d := ws.alloc()
			d.phys, d.mask = grain(), some()
			return detailOf(id)
		}},
		{"pages-anchored", func(ws *Slab, _ int) Slot {
			id, d := ws.alloc()
			d.phys, d.mask = grain(), some()
			ws.setStates(d, states{anchored: d.mask.Not()})
			return detailOf(id)
		}},
	} {
		b.Run(row.name, func(b *testing.B) {
			var ws Slab
			var leaf Leaf
			var sums Sums
			for i := range leaf {
				leaf[i] = row.window(&ws, i)
				sums.Add(ws.Sums(leaf[i]))
			}
			const leaves = 1 << 40 / (LeafWindows * layout.WindowSectors * block.SectorSize)
			loose := uint64(unsafe.Sizeof(leaf)) + ws.LooseBytes()
			for b.Loop() {
				s, ok := ws.Pack(&leaf, sums)
				if !ok {
					b.Fatal("it is too large")
				}
				leaf = Leaf{}
				ws.Unpack(s, &leaf)
			}
			place := packedSizes[slices.IndexFunc(packedSizes[:], func(n int) bool { return n >= len(ws.buf) })]
			b.ReportMetric(float64(loose)*leaves/(1<<20), "MiB/TiB-loose")
			b.ReportMetric(float64(place)*leaves/(1<<20), "MiB/TiB-packed")
		})
	}
}
