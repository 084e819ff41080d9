package array

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestManyCommandsUnderEveryPolicy runs the swarm while policies and write modes
// change, the mirror goes and comes, and mdisks go offline and come back.
func TestManyCommandsUnderEveryPolicy(t *testing.T) {
	runs := 4
	if testing.Short() {
		runs = 2
	}
	for n := range runs {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(testkit.Seed(t), 3))
			s := &swarm{rnd: rnd, sectors: []uint64{300000, 8000, 50001}, names: []string{"v0", "v1", "v2"}}
			s.shake = func() {
				p := s.a.Pools()[rnd.IntN(2)]
				switch rnd.IntN(5) {
				case 0, 1:
					pol := randomPolicy(rnd)
					if err := s.a.SetPolicy(pol); err != nil {
						t.Fatal(err)
					}
					s.opt.Policy = pol
				case 2:
					p.SetWriteMode(WriteMode(rnd.IntN(3)))
				case 3:
					s.a.SetMirrored(rnd.IntN(2) == 0)
				case 4:
					if err := p.SetMdiskOffline(p.Mdisks[rnd.IntN(len(p.Mdisks))].Name(), true); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.heal = func() {
				for _, p := range s.a.Pools() {
					for _, d := range p.Mdisks {
						if err := p.SetMdiskOffline(d.Name(), false); err != nil {
							t.Fatal(err)
						}
					}
				}
				// A ramp that never drains would let commands wait for ever behind a budget.
				for s.a.opt.Policy.Budget != (Budget{}) && !s.a.opt.Policy.Budget.Pressure {
					pol := s.a.Policy()
					pol.Budget.Pressure = true
					if err := s.a.SetPolicy(pol); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.run(t, rnd.IntN(2)*10, n%2 == 0)
		})
	}
}

func randomPolicy(rnd *rand.Rand) Policy {
	pol := Policy{
		Admission: Admission(rnd.IntN(3)), Order: DestageOrder(rnd.IntN(2)), DestageDepth: rnd.IntN(5), CopyPieces: rnd.IntN(5),
		CopyBytes: int64(rnd.IntN(3)) << 19, CopyReads: rnd.IntN(3), DestagePages: rnd.IntN(3) * 8, Round: rnd.IntN(3) * 8,
	}
	if rnd.IntN(2) == 0 {
		pol.Budget = Budget{Percent: rnd.IntN(2) * 25, HostPercent: rnd.IntN(2) * 10, Pressure: rnd.IntN(2) == 0}
	}
	if rnd.IntN(2) == 0 {
		pol.Ramp = Ramp{Points: []RampPoint{{At: 500, Rate: 0}, {At: 900, Rate: 40 << 20}, {At: 1000, Rate: 200 << 20}}, MaxAge: int64(rnd.IntN(2)) * 1e9}
		switch rnd.IntN(3) {
		case 0:
			pol.Ramp.Waiting = 100 << 20
		case 1:
			pol.Ramp.StallAt, pol.Ramp.ResumeAt = 700, 400
		}
	}
	return pol
}

// held returns what a volume has of the cache, in bytes.
func held(v *Volume) uint64 { return uint64(v.Cached.Dirty()) }

// drive writes at a rate for a time, with nobody waiting for the answers, and returns
// the requests.
func drive(r *rig, v *Volume, rate, ns int64, origin block.Origin) []*block.Request {
	const size = 64 << 10
	var all []*block.Request
	start, at := r.clock.Now(), uint64(0)
	for n := int64(0); n*size*1e9/rate < ns; n++ {
		q := write(at, size/512)
		at = (at + size/512) % (v.Spec.Sectors - size/512)
		q.Origin, q.Done = origin, func(*block.Request) {}
		r.clock.At(start+n*size*1e9/rate, func() { v.Submit([]*block.Request{q}) })
		all = append(all, q)
	}
	return all
}

// TestDestageOrderDecidesWhoHoldsTheCache: in turns, a volume that writes less than
// its share holds nothing beside a greedy one; in the order of age, both hold by rate.
func TestDestageOrderDecidesWhoHoldsTheCache(t *testing.T) {
	for _, order := range []DestageOrder{DestageRoundRobin, DestageLRU} {
		t.Run(order.String(), func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 64 << 20, Policy: Policy{Order: order}}, true)
			p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 30, Bandwidth: 100 << 20}}}, 0)
			slow, greedy := r.volume("slow", "p", 1<<30, true), r.volume("greedy", "p", 1<<30, true)
			drive(r, slow, 30<<20, 4e9, block.OriginHost)
			drive(r, greedy, 150<<20, 4e9, block.OriginHost)
			r.clock.RunUntil(r.clock.Now() + 3e9)
			if share := float64(p.Part.Room.Used()) / float64(p.Part.Limit()); share < 0.98 {
				t.Fatalf("the partition is %.0f %% full", share*100)
			}
			got := float64(held(slow)) / float64(held(slow)+held(greedy))
			if order == DestageRoundRobin && got > 0.05 || order == DestageLRU && (got < 0.1 || got > 0.25) {
				t.Errorf("the slow volume, 1/6 of the writes, holds %.1f %% of the cache", got*100)
			}
			r.check()
		})
	}
}

