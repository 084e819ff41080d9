package array

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

func TestDamagedDirtySectorIsNeverServed(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 1<<20, true)
	data := bytes.Repeat([]byte{0xab}, 8*512)
	r.do(v, &block.Request{Op: block.OpWrite, Range: rng(0, 8), Data: [][]byte{data}})
	i := r.a.cache.Lookup(layout.KeyOf(0, physOf(t, v, 3)))
	r.a.cache.NV.Page(i)[3*512+100] ^= 1
	for range 2 { // the second start knows it from the checkpoint
		r.crash()
		r.clock.Run()
		v = r.a.Volume("v")
		buf := make([]byte, 512)
		for s := range uint64(8) {
			want := block.OK
			if s == 3 {
				want = block.MediumRead
			}
			if got := r.do(v, &block.Request{Op: block.OpRead, Range: rng(s, 1), Data: [][]byte{buf}}); got != want {
				t.Errorf("sector %d reads %v, not %v", s, got, want)
			}
		}
		if n := len(r.a.Check(true).Problems); n != 1 {
			t.Errorf("check has %d problems, not 1", n)
		}
	}
	r.do(v, &block.Request{Op: block.OpWrite, Range: rng(3, 1), Data: [][]byte{data[:512]}})
	if got := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{data}}); got != block.OK {
		t.Errorf("after it was written again it reads %v", got)
	}
	r.check()
}

// physOf returns the physical sector of a sector that is data.
func physOf(t *testing.T, v *Volume, sector uint64) uint64 {
	var phys uint64
	v.Map.Walk(rng(sector, 1), func(x extent.Run) bool {
		if x.State != block.Data {
			t.Fatalf("sector %d is %v", sector, x.State)
		}
		phys = x.Phys
		return true
	})
	return phys
}
