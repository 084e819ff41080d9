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
	for range 2 { // in the process that wrote it, and in the next one
		if got := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{data}}); got != block.OK {
			t.Errorf("after it was written again it reads %v", got)
		}
		r.check()
		r.crash()
		v = r.a.Volume("v")
	}
}

// TestRewrittenBadSectorStaysGood writes a sector again that the last checkpoint has on its list of bad ones. What was
// acknowledged is there behind a crash, wherever it is by then.
func TestRewrittenBadSectorStaysGood(t *testing.T) {
	destaged := func(r *rig, v *Volume) {
		r.clock.RunUntil(r.clock.Now() + 5e9)
		if n := r.a.Dirty(); n != 0 {
			t.Fatalf("%d bytes are not destaged", n)
		}
	}
	for name, row := range map[string]struct {
		// before changes the map before the sector is written again; then is what happens behind that.
		before, then func(r *rig, v *Volume)
	}{
		"at once":  {},
		"destaged": {then: destaged},
		"destaged, its page reused": {then: func(r *rig, v *Volume) {
			destaged(r, v)
			key := layout.KeyOf(0, physOf(t, v, 3))
			for n := range uint64(16) {
				mustOK(t, r.do(v, write(4096+n*512, 512)))
				destaged(r, v)
			}
			for i := range uint32(r.a.cache.Pages()) {
				if r.a.cache.NV.Descriptor(i).Key() == key {
					t.Fatal("a page still has the sector")
				}
			}
		}},
		"by an older version, whose record has no edit": {before: func(r *rig, v *Volume) {
			phys := physOf(t, v, 3)
			v.Pool().Bad.Forget(layout.KeyOf(0, phys), 1<<(phys%8))
		}},
		"unmapped before": {before: func(r *rig, v *Volume) {
			mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 128)}}))
		}, then: destaged},
		"unmapped alone before": {before: func(r *rig, v *Volume) {
			mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(3, 1)}}))
		}, then: destaged},
		"unmapped, and its space another volume's": {before: func(r *rig, v *Volume) {
			mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 128)}}))
			mustOK(t, r.do(r.a.Volume("w"), write(0, 128)))
		}, then: destaged},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 1 << 20}, false)
			r.pool("p", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 8<<20, true)
			r.volume("w", "p", 8<<20, true)
			mustOK(t, r.do(v, write(0, 8)))
			r.a.cache.NV.Page(r.a.cache.Lookup(layout.KeyOf(0, physOf(t, v, 3))))[3*512+100] ^= 1
			r.crash()
			v = r.a.Volume("v")
			if n := r.a.Check(true).BadSectors; n != 1 {
				t.Fatalf("%d sectors are bad", n)
			}
			data := bytes.Repeat([]byte{0xcd}, 8*512)
			if row.before != nil {
				row.before(r, v)
			}
			mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Flags: block.FUA, Range: rng(3, 1), Data: [][]byte{data[:512]}}))
			if row.then != nil {
				row.then(r, v)
			}
			if n := r.a.ckpt.Count(); n > 1 {
				t.Fatalf("%d checkpoints were made", n)
			}
			r.crash()
			v, w := r.a.Volume("v"), r.a.Volume("w")
			got := make([]byte, 512)
			if s := r.do(v, &block.Request{Op: block.OpRead, Range: rng(3, 1), Data: [][]byte{got}}); s != block.OK || !bytes.Equal(got, data[:512]) {
				t.Errorf("it reads %v, %x", s, got[:4])
			}
			mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(0, 128), Data: [][]byte{make([]byte, 128*512)}}))
			r.check()
		})
	}
}

// TestReferenceToABadSectorMendsNothing: a copy by reference names a bad sector, and writes nothing there. Behind a crash
// both still read a medium error.
func TestReferenceToABadSectorMendsNothing(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 1<<20, true)
	r.volume("w", "p", 1<<20, true)
	mustOK(t, r.do(v, write(0, 128)))
	r.clock.RunUntil(r.clock.Now() + 5e9) // what is on the mdisk reads well
	mustOK(t, r.do(v, write(3, 1)))
	r.a.cache.NV.Page(r.a.cache.Lookup(layout.KeyOf(0, physOf(t, v, 3))))[3*512+100] ^= 1
	r.crash()
	v = r.a.Volume("v")
	w := r.a.Volume("w")
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 128)}}
	mustOK(t, r.do(v, h))
	mustOK(t, r.do(w, &block.Request{Op: block.OpPlace, Range: rng(0, 128), Ref: h.Ref}))
	h.Ref.Release()
	for range 2 {
		for _, name := range []string{"v", "w"} {
			if s := r.do(r.a.Volume(name), &block.Request{Op: block.OpRead, Range: rng(3, 1), Data: [][]byte{make([]byte, 512)}}); s != block.MediumRead {
				t.Errorf("%s reads %v", name, s)
			}
		}
		r.crash()
	}
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
