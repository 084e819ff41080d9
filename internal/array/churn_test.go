package array

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/testkit"
)

// hostBytes returns what the cache has taken of a volume from hosts.
func hostBytes(v *Volume) uint64 { return v.Stats().Admitted[block.OriginHost] }

// TestVolumesComeAndGo makes and deletes 10,000 volumes in an array whose NVRAM has room for the counters of a hundred:
// those that stay are counted to the byte, over crashes, too, and check finds nothing that is not there.
func TestVolumesComeAndGo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	r := newRig(t, Options{CounterRows: 512}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	r.pool("q", PoolSpec{CopyData: true}, 64<<20)
	stay := r.volume("stay", "p", 1<<20, true)
	want, zeroed := uint64(0), uint64(0)
	for i := range 10_000 {
		name := fmt.Sprintf("v%d", i)
		v := r.volume(name, []string{"p", "q"}[i%2], 1<<20, i%5 > 0)
		mustOK(t, r.do(v, write(rnd.Uint64N(1000), 1+rnd.Uint64N(100))))
		if i%3 == 0 {
			mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 512)}))
			zeroed += 512 * 512
		}
		if i%7 == 0 { // what is dirty of v is shared, and outlives it
			h := r.holdOf(v, rng(0, 500))
			mustOK(t, r.do(stay, &block.Request{Op: block.OpPlace, Range: rng(1000, 500), Ref: h, Origin: block.OriginXCopy}))
			h.Release()
		}
		n := 1 + rnd.Uint64N(50)
		mustOK(t, r.do(stay, write(rnd.Uint64N(900), n)))
		want += n * 512
		r.a.DeleteVolume(v, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
		r.clock.Step()
		if rnd.IntN(4) == 0 {
			r.clock.RunUntil(r.clock.Now() + rnd.Int64N(2e9))
		}
		if i == 9998 {
			r.clock.Run()
			left := 0
			for _, v := range r.a.set.Vols {
				if v != nil {
					left++
				}
			}
			if left != 1 {
				t.Errorf("%d of %d volumes still take memory", left, i+1)
			}
		}
		if i%1000 == 999 {
			r.clock.RunUntil(r.clock.Now() + 1e8)
			r.crash()
			stay = r.a.Volume("stay")
		}
		if i%100 == 0 || i%1000 == 999 {
			r.check()
			if got := hostBytes(stay); got != want {
				t.Fatalf("after %d volumes %d bytes of the one that stays are counted, not %d", i+1, got, want)
			}
			if got := zeroedBytes(r.a); got != zeroed {
				t.Fatalf("after %d volumes %d bytes of WRITE SAME are counted, not %d", i+1, got, zeroed)
			}
		}
	}
	r.clock.Run()
	r.check()
	if n := len(r.a.Volumes()); n != 1 {
		t.Errorf("%d volumes are left", n)
	}
	late := r.volume("late", "p", 1<<20, true)
	mustOK(t, r.do(late, write(0, 100)))
	r.crash()
	r.check()
	if got := hostBytes(r.a.Volume("late")); got != 100*512 {
		t.Errorf("of a new volume a crash leaves %d bytes, not %d", got, 100*512)
	}
}

// zeroedBytes returns what WRITE SAME has zeroed in all pools, as the metrics say.
func zeroedBytes(a *Array) (n uint64) {
	var s metrics.Snapshot
	s.Take(0, &sync.Mutex{}, a)
	s.Each(func(f *metrics.Family, labels []string, v float64, _ *metrics.Histogram) {
		if f == metrics.OffloadBytes && labels[0] == "write_same" {
			n += uint64(v)
		}
	})
	return n
}

// TestMoreVolumesThanCounters: each of more volumes than NVRAM has counters for is counted alone. A crash forgets what NVRAM had
// no room for, and check finds nothing that is not there.
func TestMoreVolumesThanCounters(t *testing.T) {
	r := newRig(t, Options{CounterRows: 64}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	var vols []*Volume
	for i := range uint64(200) {
		v := r.volume(fmt.Sprintf("v%d", i), "p", 1<<20, true)
		vols = append(vols, v)
		mustOK(t, r.do(v, write(0, 1+i)))
		mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(1000, 1)}))
	}
	if got := zeroedBytes(r.a); got != 200*512 {
		t.Errorf("%d bytes of WRITE SAME are counted, not %d", got, 200*512)
	}
	for i, v := range vols {
		if got, want := hostBytes(v), uint64(1+i)*512; got != want {
			t.Errorf("volume %d: %d bytes are counted, not %d", i, got, want)
		}
	}
	r.check()
	kept := 0
	r.crash()
	r.check()
	for i := range vols {
		v := r.a.Volume(fmt.Sprintf("v%d", i))
		switch got := hostBytes(v); got {
		case uint64(1+i) * 512:
			kept++
		case 0:
		default:
			t.Errorf("volume %d: %d bytes are counted after a crash", i, got)
		}
		mustOK(t, r.do(v, write(uint64(i), 3)))
	}
	if kept < 15 {
		t.Errorf("of %d volumes only the counters survived", kept)
	}
	r.clock.Run()
	r.check()
	r.crash()
	r.check()
}
