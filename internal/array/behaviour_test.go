package array

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// slow is a pool with one mdisk of so many bytes a second.
func slow(bandwidth uint64) PoolSpec {
	return PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 1 << 30, Bandwidth: bandwidth}}}
}

// start submits a request and returns a function that tells whether it has ended.
func (r *rig) start(v *Volume, q *block.Request) func() bool {
	done := false
	q.Done = func(*block.Request) { done = true }
	v.Submit([]*block.Request{q})
	return func() bool {
		r.clock.RunUntil(r.clock.Now())
		return done
	}
}

// zeros is memory that nobody can write to: requests share it, and none of them clears its own.
var zeros = sync.OnceValue(func() []byte {
	b, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return b
})

// write is a WRITE of zeros. Whoever writes something else takes a buffer of his own.
func write(start, count uint64) *block.Request {
	return &block.Request{Op: block.OpWrite, Range: rng(start, count), Data: [][]byte{zeros()[: count*512 : count*512]}}
}

func TestCapsByNumberOfPools(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 100 * 4096 * 10}, false)
	for n, percent := range []int{100, 66, 40, 30, 25, 25} {
		r.pool(fmt.Sprintf("p%d", n), slow(0), 0)
		for _, p := range r.a.Pools() {
			if got, want := p.Stats().CacheLimit, uint64(percent*10*4096); got != want {
				t.Errorf("%d pools: the cap of %s is %d, not %d", n+1, p.Name(), got, want)
			}
		}
	}
}

func TestFullPartitionAdmitsOneOutOneIn(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 4 << 20}, false)
	a := r.pool("a", slow(1<<20), 0)
	r.pool("b", slow(1<<20), 0)
	v, w := r.volume("v", "a", 64<<20, true), r.volume("w", "b", 64<<20, true)
	limit := uint64(a.Part.Limit()) * 4096
	q := write(0, 16<<20/512)
	ended := r.start(v, q)
	if ended() {
		t.Fatal("16 MiB went into a partition that is smaller")
	}
	if got := uint64(a.Part.Room.Used()) * 4096; got > limit || got < limit-256<<10 {
		t.Errorf("the full partition holds %d of %d", got, limit)
	}
	small := r.start(v, write(60<<11, 8))
	other := r.start(w, write(0, 8))
	if small() {
		t.Error("a write of the full pool overtook those that wait")
	}
	if !other() {
		t.Error("a write of another pool waits for the full one")
	}
	from := r.clock.Now()
	for !ended() {
		r.clock.RunUntil(r.clock.Now() + 1e8)
		if got := uint64(a.Part.Room.Used()) * 4096; got > limit {
			t.Fatalf("the partition holds %d of %d", got, limit)
		}
	}
	// What did not fit left at the speed of the mdisk.
	want := float64(16<<20-limit) / (1 << 20)
	if took := float64(r.clock.Now()-from) / 1e9; took < want*0.9 || took > want*1.2 {
		t.Errorf("16 MiB took %.1f s, at 1 MiB/s it should be %.1f", took, want)
	}
	if _, n, _ := a.Waits(block.OriginHost); n == 0 {
		t.Error("the wait was not counted")
	}
	r.check()
}

func TestGlobalLimitHoldsWhenCapsOvercommit(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 4 << 20}, false)
	r.pool("a", slow(1<<20), 0)
	r.pool("b", slow(1<<20), 0)
	v, w := r.volume("v", "a", 64<<20, true), r.volume("w", "b", 64<<20, true)
	r.start(v, write(0, 8<<11))()
	r.start(w, write(0, 8<<11))()
	if used := r.a.cache.Room().Used() * 4096; used > 4<<20 || used < 4<<20-512<<10 {
		t.Errorf("two pools of 66 %% hold %d of %d bytes", used, 4<<20)
	}
	r.clock.Run()
	r.check()
}

func TestOutOfSpaceIsRefusedAtAdmission(t *testing.T) {
	r := newRig(t, Options{}, false)
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 8 << 20}}}, 0)
	thick := r.volume("thick", "p", 4<<20, false)
	thin := r.volume("thin", "p", 1<<30, true)
	got := block.OK
	at := uint64(0)
	for ; got == block.OK; at += 128 {
		got = r.do(thin, write(at, 8))
	}
	if got != block.NoSpace || at != 65*128 {
		t.Errorf("write %d of the thin volume ended %v; half of the pool is the thick one's", at/128, got)
	}
	for s := uint64(0); s < 4<<11; s += 128 {
		if got := r.do(thick, write(s, 8)); got != block.OK {
			t.Fatalf("the thick volume's window %d: %v", s/128, got)
		}
	}
	if p.Alloc.Reserved() != 0 || p.Alloc.Allocated() != p.Alloc.Grains() {
		t.Errorf("%d grains are reserved and %d of %d allocated", p.Alloc.Reserved(), p.Alloc.Allocated(), p.Alloc.Grains())
	}
	// Space that is given back can be used at once.
	mustOK(t, r.do(thin, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 1<<21)}}))
	mustOK(t, r.do(thin, write(1<<20, 8)))
	r.clock.Run()
	r.check()
	var err error
	r.a.CreateVolume(VolumeSpec{Name: "more", Pool: "p", Sectors: 8 << 11}, func(_ *Volume, e error) { err = e })
	r.clock.Run()
	if err == nil || !strings.Contains(err.Error(), "free") {
		t.Errorf("a thick volume larger than what is free: %v", err)
	}
}

