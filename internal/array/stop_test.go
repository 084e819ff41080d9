package array

import (
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// delayed has mdisks that take 30 ms for whatever they are given, and may fail.
type delayed struct {
	r     *rig
	out   int   // transfers under way
	given int   // all of them
	fail  error // of writes
}

func delayedRig(t *testing.T) *delayed {
	d := &delayed{}
	d.r = hookedRig(t, Options{CacheBytes: 16 << 20}, func(m block.Medium, ios []*block.IO) {
		for _, io := range ios {
			d.out++
			d.given++
			done := io.Done
			io.Done = func(io *block.IO) {
				d.out--
				io.Done = done
				if io.Write {
					io.Err = errors.Join(io.Err, d.fail)
				}
				done(io)
			}
		}
		list := append([]*block.IO(nil), ios...)
		block.Call(d.r.clock, d.r.clock.Now()+30e6, func() { m.Submit(list) })
	})
	return d
}

// TestStopEndsTheDestager: when an array that destages has stopped, nothing is under way at its mdisks, and
// nothing comes any more: no destage, none of those again that have failed, no sync.
func TestStopEndsTheDestager(t *testing.T) {
	for name, fail := range map[string]error{"well": nil, "failing": errors.New("input/output error")} {
		t.Run(name, func(t *testing.T) {
			d := delayedRig(t)
			r := d.r
			r.pool("p", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 32<<20, true)
			for i := range uint64(64) {
				mustOK(t, r.do(v, write(i*256, 64)))
			}
			d.fail = fail
			r.a.Drain(func() {})
			for step := 0; d.out == 0 && step < 1e6; step++ {
				r.clock.Step()
			}
			if d.out == 0 {
				t.Fatal("nothing is destaged")
			}
			r.clock.RunUntil(r.clock.Now() + 50e6)
			stopped := false
			r.a.Stop(func(error) {
				stopped = true
				if d.out != 0 {
					t.Errorf("it has stopped with %d transfers under way", d.out)
				}
				d.given = 0
			})
			r.clock.RunUntil(r.clock.Now() + 120e9)
			if !stopped || d.given != 0 {
				t.Errorf("stopped: %v, and %d transfers came behind", stopped, d.given)
			}
		})
	}
}
