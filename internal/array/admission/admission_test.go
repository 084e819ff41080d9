package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

const (
	host    = block.OriginHost
	offload = block.OriginWriteSame
)

func rnd() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

// TestOneOutOneIn: a full partition takes the next when one has left, in the order of arrival; a
// short write that would fit does not overtake a long one.
func TestOneOutOneIn(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{}, 1)
	r.start(r.writer(0, 0, 16, 60, host, 0)) // 960 of 1024
	long, short := r.start(r.writer(0, 0, 1, 65, host, 0)), r.start(r.writer(0, 1, 1, 1, host, 0))
	if long.For() != ticket.Room || !long.Queued() || !short.Queued() {
		t.Fatal("the partition is full, or the long one was overtaken")
	}
	if r.free(0, 1); long.Queued() || short.Queued() != (r.pools[0].Room.Used()+1 > rigLimit) {
		t.Errorf("after a page was freed the long one waits: %v, the short one: %v", long.Queued(), short.Queued())
	}
	r.free(0, 1)
	if got := r.order[16:]; !slices.Equal(got, []int{1, 2}) || r.g.Waiters.N != 0 {
		t.Errorf("the order is %v; %d are left", got, r.g.Waiters.N)
	}
}

// TestWhatOverwritesNeedsNoRoom: a write whose pages are dirty already goes into a full partition.
func TestWhatOverwritesNeedsNoRoom(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{}, 1)
	r.start(r.writer(0, 0, 16, 64, host, 0))
	w := r.writer(0, 0, 1, 8, host, 0)
	w.dirty = 8
	if r.start(w); !w.finished {
		t.Error("it waits")
	}
}

// TestTurns: where volumes take turns, one that has little to write does not wait behind one that has much.
func TestTurns(t *testing.T) {
	for admission, want := range map[policy.Admission][]int{policy.AdmitFIFO: {1, 1, 1, 1, 2, 2}, policy.AdmitFair: {1, 2, 1, 2, 1, 1}} {
		r := newRig(t, rnd(), wcache.Policy{Admission: admission}, 1)
		r.start(r.writer(0, 0, 16, 64, host, 0))
		r.start(r.writer(0, 0, 4, 64, host, 0))
		r.start(r.writer(0, 1, 2, 64, host, 0))
		for range 6 {
			r.free(0, 64)
		}
		if got := r.order[16:]; !slices.Equal(got, want) {
			t.Errorf("%v: the order is %v, not %v", admission, got, want)
		}
	}
}

// TestBudgetOfOffloads: offloads wait for their budget, of the pool or of the host, and nobody behind them;
// hosts take turns.
func TestBudgetOfOffloads(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{Budget: policy.Budget{Percent: 50, HostPercent: 25}}, 1)
	greedy := r.start(r.writer(0, 0, 20, 64, offload, 1))
	if got := r.pools[0].Offloads(); greedy.For() != ticket.Budget || got != rigLimit/4 {
		t.Fatalf("host 1 holds %d pages and waits for %v", got, greedy.For())
	}
	second, third := r.start(r.writer(0, 1, 20, 64, offload, 2)), r.start(r.writer(0, 1, 4, 64, offload, 3))
	if got := r.pools[0].Offloads(); got != rigLimit/2 || second.For() != ticket.Budget || third.For() != ticket.Budget {
		t.Fatalf("offloads hold %d pages", got)
	}
	if w := r.start(r.writer(0, 0, 2, 64, host, 1)); !w.finished || !r.pools[0].Throttled() || r.pools[0].Waiting() {
		t.Error("a host waits behind offloads")
	}
	before := len(r.order)
	for range 6 {
		r.free(0, 64)
	}
	if got := r.order[before:]; !slices.Equal(got, []int{2, 0, 2, 0, 2, 0}) {
		t.Errorf("hosts do not take turns: %v", got)
	}
}

// TestFloors: a pool that comes late finds its floor though another one holds all the rest, and of what
// comes free both get their part.
func TestFloors(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{}, 2)
	r.c.SetCaps([]int{100})
	big := r.start(r.writer(0, 0, 100, 32, host, 0))
	floor := r.pools[1].Room.Floor()
	if floor == 0 || r.pools[0].Room.Used() > rigLimit-floor {
		t.Fatalf("of %d pages the first holds %d, the floor is %d", rigLimit, r.pools[0].Room.Used(), floor)
	}
	late := r.start(r.writer(1, 0, 40, floor/4, host, 0))
	if got := r.pools[1].Room.Used(); got < floor-floor/4 || !late.Queued() {
		t.Errorf("the late one holds %d pages, its floor is %d", got, floor)
	}
	for range 20 {
		r.free(0, 32)
	}
	if held := r.pools[1].Room.Used(); held < 200 || !big.Queued() {
		t.Errorf("the late one holds %d pages of what came free", held)
	}
}

