package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

func TestImportIsDataThatWasThere(t *testing.T) {
	r := newRig(t, Options{}, true)
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 1 << 30}}}, 0)
	v := r.volume("v", "p", 1<<29, true)
	if err := v.Import(rng(windowSectors, 1<<20-windowSectors)); err != nil {
		t.Fatal(err)
	}
	if st := v.Stats(); st.Mapped != 1<<29-64<<10 || p.Stats().Allocated != st.Mapped {
		t.Errorf("%d bytes are mapped, %d allocated", st.Mapped, p.Stats().Allocated)
	}
	mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 1024), Data: [][]byte{make([]byte, 1024*512)}}))
	var reads uint64
	for o := range block.NumOrigins {
		_, n := p.Mdisks[0].Moved(false, o, block.ReasonStage)
		reads += n
	}
	if reads != (1024-windowSectors)*512 {
		t.Errorf("%d bytes were read from the back end", reads)
	}
	for name, err := range map[string]error{"out of room": r.volume("w", "p", 1<<30, true).Import(rng(0, 1<<21)), "misaligned": v.Import(rng(1, windowSectors))} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	keeps := newRig(t, Options{}, false)
	keeps.pool("p", PoolSpec{}, 64<<20)
	if keeps.volume("v", "p", 1<<20, true).Import(rng(0, windowSectors)) == nil {
		t.Error("a store with payload showed what earlier volumes left")
	}
	r.check()
}

func TestFlowsAddUp(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 16 << 20}, true)
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 1 << 30, Bandwidth: 20 << 20}}}, 0)
	v := r.volume("v", "p", 1<<28, true)
	drive(r, v, 60<<20, 1e9, block.OriginXCopy)
	r.clock.RunUntil(r.clock.Now() + 1e9)
	var f [block.NumOrigins]pool.Flow
	v.Flow(&f)
	x := f[block.OriginXCopy]
	if x.Fast == 0 || x.Dirty == 0 || x.Destaged == 0 || x.Fast != uint64(x.Dirty)+x.Destaged+x.Overwritten+x.Discarded {
		t.Errorf("%+v", x)
	}
	used, limit := p.Fullness()
	_, waited, waiting := p.Waits(block.OriginXCopy)
	if used < limit*9/10 || used > limit || waited == 0 || waiting == 0 {
		t.Errorf("%d of %d bytes used, %d waited, %d bytes wait", used, limit, waited, waiting)
	}
	if mean := p.UsedSeconds(); mean < float64(limit)/2 || mean > float64(limit) || v.DirtySeconds() > mean {
		t.Errorf("in a second the integral of what is used grew to %.0f, that of the volume to %.0f", mean, v.DirtySeconds())
	}
}

// TestNoRingWithoutPayload: an array that logs nothing has no memory for it. There are simulations that
// make thousands of arrays.
func TestNoRingWithoutPayload(t *testing.T) {
	o := Options{CacheBytes: 1 << 30}
	o.fill()
	if with, without := o.region(true).Region().Log, o.region(false).Region().Log; with != 128<<20 || without != nvlog.MinLogBytes {
		t.Errorf("the log of a cache of 1 GiB has %d bytes, and without payload %d", with, without)
	}
}