func TestDiscardOfDirtyDataIsNotDestaged(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", slow(0), 0)
	v := r.volume("v", "p", 64<<20, true)
	r.do(v, write(0, 1<<11))
	r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 1<<11)})
	r.clock.Run()
	row := flowOf(v, block.OriginHost)
	if row.Discarded != 1<<20 || row.Destaged != 0 {
		t.Errorf("1 MiB was zeroed while dirty: %d discarded, %d destaged", row.Discarded, row.Destaged)
	}
	if row := flowOf(v, block.OriginWriteSame); row.In() != 0 {
		t.Errorf("a WRITE SAME of zeros admitted %d bytes", row.In())
	}
	r.check()
}

func TestDataCopyIsUndercover(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 4 << 20}, false)
	p := r.pool("p", slow(2<<20), 0)
	r.pool("fast", slow(0), 0)
	v, w := r.volume("v", "fast", 64<<20, true), r.volume("w", "p", 64<<20, true)
	r.do(v, write(0, 16<<11))
	r.clock.Run()
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 16<<11)}}
	r.do(v, h)
	q := &block.Request{Op: block.OpPlace, Range: rng(0, 16<<11), Ref: h.Ref, Origin: block.OriginXCopy}
	ended := r.start(w, q)
	r.clock.RunUntil(r.clock.Now() + 3e9)
	if share := float64(w.Cached.Dirty()) / float64(p.Part.Limit()*4096); share < 0.9 {
		t.Errorf("the copy's target holds %.0f %% of the partition", share*100)
	}
	if n := p.InFlight(block.OriginXCopy); n != int64(r.a.opt.Policy.CopyPieces)*pieceSectors*512 {
		t.Errorf("%d bytes are under way, all pieces should be", n)
	}
	r.clock.Run()
	if n := p.InFlight(block.OriginXCopy); n != 0 {
		t.Errorf("%d bytes are under way when nothing is", n)
	}
	if !ended() || q.Status != block.OK {
		t.Fatalf("the copy ended %v", q.Status)
	}
	h.Ref.Release()
	if got := flowOf(w, block.OriginXCopy).Fast; got != 16<<20 {
		t.Errorf("%d bytes were admitted for the copy, not 16 MiB", got)
	}
	if got := flowOf(w, block.OriginHost).In(); got != 0 {
		t.Errorf("the target has %d bytes of hosts", got)
	}
	r.check()
}

// TestOffloadsByPrimitive: zeros are counted for the command that wrote them, a WRITE SAME or a WRITE USING TOKEN.
func TestOffloadsByPrimitive(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 1<<20, true)
	mustOK(t, r.do(v, from(block.OriginWriteSame, &block.Request{Op: block.OpWriteSame, Range: rng(0, 8)})))
	mustOK(t, r.do(v, from(block.OriginODX, &block.Request{Op: block.OpWriteSame, Range: rng(0, 16)})))
	mustOK(t, r.do(v, from(block.OriginUnmap, unmap(0, rng(0, 32)))))
	got := map[string]float64{}
	var s metrics.Snapshot
	s.Take(0, &sync.Mutex{}, r.a)
	s.Each(func(f *metrics.Family, labels []string, v float64, _ *metrics.Histogram) {
		if f == metrics.OffloadBytes {
			got[labels[0]] += v
		}
	})
	if want := map[string]float64{"write_same": 8 * 512, "odx": 16 * 512, "unmap": 32 * 512}; !maps.Equal(got, want) {
		t.Errorf("%v are counted, not %v", got, want)
	}
}

