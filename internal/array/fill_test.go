package array

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// TestFillTakesNoMoreRoom: what overwrites dirty data is admitted to room that it gives back in the same
// step. Where its data gets into NVRAM before that, it would have both for a while: many such writes would
// take all free pages.
func TestFillTakesNoMoreRoom(t *testing.T) {
	l := newLives(t, Policy{DestageDepth: 1}, 4<<20, func(*request.Engine) {})
	l.quiet()
	p := l.v.Pool().Part
	n := uint64(0)
	for p.Room.Used()+64 <= p.Limit() && n < 14 {
		l.submit(l.v, write(n*512, 512))
		n++
	}
	used, free := p.Room.Used(), l.a.cache.Free()
	if used+2*64 > p.Limit() || used+64*int(n) <= p.Limit() {
		t.Fatalf("%d of %d pages are used by %d writes: nothing is shown", used, p.Limit(), n)
	}
	l.late()
	for i := range n {
		l.submit(l.v, write((n-1-i)*512, 512))
		if p.Room.Used() > p.Limit() || l.a.cache.Free() < free-(p.Limit()-used) {
			t.Fatalf("%d pages of %d are used, %d are free", p.Room.Used(), p.Limit(), l.a.cache.Free())
		}
	}
	l.clock.RunUntil(l.clock.Now() + 1e6)
	if got := p.Room.Used(); got != used || l.a.cache.Free() != free {
		t.Errorf("%d pages are used and %d free, %d and %d before", got, l.a.cache.Free(), used, free)
	}
}

// TestFillKeepsOrder: writes that come at one time are let in in the order in which they came, of one piece or of
// several, whether their data gets into NVRAM at once or beside the core.
func TestFillKeepsOrder(t *testing.T) {
	for _, sectors := range []uint64{512, 2048} {
		for _, late := range []int64{0, 20_000} {
			var r *rig
			free := int64(0)
			r = hookedRig(t, Options{CacheBytes: 4 << 20, LogBytes: 64 << 10}, func(m block.Medium, ios []*block.IO) {
				for _, io := range ios {
					free = max(free, r.clock.Now()) + 1_000_000
					r.clock.Call(free, func() { m.Submit([]*block.IO{io}) })
				}
			})
			r.pool("p", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 32<<20, true)
			if late > 0 {
				r.clock.Late = func() int64 { return late }
			}
			var ended []int
			for i := range 24 {
				q := write(uint64(i)*2048, sectors)
				q.Done = func(*block.Request) { ended = append(ended, i) }
				v.Submit([]*block.Request{q})
			}
			r.clock.RunUntil(r.clock.Now() + 60e9)
			if !slices.IsSorted(ended) {
				t.Errorf("%d KiB, late %d: they end in the order %v", sectors/2, late, ended)
			}
			if len(ended) != 24 {
				t.Errorf("%d of 24 have ended", len(ended))
			}
		}
	}
}
