package array

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// twoPagesEach makes an array that was killed with two pages that count at each of many addresses: the older one was
// written to an mdisk whose sync does not end, and then one of its sectors was written again. It returns what each sector
// holds.
func twoPagesEach(t *testing.T, pages uint64) (r *rig, want []byte) {
	var h *hungSync
	r = rigOver(t, Options{CacheBytes: 8 << 20}, func(under block.Store) block.Store { h = &hungSync{Store: under}; return h })
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "d", Size: 64 << 20}}}, 0)
	v := r.volume("v", "p", 32<<20, true)
	h.name = "d"
	want = make([]byte, pages*4096)
	for s := range pages * 8 {
		fillStamp(want[s*512:(s+1)*512], s+1)
	}
	for p := uint64(0); p < pages; p += 32 {
		n := min(32, pages-p)
		mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(p*8, n*8), Data: [][]byte{want[p*4096 : (p+n)*4096]}}))
	}
	mustOK(t, r.do(v, &block.Request{Op: block.OpFlush}))
	r.clock.RunUntil(r.clock.Now() + 3e9)
	if n := r.a.Dirty(); n != 0 {
		t.Fatalf("%d bytes are not on the mdisks yet", n)
	}
	for p := range pages {
		b := want[p*4096+p%8*512:][:512]
		fillStamp(b, 1<<40+p)
		mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(p*8+p%8, 1), Data: [][]byte{b}}))
	}
	return r, want
}

// holds verifies what the sectors of a volume hold.
func (r *rig) holds(name string, want []byte) {
	r.t.Helper()
	got := make([]byte, len(want))
	if s := r.do(r.a.Volume(name), &block.Request{Op: block.OpRead, Range: rng(0, uint64(len(want)/512)), Data: [][]byte{got}}); s != block.OK {
		r.t.Fatalf("reading ends %v", s)
	}
	for i := 0; i < len(want); i += 512 {
		if !bytes.Equal(got[i:i+512], want[i:i+512]) {
			r.t.Fatalf("sector %d holds %x, not %x", i/512, le.Uint64(got[i:]), le.Uint64(want[i:]))
		}
	}
}

// TestStartJoinsMorePagesThanAreFree: more addresses have two pages that count than pages are free. A start joins them all.
func TestStartJoinsMorePagesThanAreFree(t *testing.T) {
	r, want := twoPagesEach(t, 900) // of 2,048, and 256 that are between two owners
	r.crash()
	if rec := r.a.Recovery(); rec.BadSectors+rec.BadPages > 0 || rec.Pages != 900 {
		t.Errorf("recovery: %+v", rec)
	}
	r.holds("v", want)
	r.check()
}

// TestStartWithoutAFreePage: all pages count, and some have to be joined. The start gives up the older page of one address,
// the one that has least, and says so.
func TestStartWithoutAFreePage(t *testing.T) {
	var h *hungSync
	r := rigOver(t, Options{CacheBytes: 1 << 20}, func(under block.Store) block.Store { h = &hungSync{Store: under}; return h })
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "d", Size: 64 << 20}}}, 0)
	v := r.volume("v", "p", 16<<20, true)
	h.name = "d"
	const addresses = 200
	want := make([]byte, 512)
	for n := range uint64(addresses) {
		fillStamp(want, n+1)
		mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(n*8, 1), Data: [][]byte{want}}))
	}
	nv, older := r.a.cache.NV, uint64(0)
	for i := range uint32(nv.Pages) {
		d := nv.Descriptor(i)
		if d.Seq() != 0 && !d.Retired() {
			continue
		}
		// An older page with sectors that the newest one of its address does not have: as if they were destaged, and not synced.
		sectors := 3
		if older == 100 {
			sectors = 2
		}
		r.a.cache.SumSectors(i, 1, sectors)
		d.Seal(1, layout.KeyOf(0, physOf(t, v, older*8)), v.ID(), 1<<(sectors+1)-2, 0)
		older++
	}
	if older < 101 || older > addresses {
		t.Fatalf("%d pages of %d were left", older, nv.Pages)
	}
	r.crash()
	if rec := r.a.Recovery(); rec.BadSectors != 2 || rec.BadPages > 0 || rec.Pages != addresses {
		t.Errorf("recovery: %+v", rec)
	}
	got := make([]byte, 512)
	for n := range uint64(addresses) {
		mustOK(t, r.do(r.a.Volume("v"), &block.Request{Op: block.OpRead, Range: rng(n*8, 1), Data: [][]byte{got}}))
		if fillStamp(want, n+1); !bytes.Equal(got, want) {
			t.Fatalf("sector %d holds %x", n*8, le.Uint64(got))
		}
	}
	if rep := r.a.Check(true); rep.BadSectors != 2 || len(rep.Problems) != 2 {
		t.Errorf("check: %d bad sectors, %q", rep.BadSectors, rep.Problems)
	}
}

// hungFlush is a store whose NVRAM never ends a flush while on says so.
type hungFlush struct {
	block.Store
	on bool
}

type hungRegion struct {
	block.Region
	s *hungFlush
}

func (s *hungFlush) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	r, fresh, err := s.Store.Region(name, l)
	return hungRegion{r, s}, fresh, err
}

func (r hungRegion) Flush(done func(error)) {
	if !r.s.on {
		r.Region.Flush(done)
	}
}

// TestOnePageStaysFree: hosts write the same sectors again and again while no flush of NVRAM ends, which would free pages. One
// is left for a start.
func TestOnePageStaysFree(t *testing.T) {
	var h *hungFlush
	r := rigOver(t, Options{CacheBytes: 1 << 20}, func(under block.Store) block.Store { h = &hungFlush{Store: under}; return h })
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	h.on = true
	for n := range uint64(2 * r.a.cache.Pages()) {
		q := write(n%16*8, 8)
		q.Done = func(*block.Request) {}
		v.Submit([]*block.Request{q})
	}
	r.clock.RunUntil(r.clock.Now() + 1e9)
	if n := r.a.cache.Free(); n != 1 {
		t.Errorf("%d pages are free", n)
	}
}
