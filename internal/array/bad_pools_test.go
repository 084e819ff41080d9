package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// TestBadSectorsOfPools: each pool has the list of its own bad sectors again after a start. What a
// checkpoint says of a pool that was deleted after it is nobody's any more: no volume could ever
// write it over.
func TestBadSectorsOfPools(t *testing.T) {
	r := newRig(t, Options{}, false)
	p, q := r.pool("p", PoolSpec{}, 64<<20), r.pool("q", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 8<<20, true)
	w := r.volume("w", "q", 8<<20, true)
	mustOK(t, r.do(v, write(0, 8)))
	mustOK(t, r.do(w, write(0, 8)))
	const phys = 5 // where each volume has its first window
	p.Bad.Add(layout.KeyOf(p.ID(), phys), phys)
	q.Bad.Add(layout.KeyOf(q.ID(), phys+1), phys+1)
	r.a.checkpoint(true)
	r.clock.Run()
	if err := r.restart(); err != nil {
		t.Fatal(err)
	}
	p, q = r.a.Pool("p"), r.a.Pool("q")
	for i, x := range []*Pool{p, q} {
		if got := x.Bad.List(); len(got) != 1 || got[0] != phys+uint64(i) {
			t.Fatalf("the list of %s is %v", x.Name(), got)
		}
	}
	if n := r.a.Check(false).BadSectors; n != 2 {
		t.Errorf("%d bad sectors are known, not 2", n)
	}
	err := errNever
	r.a.DeleteVolume(r.a.Volume("w"), func(e error) {
		if e != nil {
			t.Error(e)
		}
	})
	r.clock.Run()
	r.a.DeletePool(q, func(e error) { err = e })
	r.clock.Run()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // with the checkpoint from before the deletion, and with one from behind it
		if n := r.a.Check(false).BadSectors; n != 1 || p.Bad.Len() != 1 {
			t.Errorf("%d bad sectors are known, %d of the pool that is left", n, p.Bad.Len())
		}
		if err := r.restart(); err != nil {
			t.Fatal(err)
		}
		p = r.a.Pool("p")
	}
}