// TestNobodyPassesTheLine: while a pool waits for room that all share, nobody takes of that, neither who
// comes nor who stands behind it, though it would do for them.
func TestNobodyPassesTheLine(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{}, 3)
	r.c.SetCaps([]int{100})
	for _, part := range []int{1, 2} { // nearly their floors
		r.start(r.writer(part, 0, 1, r.pools[part].Room.Floor()-2, host, 0))
	}
	r.start(r.writer(0, 0, 29, 32, host, 0))
	long, short := r.start(r.writer(1, 0, 1, 64, host, 0)), r.start(r.writer(2, 0, 1, 10, host, 0))
	if r.c.Room().Used()+10+4 > rigLimit {
		t.Fatalf("%d pages are used: nothing would do for the short one", r.c.Room().Used())
	}
	if r.free(0, 16); !long.Queued() || !short.Queued() {
		t.Errorf("the long one waits: %v, the short one behind it: %v", long.Queued(), short.Queued())
	}
	if r.free(0, 64); !slices.Equal(r.order[len(r.order)-2:], []int{long.name, short.name}) {
		t.Errorf("the order is %v", r.order)
	}
}

// TestLateComersHaveNoArrears: a pool that did not wait while others did has no claim to what they got.
func TestLateComersHaveNoArrears(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{}, 3)
	r.c.SetCaps([]int{100})
	for part := range 2 {
		r.start(r.writer(part, 0, 1000, 32, host, 0))
	}
	for n := range 100 {
		r.free(n%2, 32)
	}
	late := r.start(r.writer(2, 0, 1000, 32, host, 0))
	before := len(r.order)
	for n := range 20 {
		r.free(n%2, 32)
	}
	got := 0
	for _, name := range r.order[before:] {
		if name == late.name {
			got++
		}
	}
	if got < 5 || got > 16 {
		t.Errorf("of %d pieces the late one got %d", len(r.order)-before, got)
	}
}

// TestFreePagesGoInOrder: who needs few free pages waits behind who needs many, whatever pool they are of.
func TestFreePagesGoInOrder(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{}, 2)
	r.c.SetCaps([]int{100})
	r.start(r.writer(0, 0, 12, 64, host, 0))
	for _, k := range r.pages[0] { // they leave the partition, and are not free before a flush
		r.c.Drop(k, 0xff)
	}
	r.start(r.writer(0, 0, 7, 64, host, 0))
	r.start(r.writer(0, 0, 1, 20, host, 0))
	many, few := r.start(r.writer(0, 1, 1, 64, host, 0)), r.start(r.writer(1, 0, 1, 8, host, 0))
	if r.c.Free() < 8 || !many.Queued() || !few.Queued() {
		t.Fatalf("with %d free pages, 64 are waited for: %v, and 8: %v", r.c.Free(), many.Queued(), few.Queued())
	}
	if r.free(0, 0); !slices.Equal(r.order[len(r.order)-2:], []int{many.name, few.name}) {
		t.Errorf("the order is %v", r.order)
	}
}

// TestThroughForLackOfMemory: where the policy says so, a host's write that finds no room goes through.
func TestThroughForLackOfMemory(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{Admission: policy.AdmitThrough}, 1)
	r.start(r.writer(0, 0, 16, 64, offload, 1))
	w, o := r.start(r.writer(0, 0, 1, 64, host, 0)), r.start(r.writer(0, 0, 1, 64, offload, 1))
	if !w.finished || w.claim.Way != wcache.ShortOfMemory || !w.claim.Through() || o.finished {
		t.Errorf("a host's write ended: %v, by way %v; an offload ended: %v", w.finished, w.claim.Way, o.finished)
	}
}

// TestRamp: from its stall on a ramp delays all writes, until the partition is below where they resume.
func TestRamp(t *testing.T) {
	r := newRig(t, rnd(), wcache.Policy{Ramp: policy.Ramp{StallAt: 500, ResumeAt: 250}}, 1)
	w := r.start(r.writer(0, 0, 16, 64, host, 0))
	if used := r.pools[0].Room.Used(); used != rigLimit/2 || !w.Queued() {
		t.Fatalf("%d pages are used", used)
	}
	if r.free(0, rigLimit/4-64); len(r.order) != 8 {
		t.Errorf("it went on too early: %d pieces", len(r.order))
	}
	if r.free(0, 128); len(r.order) == 8 {
		t.Error("it does not go on")
	}
}