// TestAdmission: at a full partition a modest writer waits behind a greedy one in one
// queue, hardly when volumes take turns, and not at all when it may write through.
func TestAdmission(t *testing.T) {
	waits := map[Admission]float64{}
	for _, adm := range []Admission{AdmitFIFO, AdmitFair, AdmitThrough} {
		r := newRig(t, Options{CacheBytes: 32 << 20, Policy: Policy{Admission: adm}}, true)
		r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 30, Bandwidth: 100 << 20}}}, 0)
		modest, greedy := r.volume("modest", "p", 1<<30, true), r.volume("greedy", "p", 1<<30, true)
		drive(r, greedy, 200<<20, 2e9, block.OriginXCopy)
		begin := r.clock.Now() + 1e9
		r.clock.RunUntil(begin)
		var sum, n int64
		for i := range int64(50) {
			q := write(uint64(i)*8, 8)
			at := begin + i*1e7
			q.Done = func(*block.Request) { sum, n = sum+r.clock.Now()-at, n+1 }
			r.clock.At(at, func() { modest.Submit([]*block.Request{q}) })
		}
		r.clock.Run()
		if n != 50 {
			t.Fatalf("%v: %d of 50 writes ended", adm, n)
		}
		waits[adm] = float64(sum) / float64(n) / 1e6
		row := flowOf(modest, block.OriginHost)
		if through := row.WriteThrough; (through > 0) != (adm == AdmitThrough) || adm == AdmitThrough && modest.Cached.Short(block.OriginHost) != through {
			t.Errorf("%v: %d bytes were written through", adm, through)
		}
		r.check()
	}
	t.Logf("mean write, ms: %v", waits)
	if waits[AdmitFIFO] < 100 || waits[AdmitFair] > waits[AdmitFIFO]/20 || waits[AdmitThrough] > waits[AdmitFIFO]/20 {
		t.Errorf("mean write in ms: %v", waits)
	}
}

// TestRampHoldsItsFullness: paced by a ramp, a partition stands where the ramp's rate
// is the rate of the writes.
func TestRampHoldsItsFullness(t *testing.T) {
	for _, abs := range []bool{false, true} {
		ramp := Ramp{Points: []RampPoint{{At: 500, Rate: 0}, {At: 900, Rate: 80 << 20}, {At: 1000, Rate: 400 << 20}}}
		if abs {
			ramp = Ramp{Absolute: true, Points: []RampPoint{{At: 32 << 20, Rate: 0}, {At: 64<<20*9/10 + 1, Rate: 80 << 20}, {At: 64 << 20, Rate: 400 << 20}}}
		}
		r := newRig(t, Options{CacheBytes: 64 << 20, Policy: Policy{Ramp: ramp}}, true)
		p := r.pool("p", PoolSpec{}, 4<<30)
		v := r.volume("v", "p", 1<<30, true)
		drive(r, v, 40<<20, 10e9, block.OriginHost)
		before := 0.0
		r.clock.RunUntil(r.clock.Now() + 5e9)
		before = p.Part.UsedSeconds()
		r.clock.RunUntil(r.clock.Now() + 4e9)
		mean := (p.Part.UsedSeconds() - before) / 4 / (64 << 20)
		if mean < 0.68 || mean > 0.73 {
			t.Errorf("absolute %v: the partition is %.3f full, the ramp has the writes' rate at 0.700", abs, mean)
		}
		r.clock.Run()
		if held(v) == 0 {
			t.Error("a ramp destages nothing below its first point")
		}
	}
}

