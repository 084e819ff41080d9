package array

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// comb is an UNMAP of every other window, with that many ranges.
func comb(ranges int) *block.Request {
	q := &block.Request{Op: block.OpUnmap, Done: func(*block.Request) {}}
	for i := range ranges {
		q.Ranges = append(q.Ranges, rng(uint64(2*i)*windowSectors, windowSectors))
	}
	return q
}

// TestCommandsOfSeveralRecordsKeepTheLogWhole submits commands faster than checkpoints end, until the log has no
// room, and kills the array after each: it starts again, and a command of several records was done whole or not at all.
func TestCommandsOfSeveralRecordsKeepTheLogWhole(t *testing.T) {
	for _, most := range []int{1, 300, 511, 513, 1024} {
		for small := range 4 {
			t.Run(fmt.Sprintf("ranges=%d/writes=%d", most, 100*small), func(t *testing.T) {
				r := newRig(t, Options{CacheBytes: 8 << 20, LogBytes: 64 << 10}, false)
				r.pool("p", PoolSpec{}, 256<<20)
				v := r.volume("v", "p", 128<<20, true)
				for i := range uint64(100 * small) {
					q := write(i*windowSectors, 1)
					q.Done = func(*block.Request) {}
					v.Submit([]*block.Request{q})
				}
				live := r.a
				for range 8 {
					v.Submit([]*block.Request{comb(most)})
					clock, store := r.clock, r.store
					r.store = store.Clone(clock)
					r.crash()
					r.check()
					r.clock, r.store = clock, store // the array that was not killed goes on
				}
				r.a = live
				ended := 0
				for range 4 {
					q := comb(most)
					q.Done = func(q *block.Request) { mustOK(t, q.Status); ended++ }
					v.Submit([]*block.Request{q})
				}
				r.clock.Run()
				if ended != 4 {
					t.Errorf("%d of 4 commands ended", ended)
				}
				r.check()
				r.crash()
				r.check()
			})
		}
	}
}

// A record that is larger than what a checkpoint has freed gets the next one.
func TestLogWaiterStartsCheckpoint(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 8 << 20, LogBytes: 64 << 10}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 1<<30, true)
	submit := func(ranges int) *block.Request {
		q := &block.Request{Op: block.OpUnmap, Done: func(*block.Request) {}, Status: block.Gone}
		for i := range uint64(ranges) {
			q.Ranges = append(q.Ranges, rng(2*i, 1))
		}
		v.Submit([]*block.Request{q})
		return q
	}
	mustOK(t, r.do(v, write(0, 8)))
	r.a.checkpoint(true)
	r.clock.Run()
	var all []*block.Request
	for _, n := range []int{440, 440, 1300, 440, 440} {
		all = append(all, submit(n))
	}
	r.clock.RunUntil(r.clock.Now() + 60e9)
	for i, q := range all {
		if q.Status != block.OK {
			t.Errorf("unmap %d: %v; the log has %d of %d bytes in use", i, q.Status, r.a.log.Used(), r.a.log.Size())
		}
	}
}
