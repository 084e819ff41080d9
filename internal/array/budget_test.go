package array

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// offload returns a WRITE SAME of a pattern, which offloads' budgets are for.
func offload(host uint32, start, count uint64) *block.Request {
	return &block.Request{Op: block.OpWriteSame, Origin: block.OriginWriteSame, Host: host, Range: rng(start, count),
		Data: [][]byte{[]byte(strings.Repeat("x", 512))}}
}

// TestBudgetsAreTheirHosts: an offload waits for the budget of its own host only. What another host waits for
// neither holds it up nor lets it pass.
func TestBudgetsAreTheirHosts(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 64 << 20, Policy: Policy{Budget: Budget{HostPercent: 10, Pressure: true}}}, true)
	r.pool("p", slow(1<<20), 0)
	v := r.volume("v", "p", 1<<29, true)
	greedy := r.start(v, offload(1, 0, 64<<11)) // ten times its budget, a minute at the mdisk's speed
	if greedy() {
		t.Fatal("an offload of ten times its host's budget ended at once")
	}
	if other := r.start(v, offload(2, 200<<11, 1<<11)); !other() {
		t.Error("an offload of a host that holds nothing waits behind another host's")
	}
}

// TestBudgetIsFirstInFirstOut: who comes later, and needs less, does not overtake an offload that waits.
func TestBudgetIsFirstInFirstOut(t *testing.T) {
	for name, b := range map[string]Budget{"pool": {Percent: 10, Pressure: true}, "host": {HostPercent: 10, Pressure: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 32 << 20, Policy: Policy{Budget: b}}, true)
			r.pool("p", slow(1<<20), 0)
			v := r.volume("v", "p", 1<<29, true)
			r.start(v, offload(1, 0, 12*512))() // no more of 256 KiB fits
			// Short ones keep coming; each would fit into what is left or has become free.
			n, before, overtook := uint64(0), 0, -1
			long := offload(1, 64<<11, 512)
			long.Done = func(*block.Request) { overtook = before }
			v.Submit([]*block.Request{long})
			if r.clock.RunUntil(r.clock.Now()); overtook >= 0 {
				t.Fatal("the budget is not full")
			}
			var next func()
			next = func() {
				q := offload(1, 128<<11+n*8, 8)
				n++
				q.Done = func(*block.Request) { before++ }
				v.Submit([]*block.Request{q})
				if n < 4000 {
					r.clock.At(r.clock.Now()+2e6, next)
				}
			}
			r.clock.At(r.clock.Now(), next)
			r.clock.RunUntil(r.clock.Now() + 60e9)
			if overtook != 0 || before != 4000 {
				t.Errorf("%d short offloads overtook one that waited, and %d of 4000 ended", overtook, before)
			}
		})
	}
}

// TestHostsTakeTurnsInABudget: of a pool's budget, a host with one offload gets its part beside one with many.
func TestHostsTakeTurnsInABudget(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 64 << 20, Policy: Policy{Budget: Budget{Percent: 10, Pressure: true}}}, true)
	r.pool("p", slow(1<<20), 0)
	v := r.volume("v", "p", 1<<29, true)
	for i := range uint64(100) {
		r.start(v, offload(1, i<<11, 512))
	}
	began := r.clock.Now()
	one := r.start(v, offload(2, 200<<11, 512))
	for !one() {
		r.clock.RunUntil(r.clock.Now() + 1e8)
	}
	if took := r.clock.Now() - began; took > 3e9 {
		t.Errorf("the only offload of its host took %.1f s behind 25 MiB of another's, at 1 MiB/s", float64(took)/1e9)
	}
}

// TestBudgetOfAFailingMdisk: an offload that waits for its budget ends in time when the mdisk fails that should make
// room.
func TestBudgetOfAFailingMdisk(t *testing.T) {
	r, s := stuckRig(t, Options{CacheBytes: 4 << 20, Policy: Policy{Budget: Budget{Percent: 25, HostPercent: 25, Pressure: true}}})
	r.pool("p", slow(0), 0)
	v := r.volume("v", "p", 1<<29, true)
	s.stuck = true
	began := r.clock.Now()
	q := offload(1, 0, 8<<11)
	ended := r.start(v, q)
	for !ended() && r.clock.Now() < began+120e9 {
		r.clock.RunUntil(r.clock.Now() + 1e9)
	}
	if took := r.clock.Now() - began; !ended() || q.Status != block.MediumWrite || took > patience+5e9 {
		t.Errorf("ended: %v with %v, after %d s", ended(), q.Status, took/1e9)
	}
	s.answer()
	r.clock.RunUntil(r.clock.Now() + 60e9)
	mustOK(t, r.do(v, offload(1, 0, 8<<11)))
	r.check()
}
