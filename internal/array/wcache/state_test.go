package wcache

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/block"
)

// TestTableOfTransitions tries every change of state: those of the table work, the others are
// faults. From every state a page can become free, and every state can be reached.
func TestTableOfTransitions(t *testing.T) {
	try := func(from, to State) (ok bool) {
		defer func() { ok = recover() == nil }()
		p := page{state: from}
		p.to(to)
		return p.state == to
	}
	var reach [numStates][numStates]bool
	for from := range numStates {
		for to := range numStates {
			allowed := transitions[to]>>from&1 != 0
			if got := try(from, to); got != allowed {
				t.Errorf("from %s to %s: %v, the table says %v", from, to, got, allowed)
			}
			reach[from][to] = allowed
		}
	}
	for via := range numStates {
		for from := range numStates {
			for to := range numStates {
				reach[from][to] = reach[from][to] || reach[from][via] && reach[via][to]
			}
		}
	}
	for s := range numStates {
		if !reach[Free][s] || !reach[s][Free] {
			t.Errorf("%s: from free %v, to free %v", s, reach[Free][s], reach[s][Free])
		}
		if s.Dirty() != (s >= Behind && s <= Pinned) || s.held() != (s >= Behind && s <= Rewriting) {
			t.Errorf("%s: dirty %v, held %v", s, s.Dirty(), s.held())
		}
	}
}

// TestEveryTransitionHappens walks the table: for each change there is a way to cause it, and what
// the ways cause is in the table. Free to Behind and on to a list is one call.
func TestEveryTransitionHappens(t *testing.T) {
	seen := map[[2]State]bool{}
	host := block.OriginHost
	walk := func(pol Policy, payload bool, steps func(r *rig)) {
		r := newRig(t, rand.New(rand.NewPCG(1, 1)), payload, pol)
		steps(r)
		r.check()
		for pair := range r.seen {
			seen[pair] = true
		}
	}
	lru, ring := Policy{Order: policy.LRU}, Policy{}
	for _, pol := range []Policy{ring, lru} {
		for _, way := range []Mode{Fast, FlushThrough} {
			walk(pol, true, func(r *rig) { // there, superseded on the way, and back to free
				k := key(0, 0, 0)
				r.write(0, k, 0, 8, host, way)
				r.flush()
				r.send(0, true)
				r.write(0, k, 0, 4, host, way) // behind
				r.arrive(0)
				r.write(0, k, 0, 2, host, way) // superseded
				for range 3 {
					r.beginSync()
					r.endGoodSync()
					r.flush()
				}
			})
			walk(pol, true, func(r *rig) { // pinned, back, pinned, dropped
				k := key(0, 1, 0)
				r.write(0, k, 0, 8, host, way)
				r.parts[0].SetAway(1, true)
				r.send(0, true)
				r.parts[0].SetAway(1, false)
				r.look()
				r.parts[0].SetAway(1, true)
				r.parts[0].Kick()
				r.c.NextKicked()
				r.send(0, true)
				r.drop(k, 0xff)
			})
		}
		walk(pol, true, func(r *rig) { // the policy changes: the other list, also by way of the pins
			r.write(0, key(0, 0, 0), 0, 8, host, Fast)
			r.write(0, key(0, 1, 0), 0, 8, host, Fast)
			r.parts[0].SetAway(1, true)
			r.send(0, true)
			other := lru
			if pol.Order == policy.LRU {
				other = ring
			}
			other.DestageDepth = 2
			r.c.SetPolicy(other)
			r.parts[0].SetAway(1, false)
			r.look()
		})
	}
	walk(ring, true, func(r *rig) { // what is behind is superseded
		r.write(0, key(0, 0, 0), 0, 8, host, Fast)
		r.flush()
		r.send(0, true)
		r.write(0, key(0, 0, 0), 0, 4, host, Fast)
		r.write(0, key(0, 0, 0), 0, 4, host, Fast)
		r.arrive(0)
	})
	walk(ring, true, func(r *rig) { // its mdisk does not take it, and it is dropped
		r.write(0, key(0, 0, 0), 0, 8, host, Fast)
		r.flush()
		r.send(0, true)
		r.drop(key(0, 0, 0), 0xff)
		r.forget(0)
	})
	for _, payload := range []bool{true, false} {
		walk(ring, payload, func(r *rig) { // a sync fails
			for n := range 2 {
				r.write(0, key(0, 0, n), 0, 8, host, Fast)
				r.flush()
				r.send(0, true)
				r.arrive(0)
				if n == 0 {
					r.beginSync()
					r.endGoodSync()
					r.look()
					continue
				}
				r.beginSync()
				pages := r.parts[0].Lost(0)
				r.parts[0].Hold(0, true)
				r.endGoodSync()
				r.look()
				r.parts[0].Hold(0, false)
				r.isSynced(0, 0, r.arrival)
				r.c.Retire(pages)
				r.look()
			}
			r.write(0, key(0, 0, 5), 0, 8, host, Fast)
			r.drop(key(0, 0, 5), 0xff)
			r.flush()
			r.flush()
		})
	}
	for from := range numStates {
		for to := range numStates {
			allowed := transitions[to]>>from&1 != 0
			switch {
			case from == Free && to == Behind: // seen only where it stays
			case from == Behind || to == Behind || from == to: // one call goes through it, or it is no change
			case allowed && !seen[[2]State{from, to}]:
				t.Errorf("no way leads from %s to %s: is it possible at all?", from, to)
			}
		}
	}
	for pair := range seen {
		from, to := pair[0], pair[1]
		through := transitions[Behind]>>from&1 != 0 && transitions[to]>>Behind&1 != 0
		if transitions[to]>>from&1 == 0 && !through {
			t.Errorf("a page went from %s to %s", from, to)
		}
	}
}

// TestWhoAwaitsRoomHears: whatever makes a refused write possible is told, if somebody awaits it: a page that leaves
// its partition, one that becomes free, and one that is sent, because who could overwrite it may
// have held up others.
func TestWhoAwaitsRoomHears(t *testing.T) {
	r := newRig(t, rand.New(rand.NewPCG(1, 1)), true, Policy{})
	told := 0
	r.c.hooks.Freed = func() { told++ }
	r.c.hooks.Relieved = func(uint16) { told += 100 }
	hears := func(what string, want int, do func()) {
		t.Helper()
		told = 0
		if do(); told != want {
			t.Errorf("%s: told %d times, not %d", what, told, want)
		}
	}
	write := func(n int, o block.Origin) func() {
		return func() { r.write(0, key(0, 0, n), 0, 8, o, Fast) }
	}
	hears("nobody awaits it", 0, func() {
		write(0, block.OriginHost)()
		r.drop(key(0, 0, 0), 0xff)
	})
	r.c.Await(true)
	hears("a write", 0, write(1, block.OriginHost))
	r.flush()
	hears("a page is sent", 1, func() { r.send(0, true) })
	hears("it is written", 0, func() { r.arrive(0) })
	hears("it is synced", 1, func() {
		r.beginSync()
		r.endGoodSync()
	})
	hears("it is free", 1, r.flush)
	hears("an offload's page", 0, write(2, block.OriginXCopy))
	hears("it is dropped", 101, func() { r.drop(key(0, 0, 2), 0xff) })
}