// TestDirtyDataWaitsForRest: below the fullness that presses, a pool that is written to keeps what it has
// got, so that writes to the same place cost one destage; it goes out when no more comes, or after half a minute.
func TestDirtyDataWaitsForRest(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 64 << 20}, true)
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 30, Bandwidth: 100 << 20}}}, 0)
	v := r.volume("v", "p", 1<<20+64<<10, true)
	began := r.clock.Now()
	drive(r, v, 4<<20, 40e9, block.OriginHost) // over and over the same MiB, 64 times a second
	for _, at := range []struct {
		after    int64
		rewrites uint64
	}{{29e9, 0}, {39e9, 1}, {42e9, 2}} {
		r.clock.RunUntil(began + at.after)
		if got := flowOf(v, block.OriginHost).Destaged; got != at.rewrites<<20 {
			t.Errorf("after %d s the back end has got %d bytes, of %d times a MiB", at.after/1e9, got, at.rewrites)
		}
	}
	if p.Part.Dirty() != 0 {
		t.Errorf("%d pages are dirty 2 s after the last write", p.Part.Dirty())
	}
	r.check()
}

// TestBudget: what offloads hold of a partition stays within the budget, hosts do not
// wait, and the pressure decides how long the offload takes.
func TestBudget(t *testing.T) {
	took := map[bool]int64{}
	for _, pressure := range []bool{false, true} {
		r := newRig(t, Options{CacheBytes: 64 << 20, Policy: Policy{
			Budget: Budget{Percent: 25, Pressure: pressure},
			Ramp:   Ramp{Points: []RampPoint{{At: 100, Rate: 0}, {At: 1000, Rate: 40 << 20}}},
		}}, true)
		p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 30, Bandwidth: 100 << 20}}}, 0)
		host, target := r.volume("host", "p", 1<<30, true), r.volume("target", "p", 1<<30, true)
		last := int64(0)
		for _, q := range drive(r, target, 400<<20, 5e8, block.OriginXCopy) {
			q.Done = func(*block.Request) { last = r.clock.Now() }
		}
		drive(r, host, 5<<20, 5e8, block.OriginHost)
		most := 0
		r.a.afterStep = func() { most = max(most, p.Part.Offloads()) }
		r.clock.Run()
		if most > p.Part.Limit()/4 {
			t.Errorf("offloads held %d pages, the budget is %d", most, p.Part.Limit()/4)
		}
		if _, n, _ := p.Waits(block.OriginHost); n > 0 {
			t.Errorf("%d writes of hosts waited", n)
		}
		if p.Throttled() == 0 {
			t.Error("no offload waited for its budget")
		}
		took[pressure] = last
		r.check()
	}
	if took[false] < took[true]*3/2 {
		t.Errorf("the offload took %d ms with pressure and %d ms without", took[true]/1e6, took[false]/1e6)
	}
}

