package window

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestSizes: most of the memory of windows in pieces are these.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(detail{}); n != 32 {
		t.Errorf("a layer of a window takes %d bytes", n)
	}
}

// model is a window sector by sector, and the layers that its edits have told of.
type model struct {
	t       *testing.T
	name    string
	sectors [layout.WindowSectors]Run // of one sector each
	taken   map[uint64]layout.Mask
}

func (m *model) Take(base uint64, add, had layout.Mask) {
	if m.taken[base] != had || !add.And(had).Empty() {
		m.t.Fatalf("%s: the layer at %d had %x, not %x, and gains %x", m.name, base, m.taken[base], had, add)
	}
	if m.taken[base] = had.Or(add); m.taken[base].Empty() {
		delete(m.taken, base)
	}
}

func (m *model) Give(base uint64, lost, left layout.Mask) {
	if m.taken[base] != left.Or(lost) || !left.And(lost).Empty() || lost.Empty() {
		m.t.Fatalf("%s: the layer at %d had %x; it gives up %x and keeps %x", m.name, base, m.taken[base], lost, left)
	}
	if m.taken[base] = left; left.Empty() {
		delete(m.taken, base)
	}
}

// compare holds a window against the model.
func (m *model) compare(ws *Slab, s Slot) {
	m.t.Helper()
	if why := ws.Check(s); why != "" {
		m.t.Fatalf("%s: the window %s", m.name, why)
	}
	var want Sums
	for i, x := range m.sectors {
		switch x.State {
		case block.Zero:
			want.Zero++
		case block.Anchored:
			want.Anchored, want.Promised = want.Anchored+1, 1
		case block.Data:
			want.Data++
			if m.taken[x.Phys-uint64(i)].And(layout.MaskOf(uint64(i), 1)).Empty() {
				m.t.Fatalf("%s: nobody has heard of sector %d", m.name, i)
			}
		}
	}
	if got := ws.Sums(s); got != want || ws.Anchored(s) != (want.Promised > 0) {
		m.t.Fatalf("%s: it has %+v, not %+v", m.name, got, want)
	}
	layers := 0
	ws.Layers(s, func(base uint64, mask layout.Mask) bool {
		if layers++; m.taken[base] != mask {
			m.t.Fatalf("%s: the layer at %d has %x, not %x", m.name, base, mask, m.taken[base])
		}
		return true
	})
	if layers != len(m.taken) {
		m.t.Fatalf("%s: %d layers, not %d", m.name, layers, len(m.taken))
	}
	if s.Uniform() {
		for i, x := range m.sectors {
			if Slot(x.State) != s {
				m.t.Fatalf("%s: sector %d is %v, all of the window %v", m.name, i, x.State, s)
			}
		}
		return
	}
	const start = 5 * layout.WindowSectors
	at := uint64(0)
	ws.Runs(s, start, 0, layout.WindowSectors, func(r Run) bool {
		if r.Start != start+at || r.Count == 0 {
			m.t.Fatalf("%s: a run %v comes behind sector %d", m.name, r.Range, at)
		}
		for k := range r.Count {
			if x := m.sectors[at]; x.State != r.State || x.State == block.Data && x.Phys != r.Phys+k {
				m.t.Fatalf("%s: sector %d is %v at %d, not %v at %d", m.name, at, r.State, r.Phys+k, x.State, x.Phys)
			}
			at++
		}
		return true
	})
	if at != layout.WindowSectors {
		m.t.Fatalf("%s: the runs end at sector %d", m.name, at)
	}
}

// TestRandom edits a window and holds it against a model; what is written of it is read as it was.
func TestRandom(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var ws Slab
	deep := 0
	for round := range 200 {
		m := &model{t: t, name: fmt.Sprintf("-seed %d, round %d", seed, round), taken: map[uint64]layout.Mask{}}
		s := KindUnmapped
		for range 60 {
			first := rnd.Uint64N(layout.WindowSectors)
			n := 1 + rnd.Uint64N(layout.WindowSectors-first)
			if rnd.IntN(4) == 0 {
				first, n = 0, layout.WindowSectors
			}
			if rnd.IntN(3) > 0 {
				base := []uint64{1 << 20, 2 << 20, 3 << 20, 4<<20 + 7, 1<<64 - 9}[rnd.IntN(5)]
				if base > 1<<63 && first < 9 { // no sector lies below zero
					first, n = 9, 1+rnd.Uint64N(layout.WindowSectors-9)
				}
				ws.SetData(&s, first, n, base+first, m)
				for i := first; i < first+n; i++ {
					m.sectors[i] = Run{State: block.Data, Phys: base + i}
				}
			} else {
				to := []Slot{KindUnmapped, KindZero, KindAnchored}[rnd.IntN(3)]
				ws.SetState(&s, first, n, to, m)
				for i := first; i < first+n; i++ {
					m.sectors[i] = Run{State: block.State(to)}
				}
			}
			m.compare(&ws, s)
			if s.Kind() != KindDetail {
				continue
			}
			deep = max(deep, len(m.taken))
			b := ws.Append([]byte("before"), s)[len("before"):]
			for short := range len(b) {
				if _, _, ok := ws.Decode(b[:short]); ok {
					t.Fatalf("%s: %d of %d bytes are a window", m.name, short, len(b))
				}
			}
			again, rest, ok := ws.Decode(append(b, "behind"...))
			if !ok || string(rest) != "behind" || !bytes.Equal(ws.Append(nil, again), b) && len(m.taken) < 3 {
				t.Fatalf("%s: it is written as %x, and read as another", m.name, b)
			}
			m.compare(&ws, again)
			ws.forget(again)
		}
		if ws.Drop(s, m); len(m.taken) > 0 || ws.live+ws.liveStates > 0 {
			t.Fatalf("%s: when the window is gone %d layers are there, of %d nobody has heard", m.name, ws.live, len(m.taken))
		}
	}
	if deep < 4 {
		t.Errorf("-seed %d: windows had up to %d layers: little is shown", seed, deep)
	}
}
