package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestWhatIsGoneNeedNotSettle: a pool at rest lets its dirty data settle. While that goes on, most of it is discarded or
// written over; what is written then waits for rest like any other.
func TestWhatIsGoneNeedNotSettle(t *testing.T) {
	for _, order := range []DestageOrder{DestageRoundRobin, DestageLRU} {
		for name, gone := range map[string]func(n uint64) *block.Request{
			"discarded": func(n uint64) *block.Request {
				return &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, n)}}
			},
			"written over": func(n uint64) *block.Request { return write(0, n) },
		} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, Options{CacheBytes: 64 << 20, Policy: Policy{Order: order}}, true)
				r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 30, Bandwidth: 8 << 20}}}, 0)
				v := r.volume("v", "p", 1<<30, true)
				w := r.volume("w", "p", 1<<30, true)
				mustOK(t, r.do(v, write(0, 8<<11))) // a second of the mdisk's time
				for r.a.Dirty() > 7<<20 && r.clock.Step() {
				}
				mustOK(t, r.do(v, gone(8<<11)))
				mustOK(t, r.do(w, write(0, 4<<11)))
				for range 10 { // the pool is not at rest
					r.clock.RunUntil(r.clock.Now() + 2e8)
					mustOK(t, r.do(w, write(0, 8)))
				}
				if got := w.Stats().Destaged[block.OriginHost]; got != 0 {
					t.Errorf("%d bytes went out that came after", got)
				}
				if got := w.Stats().Dirty; got != 4<<20 {
					t.Errorf("%d bytes are dirty", got)
				}
				r.clock.RunUntil(r.clock.Now() + 5e9)
				if d := r.a.Dirty(); d != 0 {
					t.Errorf("%d bytes are dirty after a rest", d)
				}
				r.check()
			})
		}
	}
}
