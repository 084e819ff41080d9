package array

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/block"
)

// TestWhatLiesBehindTheEnd: older versions anchored behind the end of a thin volume, up to what the map spans, and left
// data there that a shrink had cut off; some of it others share. A start ends the map at the volume's end before it
// counts: what others have keeps its references, what nobody has is free, and it does not come back.
func TestWhatLiesBehindTheEnd(t *testing.T) {
	const size, small = 9_000_000, 33_100
	stale := rng(66_407*windowSectors, 20*windowSectors) // behind the end, in a part of the tree of its own
	for _, first := range []string{"v", "w"} {
		for name, behind := range map[string]func(v *Volume){
			"anchors": func(v *Volume) { v.Map.SetState(small, v.Map.Span(), block.Anchored) },
			"anchors, then data": func(v *Volume) {
				v.Map.SetState(small, stale.Start+4*windowSectors+7, block.Anchored)
			},
			"data, then anchors": func(v *Volume) {
				v.Map.SetState(stale.Start+9*windowSectors+5, v.Map.Span(), block.Anchored)
			},
			"data": func(*Volume) {},
		} {
			t.Run(fmt.Sprint(first, " first, ", name), func(t *testing.T) {
				r := newRig(t, Options{}, false)
				r.pool("p", PoolSpec{}, 64<<20)
				if first == "w" {
					r.volume("w", "p", size*512, true)
				}
				v := r.volume("v", "p", size*512, true)
				if first != "w" {
					r.volume("w", "p", size*512, true)
				}
				w := r.a.Volume("w")
				mustOK(t, r.do(v, stamped(rng(small-50, 300), 7))) // over the end
				mustOK(t, r.do(v, stamped(stale, 8)))
				shared := rng(stale.Start, 12*windowSectors)
				mustOK(t, r.clone(v, w, shared))
				// What the older version left.
				behind(v)
				v.Account()
				for i := range r.a.manager.Objects.Volumes {
					if s := &r.a.manager.Objects.Volumes[i]; s.ID == v.ID() {
						s.Sectors = small
					}
				}
				r.a.SetBlob("x", []byte("y"), func(error) {})
				r.clock.Run()
				r.a.checkpoint(true)
				r.clock.RunUntil(r.clock.Now() + 1e9)
				for range 2 {
					r.crash()
					r.check()
					r.clock.RunUntil(r.clock.Now() + 1e9) // what was cut off is given back
					r.check()
					v, w = r.a.Volume("v"), r.a.Volume("w")
					// A window of v, and what w shares with nobody any more.
					if _, allocated, reserved := v.Pool().Space(); allocated != 13*grainBytes || reserved != 0 {
						t.Errorf("%d grains are allocated and %d reserved", allocated/grainBytes, reserved/grainBytes)
					}
					if st := v.Stats(); st.Anchored != 0 || st.Mapped != 50*512 {
						t.Errorf("%d bytes are anchored and %d mapped", st.Anchored, st.Mapped)
					}
					if !r.reads(v, rng(small-50, 50), 7) || !r.reads(w, shared, 8) {
						t.Error("what was not behind the end is lost")
					}
				}
				mustOK(t, r.do(w, unmap(0, shared)))
				if err := r.resize(v, size); err != nil {
					t.Fatal(err)
				}
				if !r.reads(v, rng(small, 300), 0) || !r.reads(v, stale, 0) {
					t.Error("what was behind the end is back")
				}
				r.clock.Run()
				if _, allocated, _ := v.Pool().Space(); allocated != grainBytes {
					t.Errorf("%d grains are allocated in the end", allocated/grainBytes)
				}
				r.check()
				var data bool
				v.Map.Walk(block.Range{Start: small, Count: size - small}, func(x extent.Run) bool { data = data || x.State != block.Unmapped; return true })
				if data {
					t.Error("there is something behind the old end")
				}
			})
		}
	}
}