// TestSeriesOfADeletedVolume: they end when the deletion is durable and nothing of it is dirty any more.
func TestSeriesOfADeletedVolume(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 1<<20, true)
	mustOK(t, r.do(v, write(0, 100)))
	series := func() (n int) {
		var s metrics.Snapshot
		s.Take(0, &sync.Mutex{}, r.a)
		s.Each(func(f *metrics.Family, labels []string, _ float64, _ *metrics.Histogram) {
			if i := slices.Index(f.Labels, "volume"); i >= 0 && labels[i] == "v" {
				n++
			}
		})
		return n
	}
	if series() == 0 {
		t.Fatal("the volume has no series")
	}
	r.a.DeleteVolume(v, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.clock.Run()
	if n := series(); n != 0 {
		t.Errorf("%d series are left of the deleted volume", n)
	}
	r.check()
}

func TestLargestVolume(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", slow(0), 0)
	v := r.volume("v", "p", MaxVolumeBytes, true)
	last := uint64(MaxVolumeBytes/512 - 8)
	mustOK(t, r.do(v, write(last, 8)))
	mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(1000, last-1000)}))
	if n := entriesOf(v); n != 3 {
		t.Errorf("unmapped, zero, data are %d entries", n)
	}
	if got := r.do(v, write(last+1, 8)); got != block.OutOfRange {
		t.Errorf("a write behind the end ended %v", got)
	}
	r.crash()
	r.check()
	if n := entriesOf(r.a.Volume("v")); n != 3 {
		t.Errorf("after a restart there are %d entries", n)
	}
}

func TestResizeAndDelete(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", slow(0), 0)
	v := r.volume("v", "p", 20<<20, true)
	data := bytes.Repeat([]byte{7}, 20<<20)
	mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(0, 20<<11), Data: [][]byte{data}}))
	for _, mib := range []uint64{10, 40, 5000, 10, 20} {
		var err error
		r.a.Resize(v, mib<<11, func(e error) { err = e })
		r.clock.Run()
		if err != nil {
			t.Fatal(err)
		}
		r.check()
	}
	r.crash()
	v = r.a.Volume("v")
	got := make([]byte, 20<<20)
	mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 20<<11), Data: [][]byte{got}}))
	if !bytes.Equal(got[:10<<20], data[:10<<20]) || !bytes.Equal(got[10<<20:], make([]byte, 10<<20)) {
		t.Error("what was cut off came back, or what was kept is gone")
	}
	var err error
	r.a.DeleteVolume(v, func(e error) { err = e })
	r.clock.Run()
	p := r.a.Pool("p")
	if err != nil || p.Alloc.Allocated() != 0 || r.a.Volume("v") != nil {
		t.Errorf("after the volume is deleted (%v) %d grains are allocated", err, p.Alloc.Allocated())
	}
	r.crash()
	r.check()
	r.clock.Run() // what was not removed is collected after the start
	if r.a.arena.Nodes() != 0 {
		t.Errorf("%d map pages are left of a deleted volume", r.a.arena.Nodes())
	}
}

// told makes a text of all samples.
func told(a *Array) string {
	var b strings.Builder
	var s metrics.Snapshot
	s.Take(0, &sync.Mutex{}, a)
	s.Each(func(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
		fmt.Fprintln(&b, f.Name, labels, v)
		if h != nil {
			fmt.Fprintln(&b, *h)
		}
	})
	return b.String()
}

func TestSameSeedSameCounters(t *testing.T) {
	run := func() string {
		rnd := rand.New(rand.NewPCG(42, 42))
		r := newRig(t, Options{CacheBytes: 1 << 20}, false)
		r.pool("a", slow(10<<20), 0)
		r.pool("b", slow(20<<20), 0)
		vols := []*Volume{r.volume("v", "a", 64<<20, true), r.volume("w", "b", 64<<20, true)}
		for range 500 {
			r.start(vols[rnd.IntN(2)], write(rnd.Uint64N(100000), 1+rnd.Uint64N(300)))
			r.clock.RunUntil(r.clock.Now() + rnd.Int64N(1e7))
		}
		before := told(r.a)
		r.clock.Run()
		return before + told(r.a)
	}
	if first, second := run(), run(); first != second {
		t.Error("two runs with one seed have different counters")
	}
}

// The sums of a volume that ends within a window count nothing behind its end.
func TestSumsOfOddSize(t *testing.T) {
	for _, sectors := range []uint64{1000, 8, 128*256*3 + 8} {
		r, _ := spaceRig(t, 128)
		v := r.volume("v", "p", sectors*512, true)
		mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(0, sectors)}))
		mustOK(t, r.do(v, write(sectors-8, 4)))
		b := v.Stats()
		if b.Mapped+b.Zero != sectors*512 || b.Unmapped != 0 || b.Mapped == 0 {
			t.Errorf("%d sectors: mapped %d bytes, zero %d, unmapped %d", sectors, b.Mapped, b.Zero, b.Unmapped)
		}
	}
}
