package wcache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
	"github.com/arraysim/arraysim/lab/plug"
)

// randomPolicy returns one of the policies that decide where a page is listed and when it goes.
func randomPolicy(rnd *rand.Rand) Policy {
	p := Policy{Order: policy.DestageOrder(rnd.IntN(2)), DestageDepth: 1 + rnd.IntN(3), DestagePages: rnd.IntN(3) * 2, Round: rnd.IntN(3) * 8}
	if rnd.IntN(3) == 0 {
		p.Destage = func(uint16) plug.Destage { return anyDestage{rnd} }
	}
	switch rnd.IntN(3) {
	case 0:
		p.Ramp = policy.Ramp{Points: []policy.RampPoint{{At: 100, Rate: 0}, {At: 900, Rate: 1 << 20}}, MaxAge: int64(rnd.IntN(2)) * 1e9}
	case 1:
		p.Budget = policy.Budget{HostPercent: 1 + rnd.IntN(100)}
	}
	return p
}

// anyDestage is a policy of somebody else's, who throws dice.
type anyDestage struct{ rnd *rand.Rand }

func (d anyDestage) Rate(plug.Fullness) int64 { return int64(d.rnd.IntN(3)-1) << 20 }
func (d anyDestage) Next(v []plug.DirtyVolume) int {
	for i := range v {
		if v[i].Dirty <= 0 || v[i].Age < 0 {
			panic("a volume without dirty data is in the list")
		}
	}
	return d.rnd.IntN(len(v))
}

// randomKey returns a page; pages of one grain come often.
func (r *rig) randomKey(part int) layout.PageKey {
	return key(part, r.rnd.IntN(rigMdisks), r.rnd.IntN(1+r.rnd.IntN(rigGrains*layout.GrainPages)))
}

// step does something at random.
func (r *rig) step() {
	part := r.rnd.IntN(len(r.parts))
	p, md := r.parts[part], r.rnd.IntN(rigMdisks)
	at := [2]int{part, md}
	switch r.rnd.IntN(27) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		first := r.rnd.IntN(layout.PageSectors)
		r.write(part*2+r.rnd.IntN(2), r.randomKey(part), first, 1+r.rnd.IntN(layout.PageSectors-first),
			block.Origin(r.rnd.IntN(int(block.NumOrigins))), Mode(r.rnd.IntN(int(ShortOfMemory)+1)))
	case 8, 9:
		r.drop(r.randomKey(part), uint8(r.rnd.Uint32()))
	case 10, 11, 12:
		for p := r.c.NextKicked(); p != nil; p = r.c.NextKicked() {
			for waiting := r.rnd.IntN(2) == 0; r.send(int(p.id), waiting); {
			}
		}
	case 13, 14, 15:
		if n := len(r.flights); n > 0 {
			if i := r.rnd.IntN(n); !r.flights[i].parked { // else its mdisk is not there
				r.arrive(i)
			}
		}
	case 16:
		r.endSync()
	case 17, 18:
		if r.rnd.IntN(4) == 0 {
			r.region.fails = 1
		}
		r.flush()
	case 19:
		r.clock.RunUntil(r.clock.Now() + r.rnd.Int64N(1e9))
	case 20:
		away := !p.lanes[md].away
		p.SetAway(md, away)
		r.park(p, md, away)
		p.Kick()
		r.look()
	case 21:
		r.c.SetPolicy(randomPolicy(r.rnd))
	case 22:
		r.c.SetMirrored(r.rnd.IntN(2) == 0)
		p.SetMode(Mode(r.rnd.IntN(3)))
	case 23:
		// What waits for room a redo does not wait for: all of it is written again behind that.
		if refused, _ := r.refused(p, md); p.InFlight(md) == refused {
			if pages, ok := r.redos[at]; ok {
				r.rewrite(at, pages)
			}
		}
	case 24, 25:
		if n := len(r.flights); n > 0 {
			r.refuse(r.rnd.IntN(n))
		}
	case 26:
		if n := len(r.flights); n > 0 {
			if i := r.rnd.IntN(n); !r.flights[i].parked {
				r.forget(i)
			}
		}
	}
	r.look()
}