// TestRandomGate starts, frees, cancels and changes the policy at random, and holds the gate against
// what has to be true whatever the order.
func TestRandomGate(t *testing.T) {
	first := testkit.Seed(t)
	for n := range uint64(100) {
		seed := first + n
		rnd := rand.New(rand.NewPCG(seed, 31))
		pol := wcache.Policy{Admission: policy.Admission(rnd.IntN(3)), Budget: policy.Budget{Percent: rnd.IntN(3) * 20, HostPercent: rnd.IntN(3) * 10}}
		r := newRig(t, rnd, pol, 1+rnd.IntN(3))
		for range 300 {
			r.step()
			r.check()
			if t.Failed() {
				t.Fatalf("-seed %d", seed)
			}
		}
		// Whoever waits gets all when others leave: nobody is forgotten, and nothing is lost.
		for range 3000 {
			for part := range r.pools {
				r.free(part, 200)
			}
		}
		for _, w := range r.writers {
			if w.Queued() || w.left > 0 && !w.finished {
				t.Errorf("writer %d waits for %v for ever, with %d pieces left", w.name, w.For(), w.left)
			}
		}
		if got := fmt.Sprint(r.g.Waiters.N, r.c.Room().Used(), r.c.Reserve().Used(), r.pools[0].Offloads()); got != "0 0 0 0" {
			t.Errorf("at the end are waiting, used and booked: %s", got)
		}
		if t.Failed() {
			t.Fatalf("-seed %d", seed)
		}
	}
}

// step does something at random.
func (r *rig) step() {
	part := r.rnd.IntN(len(r.pools))
	switch r.rnd.IntN(10) {
	case 0, 1, 2, 3:
		origin := []block.Origin{host, host, offload}[r.rnd.IntN(3)]
		w := r.writer(part, r.rnd.IntN(2), 1+r.rnd.IntN(6), 1+r.rnd.IntN(64), origin, uint32(r.rnd.IntN(3)))
		r.start(w)
	case 4, 5, 6, 7:
		r.free(part, r.rnd.IntN(200))
	case 8: // one gives up
		if w := r.writers[r.rnd.IntN(len(r.writers)+1)%max(1, len(r.writers)):]; len(w) > 0 && w[0].Queued() {
			r.cancel(w[0])
		}
	case 9:
		if r.rnd.IntN(4) == 0 {
			r.pools[part].SetMode(wcache.Mode(r.rnd.IntN(3)))
		} else {
			r.pol.Ramp = policy.Ramp{StallAt: int64(r.rnd.IntN(2)) * 800, ResumeAt: 600}
			r.pol.Budget.Percent = r.rnd.IntN(3) * 20
			r.c.SetPolicy(r.pol)
		}
		r.g.Changed()
		for _, p := range r.pools {
			p.Relieved()
		}
		r.wake()
	}
}

// cancel takes a writer out of the queue that it waits in.
func (r *rig) cancel(w *writer) {
	had := w.For()
	w.Leave()
	w.claim.Unbook()
	w.left = 0
	if had == ticket.Budget {
		w.claim.Pool.Relieved()
	} else {
		r.g.Freed()
	}
	r.wake()
}

// check verifies what is true at any time.
func (r *rig) check() {
	t := r.t
	t.Helper()
	if got := r.waiting(); got != r.g.Waiters.N {
		t.Errorf("%d wait, %d are counted", got, r.g.Waiters.N)
	}
	if c := r.c; c.Room().Used() > c.Room().Limit() || c.Room().Used()+c.Reserve().Used() > c.Pages() {
		t.Errorf("of %d pages %d are used, and of the reserve %d", c.Room().Limit(), c.Room().Used(), c.Reserve().Used())
	}
	booked := make([]int, len(r.pools))
	for _, w := range r.writers {
		booked[w.part] += w.claim.booked
		if w.claim.booked > 0 && !w.Queued() {
			t.Errorf("writer %d does not wait, and %d pages are booked for it", w.name, w.claim.booked)
		}
	}
	for i, p := range r.pools {
		if p.Room.Used() > p.Limit() {
			t.Errorf("pool %d holds %d pages, its cap is %d", i, p.Room.Used(), p.Limit())
		}
		if p.Offloads()-booked[i] > p.Room.Used() || p.Offloads() < booked[i] {
			t.Errorf("pool %d: offloads hold %d pages, %d of them booked, and all together %d", i, p.Offloads(), booked[i], p.Room.Used())
		}
	}
}