// TestCancelOfACopyThatNothingMakesRoomFor: a ramp may leave a partition as full as it
// is, and an abort must end the copy that waits there all the same.
func TestCancelOfACopyThatNothingMakesRoomFor(t *testing.T) {
	for name, pol := range map[string]Policy{
		"budget": {Budget: Budget{Percent: 1}, Ramp: Ramp{Points: []RampPoint{{At: 580, Rate: 0}, {At: 1000, Rate: 1 << 30}}}},
		"reads":  {CopyReads: 1, CopyBytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 64 << 20, Policy: pol}, true)
			r.pool("p", PoolSpec{CopyData: true, Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 30, Bandwidth: 1 << 20}}}, 0)
			v, w := r.volume("v", "p", 1<<30, true), r.volume("w", "p", 1<<30, true)
			if err := v.Import(rng(0, 1<<20)); err != nil {
				t.Fatal(err)
			}
			h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 1<<20)}}
			mustOK(t, r.do(v, h))
			ended := false
			q := &block.Request{Op: block.OpPlace, Range: rng(0, 1<<20), Ref: h.Ref, Origin: block.OriginXCopy, Done: func(*block.Request) { ended = true }}
			w.Submit([]*block.Request{q})
			r.clock.RunUntil(r.clock.Now() + 5e9)
			if ended {
				t.Fatalf("the copy ended by itself: %v", q.Status)
			}
			w.Cancel(q)
			r.clock.RunUntil(r.clock.Now() + 5e9)
			if !ended || q.Status != block.Cancelled {
				t.Fatalf("ended: %v, with %v", ended, q.Status)
			}
			h.Ref.Release()
			if what := r.a.engine.Leftover(); what != "" || w.Pool().InFlight(block.OriginXCopy) != 0 {
				t.Errorf("%s; %d bytes of pieces are left", what, w.Pool().InFlight(block.OriginXCopy))
			}
			r.check()
		})
	}
}

// TestCopyPriority: of copies that wait for the copy engine the one with the lower number goes on first,
// and of equal ones the one that came first.
func TestCopyPriority(t *testing.T) {
	for _, c := range []struct {
		priority [3]uint8
		order    string
	}{
		{[3]uint8{1, 1, 1}, "012"},
		{[3]uint8{1, 7, 0}, "201"},
		{[3]uint8{3, 2, 2}, "120"},
	} {
		r := newRig(t, Options{CacheBytes: 64 << 20, Policy: Policy{CopyBytes: 1 << 20, CopyPieces: 4, CopyReads: 1}}, true)
		r.pool("p", PoolSpec{CopyData: true, Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 30, Bandwidth: 100 << 20}}}, 0)
		v, w := r.volume("v", "p", 1<<30, true), r.volume("w", "p", 1<<30, true)
		const n = 32 << 20 / block.SectorSize
		if err := v.Import(rng(0, n)); err != nil {
			t.Fatal(err)
		}
		h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, n)}}
		mustOK(t, r.do(v, h))
		order := ""
		for i, priority := range c.priority {
			w.Submit([]*block.Request{{Op: block.OpPlace, Range: rng(uint64(i)*n, n), Ref: h.Ref, Origin: block.OriginXCopy, Priority: priority,
				Done: func(q *block.Request) { mustOK(t, q.Status); order += string(rune('0' + i)) }}})
		}
		r.clock.Run()
		h.Ref.Release()
		if order != c.order {
			t.Errorf("priorities %v: copies end in the order %s, not %s", c.priority, order, c.order)
		}
		r.check()
	}
}

// TestMirrorLost: without a mirror a write is acknowledged when the back end has it.
func TestMirrorLost(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 32 << 20}, false)
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 1 << 30, Bandwidth: 10 << 20}}}, 0)
	v := r.volume("v", "p", 1<<29, true)
	mustOK(t, r.do(v, write(0, 2048)))
	r.a.SetMirrored(false)
	from := r.clock.Now()
	mustOK(t, r.do(v, write(4096, 2048)))
	if took := r.clock.Now() - from; took < 1e8 {
		t.Errorf("1 MiB was acknowledged after %d ms: an mdisk of 10 MiB/s cannot have it", took/1e6)
	}
	r.clock.RunUntil(r.clock.Now() + 1e9)
	if p.Part.Reserve.Used() != 0 {
		t.Error("what was written through stays in the reserve")
	}
	row := flowOf(v, block.OriginHost)
	if row.WriteThrough != 1<<20 || row.Fast != 1<<20 {
		t.Errorf("%d bytes were counted as written through, %d as fast", row.WriteThrough, row.Fast)
	}
	r.a.SetMirrored(true)
	from = r.clock.Now()
	mustOK(t, r.do(v, write(8192, 2048)))
	if took := r.clock.Now() - from; took > 1e6 {
		t.Errorf("with the mirror back a write took %d ms", took/1e6)
	}
	r.check()
}

