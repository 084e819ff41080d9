package array

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// stream is writes of 64 KiB to a volume, each behind the one before.
type stream struct {
	r     *rig
	v     *Volume
	at    uint64
	took  []int64 // how long each that ended took
	ended func()  // one has ended; nil: nobody cares
}

// payload is what streams write: nobody reads it back, and millions of writes are not worth memory each.
var payload = make([]byte, 64<<10)

func (s *stream) write() {
	const size = 128
	from, q := s.r.clock.Now(), &block.Request{Op: block.OpWrite, Range: rng(s.at, size), Data: [][]byte{payload}}
	s.at = (s.at + size) % (s.v.Info().Sectors - size)
	q.Done = func(q *block.Request) {
		mustOK(s.r.t, q.Status)
		s.took = append(s.took, s.r.clock.Now()-from)
		if s.ended != nil {
			s.ended()
		}
	}
	s.v.Submit([]*block.Request{q})
}

// saturate keeps so many writes outstanding.
func saturate(r *rig, v *Volume, outstanding int) *stream {
	s := &stream{r: r, v: v}
	s.ended = s.write
	for range outstanding {
		s.write()
	}
	return s
}

// paced writes every interval, whatever became of those before.
func paced(r *rig, v *Volume, interval int64) *stream {
	s := &stream{r: r, v: v}
	var next func()
	next = func() {
		from := r.clock.Now()
		s.write()
		r.clock.At(from+interval, next)
	}
	next()
	return s
}

// worst is how long the longest took.
func (s *stream) worst() int64 { return slices.Max(append([]int64{0}, s.took...)) }

// TestEveryPoolIsAdmitted: whatever caps add up to, a pool that asks for little waits for
// nobody, and of what comes free each of the others gets its part.
func TestEveryPoolIsAdmitted(t *testing.T) {
	for _, caps := range [][]int{nil, {100}} {
		for _, pools := range []int{2, 5, 16, 64} {
			t.Run(fmt.Sprintf("caps=%v/%d", caps, pools), func(t *testing.T) {
				const speed = 4 << 20
				// The more pools, the sooner the cache is full, and the more a second costs.
				full, measured := int64(70), int64(30)
				if pools == 64 {
					full, measured = 20, 10
				}
				r := newRig(t, Options{CacheBytes: 256 << 20, CapPercent: caps}, true)
				var busy []*Volume
				for i := range pools - 1 {
					name := fmt.Sprintf("p%d", i)
					r.pool(name, PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 2 << 30, Bandwidth: speed}}}, 0)
					busy = append(busy, r.volume("v"+name, name, 1<<30, true))
				}
				r.pool("polite", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 2 << 30}}}, 0)
				polite := r.volume("polite", "polite", 1<<30, true)
				var others []*stream
				for _, v := range busy {
					others = append(others, saturate(r, v, 64))
				}
				r.clock.RunUntil(r.clock.Now() + full*1e9)
				used, allowed := uint64(0), uint64(0)
				for _, v := range busy {
					used, allowed = used+v.Pool().Stats().CacheUsed, allowed+v.Pool().Stats().CacheLimit
				}
				if used < min(allowed, 256<<20)*95/100 {
					t.Errorf("%d saturated pools have %d bytes of the cache: not all that caps allow is full", pools-1, used)
				}
				for _, x := range others {
					x.took = x.took[:0]
				}
				mine := paced(r, polite, 10e6)
				r.clock.RunUntil(r.clock.Now() + measured*1e9)
				if n := len(mine.took); int64(n) < measured*100-1 || mine.worst() > 1e6 {
					t.Errorf("beside %d saturated pools %d of %d writes ended, the longest took %.3f ms", pools-1, n, measured*100, float64(mine.worst())/1e6)
				}
				for i, x := range others {
					// 64 writes outstanding at the speed of the mdisk are a second.
					if n := int64(len(x.took)); n < measured*speed/(64<<10)*9/10 || x.worst() > 3e9 {
						t.Errorf("saturated pool %d: %d writes of 64 KiB in %d s at 4 MiB/s, the longest took %.3f s", i, n, measured, float64(x.worst())/1e9)
					}
				}
				t.Logf("the polite pool's longest write took %.3f ms", float64(mine.worst())/1e6)
			})
		}
	}
}

// TestWriteThroughIsShared: without a mirror all writes go through the reserve, and no pool has all of it.
func TestWriteThroughIsShared(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 64 << 20}, true)
	var busy []*Volume
	for i := range 4 {
		name := fmt.Sprintf("p%d", i)
		r.pool(name, slow(4<<20), 0)
		busy = append(busy, r.volume("v"+name, name, 1<<29, true))
	}
	r.pool("polite", slow(0), 0)
	v := r.volume("polite", "polite", 1<<29, true)
	r.a.SetMirrored(false)
	for _, x := range busy {
		saturate(r, x, 64)
	}
	r.clock.RunUntil(r.clock.Now() + 30e9)
	mine := paced(r, v, 10e6)
	r.clock.RunUntil(r.clock.Now() + 5e9)
	if n := len(mine.took); n < 499 || mine.worst() > 50e6 {
		t.Errorf("%d of 500 writes ended, the longest took %.3f ms", n, float64(mine.worst())/1e6)
	}
}

// TestPoolsThatHoldALotGoOn: a pool that filled the cache while it was alone waits for its turn, not until it
// has fallen to the share of those that came later.
func TestPoolsThatHoldALotGoOn(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 256 << 20, CapPercent: []int{100}}, true)
	var all []*Volume
	for i := range 6 {
		name := fmt.Sprintf("p%d", i)
		r.pool(name, PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 2 << 30, Bandwidth: 8 << 20}}}, 0)
		all = append(all, r.volume("v"+name, name, 1<<30, true))
	}
	var ended []*stream
	for i, v := range all {
		if ended = append(ended, saturate(r, v, 64)); i == 0 {
			r.clock.RunUntil(r.clock.Now() + 5e9)
		}
	}
	r.clock.RunUntil(r.clock.Now() + 60e9)
	for i, x := range ended {
		if w := x.worst(); w > 6e9 || len(x.took) < 55*128 {
			t.Errorf("pool %d: %d writes ended, the longest took %.3f s", i, len(x.took), float64(w)/1e9)
		}
	}
	r.check()
}
