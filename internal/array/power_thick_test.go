package array

import (
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestThickVolumeOverSpaceThatComesBack makes a thick volume where another one's space has just
// been freed, and cuts the power: a thick volume that was acknowledged has its space, though the
// freeing was not flushed before.
func TestThickVolumeOverSpaceThatComesBack(t *testing.T) {
	const grains = 700 // of 1,024 that the pool has
	for seed := uint64(1); seed <= 8; seed++ {
		r := newPowerRig(t, seed, false)
		var thin *Volume
		r.a.CreateVolume(VolumeSpec{Name: "thin", Pool: "b", Sectors: grains * windowSectors, Thin: true}, func(v *Volume, err error) { r.must(nil, err); thin = v })
		r.clock.Run()
		r.vols = append(r.vols, thin)
		n := len(r.vols) - 1
		for w := uint64(0); w < grains; w++ {
			if s := r.put(n, w*windowSectors, 1, w+1); s != block.OK {
				t.Fatalf("seed %d: write %d ended %v", seed, w, s)
			}
		}
		if s := r.wait(n, &block.Request{Op: block.OpFlush}); s != block.OK {
			t.Fatal(s)
		}
		if s := r.wait(n, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, grains*windowSectors)}}); s != block.OK {
			t.Fatal(s)
		}
		fails := seed%2 == 0
		if fails {
			r.failSyncs(1 << 30)
		}
		refused := ends(r.clock, func(done func(error)) {
			r.a.CreateVolume(VolumeSpec{Name: "thick", Pool: "b", Sectors: grains * windowSectors}, func(_ *Volume, err error) { done(err) })
		})
		if (refused != nil) != fails || errors.Is(refused, errNever) {
			t.Errorf("seed %d: where flushes fail %v, a thick volume ended %v", seed, fails, refused)
		}
		r.losePower()
		if (r.a.Volume("thick") == nil) != (refused != nil) {
			t.Errorf("seed %d: a start finds the thick volume that ended %v: %v", seed, refused, r.a.Volume("thick"))
		}
		for _, p := range r.a.Check(true).Problems {
			t.Errorf("seed %d: %s", seed, p)
		}
		r.files.Close()
	}
}