// TestOfflineMdisk: what is dirty for it stays pinned and readable, what lies on it is
// offline and not a medium error, and all goes on when it comes back.
func TestOfflineMdisk(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 32 << 20}, false)
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m0", Size: 1 << 30}, {Name: "m1", Size: 1 << 30}}}, 0)
	v := r.volume("v", "p", 1<<29, true)
	mustOK(t, r.do(v, write(0, 2048))) // in the first extent, on m0
	r.a.Drain(func() {})
	r.clock.Run()
	mustOK(t, r.do(v, write(2048, 2048))) // the same extent, dirty
	if err := p.SetMdiskOffline("m0", true); err != nil {
		t.Fatal(err)
	}
	r.clock.RunUntil(r.clock.Now() + 5e9)
	if p.Part.Pinned() != 256 {
		t.Errorf("%d pages are pinned, 256 were dirty", p.Part.Pinned())
	}
	buf := make([]byte, 2048*512)
	mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(2048, 2048), Data: [][]byte{buf}}))
	if s := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 2048), Data: [][]byte{buf}}); s != block.Offline {
		t.Errorf("a read of what lies on the lost mdisk ended %v", s)
	}
	if s := r.do(v, write(0, 8)); s != block.Offline {
		t.Errorf("a write to it ended %v", s)
	}
	mustOK(t, r.do(v, write(1<<16, 2048))) // new space, on the other mdisk
	drained := false
	r.a.Drain(func() { drained = true })
	r.clock.RunUntil(r.clock.Now() + 5e9)
	if !drained || p.Part.Pinned() != 256 {
		t.Errorf("drained: %v, %d pages pinned", drained, p.Part.Pinned())
	}
	if err := p.SetMdiskOffline("m0", false); err != nil {
		t.Fatal(err)
	}
	r.clock.Run()
	if p.Part.Pinned() != 0 || r.a.Dirty() != 0 {
		t.Errorf("after its return %d pages are pinned and %d bytes dirty", p.Part.Pinned(), r.a.Dirty())
	}
	mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 2048), Data: [][]byte{buf}}))
	r.check()
}

// TestPoolsComeAndGo: caps move at once with the number of pools, and a pool above the
// new cap drains to it.
func TestPoolsComeAndGo(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 64 << 20, DestageStart: 100}, true)
	p := r.pool("p", PoolSpec{}, 4<<30)
	v := r.volume("v", "p", 1<<30, true)
	drive(r, v, 1<<30, 6e7, block.OriginHost)
	r.clock.RunUntil(r.clock.Now() + 8e7)
	full := p.Part.Room.Used()
	if full < 14000 {
		t.Fatalf("only %d pages are used", full)
	}
	r.a.CreatePool(PoolSpec{Name: "q", Mdisks: []MdiskSpec{{Name: "m", Size: 1 << 30}}}, func(_ *Pool, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Part.Limit() != 64<<20/4096*66/100 {
			t.Errorf("with two pools the cap is %d pages", p.Part.Limit())
		}
	})
	r.clock.RunUntil(r.clock.Now() + 5e8)
	if p.Part.Room.Used() > p.Part.Limit() {
		t.Errorf("%d pages are used, the cap is %d", p.Part.Room.Used(), p.Part.Limit())
	}
	q := r.a.Pool("q")
	r.a.DeletePool(p, func(err error) {
		if err == nil {
			t.Error("a pool with volumes was deleted")
		}
	})
	r.a.DeletePool(q, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.clock.Run()
	if p.Part.Limit() != 64<<20/4096 || r.a.Pool("q") != nil {
		t.Errorf("after the deletion the cap is %d pages", p.Part.Limit())
	}
	r.crash()
	r.check()
}