// endSync ends the sync under way and begins another one. Now and then an mdisk's fails, and what was
// written to it since the last one is lost.
func (r *rig) endSync() {
	if r.syncing {
		for part, p := range r.parts {
			for md := range rigMdisks {
				at := [2]int{part, md}
				if _, redo := r.redos[at]; redo {
					continue
				}
				if r.rnd.IntN(6) > 0 {
					r.isSynced(part, md, r.began)
					continue
				}
				r.redos[at] = p.Lost(md)
				p.Hold(md, true)
			}
		}
		r.c.EndSync()
	}
	if r.syncing = r.rnd.IntN(4) > 0; r.syncing {
		r.beginSync()
	}
	r.look()
}

// rewrite ends a redo: what is on the mdisk is what was sent last.
func (r *rig) rewrite(at [2]int, pages []uint32) {
	p := r.parts[at[0]]
	pages = p.Rewrite(at[1], pages)
	for _, i := range pages {
		if s := r.c.State(i); s != Rewriting {
			r.t.Errorf("page %d, which is to be written again, is %s", i, s)
		}
	}
	r.isSynced(at[0], at[1], r.arrival)
	p.Hold(at[1], false)
	r.c.Retire(pages)
	p.Kick()
	delete(r.redos, at)
}

// settle brings everything to the back end and gives all pages back.
func (r *rig) settle() {
	r.region.fails = 0
	for part, p := range r.parts {
		for md := range rigMdisks {
			p.SetAway(md, false)
			r.park(p, md, false)
			for n := len(r.flights) - 1; n >= 0; n-- {
				r.arrive(n)
			}
			if pages, ok := r.redos[[2]int{part, md}]; ok {
				r.rewrite([2]int{part, md}, pages)
			}
		}
	}
	r.c.Drain(true)
	for range 200 {
		r.flush()
		r.c.KickAll()
		for p := r.c.NextKicked(); p != nil; p = r.c.NextKicked() {
			for r.send(int(p.id), false) {
			}
		}
		for len(r.flights) > 0 {
			r.arrive(0)
		}
		if r.syncing {
			r.endGoodSync()
		}
		r.beginSync()
		if r.c.Free() == r.c.Pages() {
			return
		}
	}
	r.t.Errorf("of %d pages %d are free at the end", r.c.Pages(), r.c.Free())
}

// TestRandomCache does what an array does in any order, and holds the cache against a model of what
// reads have to give, and against its own books.
func TestRandomCache(t *testing.T) {
	first := testkit.Seed(t)
	seen := map[State]bool{}
	for n := range uint64(60) {
		seed := first + n
		rnd := rand.New(rand.NewPCG(seed, 23))
		r := newRig(t, rnd, rnd.IntN(4) > 0, randomPolicy(rnd))
		for range 600 {
			if r.step(); rnd.IntN(20) == 0 {
				r.check()
			}
			if t.Failed() {
				t.Fatalf("-seed %d", seed)
			}
		}
		r.settle()
		r.check()
		for i, o := range r.owners {
			if d := o.Dirty(); d != 0 {
				t.Errorf("owner %d has %d dirty bytes at the end", i, d)
			}
		}
		if used := fmt.Sprint(r.c.room.used, r.c.reserve.used, r.c.pinned, len(r.waiting), r.parts[0].offload, len(r.parts[0].hosts)); used != "0 0 0 0 0 0" || !r.c.Drained() {
			t.Errorf("at the end are used: %s", used)
		}
		for pair := range r.seen {
			seen[pair[1]] = true
		}
		if t.Failed() {
			t.Fatalf("-seed %d", seed)
		}
	}
	if len(seen) != int(numStates) {
		t.Errorf("seen were only %v", seen)
	}
}
