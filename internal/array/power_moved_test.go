package array

import (
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestWhatWasMovedBeforeADeletion: data is copied, the copy is acknowledged, and then its source is
// deleted, or the part of it is cut off, and that is acknowledged, too. The power goes at once: as
// what came after something that is undone is undone, one of both has the data.
func TestWhatWasMovedBeforeADeletion(t *testing.T) {
	const n = 8 * windowSectors
	for seed := uint64(1); seed <= 16; seed++ {
		r := newPowerRig(t, seed, false)
		for _, v := range []string{"from", "to"} {
			pool := "b"
			if v == "to" && seed%4 < 2 {
				pool = "a"
			}
			r.a.CreateVolume(VolumeSpec{Name: v, Pool: pool, Sectors: 2 * n, Thin: true}, func(v *Volume, err error) { r.must(nil, err); r.vols = append(r.vols, v) })
			r.clock.Run()
		}
		from, to := len(r.vols)-2, len(r.vols)-1
		if s := r.put(from, n, n, seed); s != block.OK {
			t.Fatal(s)
		}
		if s := r.wait(from, &block.Request{Op: block.OpFlush}); s != block.OK {
			t.Fatal(s)
		}
		h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(n, n)}}
		if s := r.wait(from, h); s != block.OK {
			t.Fatal(s)
		}
		if s := r.wait(to, &block.Request{Op: block.OpPlace, Range: rng(n, n), Ref: h.Ref, Origin: block.OriginXCopy}); s != block.OK {
			t.Fatal(s)
		}
		h.Ref.Release()
		fails := seed%8 > 5
		if fails {
			r.failSyncs(1 << 30)
		}
		refused := ends(r.clock, func(done func(error)) {
			if seed%2 == 0 {
				r.a.DeleteVolume(r.vols[from], done)
			} else {
				r.a.Resize(r.vols[from], n, done)
			}
		})
		if (refused != nil) != fails || errors.Is(refused, errNever) {
			t.Errorf("seed %d: where flushes fail %v, it ended %v", seed, fails, refused)
		}
		r.losePower()
		r.vols[from], r.vols[to] = r.a.Volume("from"), r.a.Volume("to")
		if v := r.vols[from]; (v == nil || v.Spec.Sectors == n) != (refused == nil) {
			t.Errorf("seed %d: it ended %v, and a start finds the source %v", seed, refused, v)
		} else if !(refused != nil && r.holds(from, n, n, seed)) && !r.holds(to, n, n, seed) {
			t.Errorf("seed %d: neither the source nor the copy has the data", seed)
		}
		for _, p := range r.a.Check(true).Problems {
			t.Errorf("seed %d: %s", seed, p)
		}
		r.files.Close()
	}
}
