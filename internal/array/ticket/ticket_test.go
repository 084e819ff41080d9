package ticket

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// guest is somebody who waits.
type guest struct {
	Ticket
	name  int
	woken func(*guest)
}

func (g *guest) Resume() { g.woken(g) }

func newGuest(name int, woken func(*guest)) *guest {
	g := &guest{name: name, woken: woken}
	g.Init(g)
	return g
}

// list returns the names of those in a queue, and checks the links both ways.
func list(t *testing.T, q *Queue) (names []int) {
	t.Helper()
	var back []int
	last := (*Ticket)(nil)
	for x := q.Head(); x != nil; x = x.Next() {
		if !x.In(q) || !x.Queued() || x.prev != last {
			t.Fatalf("the links of %d are wrong", x.Waiter().(*guest).name)
		}
		names, last = append(names, x.Waiter().(*guest).name), x
	}
	for x := q.tail; x != nil; x = x.prev {
		back = append(back, x.Waiter().(*guest).name)
	}
	if slices.Reverse(back); !slices.Equal(names, back) {
		t.Fatalf("forth %v, back %v", names, back)
	}
	return names
}

// TestOrder: tickets go in the order in which they came, those that come back to the front before
// all, and ranked ones behind those of their rank.
func TestOrder(t *testing.T) {
	var woken []int
	q := Queue{Of: Log}
	g := make([]*guest, 6)
	for i := range g {
		g[i] = newGuest(i, func(g *guest) { woken = append(woken, g.name) })
	}
	q.Push(&g[0].Ticket)
	q.Push(&g[1].Ticket)
	q.PushFront(&g[2].Ticket)
	if got := list(t, &q); !slices.Equal(got, []int{2, 0, 1}) {
		t.Fatalf("the queue is %v", got)
	}
	if f := g[0].For(); f != Log || f.String() != "log" || g[3].For() != Nothing {
		t.Errorf("it waits for %v", f)
	}
	if g[0].Leave(); g[0].Queued() || g[0].For() != Log {
		t.Errorf("it has waited for %v", g[0].For())
	}
	if g[0].Reset(); g[0].For() != Nothing {
		t.Errorf("a new ticket waits for %v", g[0].For())
	}
	q.Head().Wake()
	q.Head().Wake()
	if !q.Empty() || !slices.Equal(woken, []int{2, 1}) {
		t.Fatalf("woken were %v", woken)
	}
	for i, rank := range []uint8{1, 0, 2, 1, 0, 2} {
		g[i].Rank = rank
		q.PushRanked(&g[i].Ticket)
	}
	if got := list(t, &q); !slices.Equal(got, []int{1, 4, 0, 3, 2, 5}) {
		t.Fatalf("by rank the queue is %v", got)
	}
}

// TestWakeAllWakesOnce: who comes back while all are woken waits for the next time, also when the
// one who is woken wakes all again.
func TestWakeAllWakesOnce(t *testing.T) {
	var woken []int
	n := Sum{}
	q := Queue{Sum: &n}
	again := true
	come := func(g *guest) {
		woken = append(woken, g.name)
		switch {
		case g.name == 0 && again:
			q.Push(&g.Ticket)
		case g.name == 1 && again:
			again = false
			q.WakeAll()
		}
	}
	for i := range 3 {
		q.Push(&newGuest(i, come).Ticket)
	}
	q.WakeAll()
	// 0 came back; 1 woke it, before 2 had its turn.
	if want := []int{0, 1, 0, 2}; !slices.Equal(woken, want) || !q.Empty() || n.N != 0 {
		t.Errorf("woken were %v, not %v; %d are left", woken, want, n.N)
	}
}

// TestRandomQueues holds queues against lists.
func TestRandomQueues(t *testing.T) {
	const guests = 20
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 17))
		all := Sum{}
		sum := Sum{Up: &all}
		queues := [3]Queue{{Of: Room, Sum: &sum}, {Of: Room, Sum: &sum}, {Of: Log, Sum: &all}}
		var model [3][]int
		var woken []int
		g := make([]*guest, guests)
		for i := range g {
			g[i] = newGuest(i, func(g *guest) { woken = append(woken, g.name) })
			g[i].Rank = uint8(rnd.IntN(3))
		}
		where := func(i int) int {
			return slices.IndexFunc(model[:], func(l []int) bool { return slices.Contains(l, i) })
		}
		for range 200 {
			i, at := rnd.IntN(guests), rnd.IntN(len(queues))
			q, l := &queues[at], model[at]
			switch was := where(i); {
			case was >= 0 && rnd.IntN(2) == 0:
				g[i].Leave()
				model[was] = slices.DeleteFunc(model[was], func(x int) bool { return x == i })
			case was >= 0:
			case rnd.IntN(3) == 0:
				q.PushFront(&g[i].Ticket)
				model[at] = slices.Insert(l, 0, i)
			case at == 2: // the only one that is ranked, when nobody has pushed to it otherwise
				k := len(l)
				for k > 0 && g[l[k-1]].Rank > g[i].Rank {
					k--
				}
				q.PushRanked(&g[i].Ticket)
				model[at] = slices.Insert(l, k, i)
			default:
				q.Push(&g[i].Ticket)
				model[at] = append(l, i)
			}
			switch l := model[at]; {
			case rnd.IntN(8) > 0 || len(l) == 0:
			case rnd.IntN(4) == 0:
				woken = woken[:0]
				q.WakeAll()
				if !slices.Equal(woken, l) {
					t.Fatalf("seed %d: all of %v were to be woken, %v were", seed, l, woken)
				}
				model[at] = nil
			default:
				woken = woken[:0]
				q.Head().Wake()
				if !slices.Equal(woken, l[:1]) {
					t.Fatalf("seed %d: %d was to be woken, %v were", seed, l[0], woken)
				}
				model[at] = l[1:]
			}
			for at := range queues {
				if got := list(t, &queues[at]); !slices.Equal(got, model[at]) {
					t.Fatalf("seed %d: queue %d is %v, not %v", seed, at, got, model[at])
				}
			}
			if n := len(model[0]) + len(model[1]); sum.N != n || all.N != n+len(model[2]) {
				t.Fatalf("seed %d: %d and %d are counted, %v wait", seed, sum.N, all.N, model)
			}
		}
	}
}

// TestWaitingAllocatesNothing: a ticket is a part of what waits.
func TestWaitingAllocatesNothing(t *testing.T) {
	q := Queue{}
	g := newGuest(0, func(*guest) {})
	if n := testing.AllocsPerRun(100, func() {
		q.Push(&g.Ticket)
		q.Head().Wake()
		q.PushFront(&g.Ticket)
		q.WakeAll()
	}); n > 0 {
		t.Errorf("to wait takes %v allocations", n)
	}
}

func TestSet(t *testing.T) {
	s := SetOf(Log, BackEnd)
	if !s.Has(Log) || !s.Has(BackEnd) || s.Has(Room) || s.Take(Room) || !s.Take(Log) || s.Take(Log) {
		t.Errorf("the set is %b", s)
	}
	if s.Add(Nothing); s != SetOf(BackEnd, Nothing) {
		t.Errorf("the set is %b", s)
	}
}
