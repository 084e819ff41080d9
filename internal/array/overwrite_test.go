package array

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// capKept says which partition holds more than its cap, and more than at the last call: what it overwrites needs no
// room, but nothing takes more than there is. A piece may go in alone, and a start finds what it finds: then a partition
// still has its floor to itself (wcache.Pot), but nobody borrows.
type capKept struct {
	used  map[*Pool]int
	limit map[*Pool]int
	all   int
	// Pages that partitions have above their floors, pages of the floors, and how many there are.
	lent, floors, room int
}

func (c *capKept) look(a *Array) (what string) {
	was := *c
	*c = capKept{used: map[*Pool]int{}, limit: map[*Pool]int{}, all: a.cache.Room().Used(), room: a.cache.Room().Limit()}
	for _, p := range a.Pools() {
		n, floor := p.Part.Room.Used(), p.Part.Room.Floor()
		c.lent += max(0, n-floor)
		c.floors += floor
		c.used[p], c.limit[p] = n, p.Part.Limit()
		if n > c.limit[p] && n > was.used[p] && c.limit[p] >= was.limit[p] && n > pieceSectors/8+1 {
			what = fmt.Sprintf("pool %s holds %d pages of %d, and held %d", p.Name(), n, c.limit[p], was.used[p])
		}
	}
	// What there is is never above the room but for what a start has found, and for floors that have changed.
	if c.floors == was.floors && c.room == was.room && c.lent > was.lent && c.floors+c.lent > c.room {
		what = fmt.Sprintf("the cache holds %d pages of %d, and held %d: %d of them are borrowed beside floors of %d, and %d were",
			c.all, c.room, was.all, c.lent, c.floors, was.lent)
	}
	return what
}

// tear is where a swarm writes 256 KiB, has the grains or the pages of them torn apart, and writes them again.
type tear struct {
	vol   int
	at    block.Range
	stage int
}

// launchTear sends the next command of a tear, when nothing is under way there.
func (s *swarm) launchTear(f *flight) {
	const w = windowSectors
	t := &s.tear
	if t.stage == 0 {
		t.vol = s.rnd.IntN(len(s.vols))
		t.at = rng(s.rnd.Uint64N(s.sectors[t.vol]-4*w)&^(w-1), 4*w)
	}
	if !s.free(t.vol, t.at, true) {
		return
	}
	f.vol = t.vol
	q := f.req
	switch n := s.rnd.IntN(2); {
	case t.stage != 1:
		s.stamp++
		after := make([]uint64, t.at.Count)
		buf := make([]byte, t.at.Bytes())
		for i := range after {
			after[i] = s.stamp<<20 | uint64(i)
			fillStamp(buf[i*512:(i+1)*512], after[i])
		}
		q.Op, q.Range, q.Data = block.OpWrite, t.at, [][]byte{buf}
		f.at, f.after = []block.Range{t.at}, [][]uint64{after}
	case n == 0:
		q.Op = block.OpUnmap
		for i := uint64(0); i < w; i += 2 {
			f.at, f.after = append(f.at, rng(t.at.Start+i, 1)), append(f.after, make([]uint64, 1))
		}
		q.Ranges = f.at
	default:
		src := rng(t.at.Start+w, 3*w)
		dst := rng(s.rnd.Uint64N(s.sectors[t.vol]-src.Count)&^(w-1), src.Count)
		if dst.Overlaps(t.at) || !s.free(t.vol, dst, true) {
			return
		}
		h := s.hold(t.vol, src)
		q.Op, q.Range, q.Ref, q.Origin = block.OpPlace, dst, h.Ref, block.OriginXCopy
		f.src = &flightSource{t.vol, src}
		q.Done = func(*block.Request) { s.ended(f); h.Ref.Release() }
		f.at, f.after = []block.Range{dst}, [][]uint64{append([]uint64(nil), s.stamps[t.vol][src.Start:src.End()]...)}
	}
	t.stage = (t.stage + 1) % 3
	s.flights = append(s.flights, f)
	s.batch[t.vol] = append(s.batch[t.vol], q)
}

// TestOverwritesKeepTheCap: a full partition takes what overwrites dirty pages, and not what only seems to.
func TestOverwritesKeepTheCap(t *testing.T) {
	const w = windowSectors
	type full struct {
		*rig
		v, other *Volume
		fill     func()
		start    func(*block.Request) bool
	}
	alternate := func(n uint64) (list []block.Range) {
		for i := uint64(0); i < n; i += 2 {
			list = append(list, rng(i, 1))
		}
		return list
	}
	for _, row := range []struct {
		name string
		pol  Policy
		do   func(f *full)
		ends bool
	}{
		{"all pages are dirty", Policy{}, func(f *full) {
			mustOK(f.t, f.do(f.v, write(0, 4*w)))
			f.fill()
			f.start(write(0, 4*w))
		}, true},
		{"a clone has some of its grains", Policy{}, func(f *full) {
			mustOK(f.t, f.do(f.v, write(0, 4*w)))
			mustOK(f.t, f.clone(f.v, f.other, rng(w, 3*w)))
			f.fill()
			f.start(write(0, 4*w))
		}, false},
		{"its pages have many runs", Policy{}, func(f *full) {
			mustOK(f.t, f.do(f.v, write(0, w)))
			mustOK(f.t, f.do(f.v, unmap(0, alternate(w)...)))
			f.fill()
			f.start(write(0, 4*w))
		}, false},
		{"it goes to another grain than it comes from", Policy{}, func(f *full) {
			mustOK(f.t, f.do(f.v, write(w/2, w/2)))
			mustOK(f.t, f.clone(f.v, f.other, rng(0, w)))
			mustOK(f.t, f.do(f.v, write(0, w/2)))
			mustOK(f.t, f.do(f.other, unmap(0, rng(0, w))))
			f.fill()
			if f.start(write(w/2+4, 4)) == f.start(write(4, 4)) {
				f.t.Error("both halves of the window are written in place, or none")
			}
		}, false},
		{"what it overwrites is in the reserve", Policy{Admission: AdmitThrough}, func(f *full) {
			f.fill()
			if f.start(write(0, 8)) {
				f.t.Error("it does not wait for the mdisk")
			}
			f.start(write(0, 8))
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.pol.DestageDepth, row.pol.DestagePages = 1, 8
			f := &full{}
			var s *stuck
			f.rig, s = stuckRig(t, Options{CacheBytes: 1 << 20, Policy: row.pol})
			p := f.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
			f.pool("q", PoolSpec{}, 64<<20)
			f.v, f.other = f.volume("v", "p", 16<<20, true), f.volume("other", "p", 16<<20, true)
			filler := f.volume("filler", "p", 32<<20, true)
			s.stuck = true
			mustOK(t, f.do(filler, write(0, 128))) // what the mdisk has under way
			next := uint64(128)
			f.fill = func() {
				for p.Part.Room.Used() < p.Part.Limit() {
					mustOK(t, f.do(filler, write(next, 8)))
					next += 8
				}
			}
			ended := false
			f.start = func(q *block.Request) bool { ended = f.rig.start(f.v, q)(); return ended }
			row.do(f)
			if got, limit := p.Part.Room.Used(), p.Part.Limit(); got > limit || row.ends && !ended {
				t.Errorf("the partition holds %d pages of %d; the write has ended: %v", got, limit, ended)
			}
			s.answer()
			f.clock.RunUntil(f.clock.Now() + 90e9)
			if !ended && p.Part.Room.Used() != 0 {
				t.Errorf("%d pages never left", p.Part.Room.Used())
			}
			f.check()
		})
	}
}

// TestFloorOfAFullCache: where one pool has all of the cache, be it that a start has found so, another one still has its floor to
// itself. So the cache holds more pages than there are, by that floor and no more, until the first has destaged.
func TestFloorOfAFullCache(t *testing.T) {
	r, s := stuckRig(t, Options{CacheBytes: 1 << 20})
	full := r.pool("full", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
	v := r.volume("v", "full", 32<<20, true)
	s.stuck = true
	limit := r.a.cache.Room().Limit()
	for at := uint64(0); full.Part.Room.Used() < limit; at += 8 {
		mustOK(t, r.do(v, write(at, 8)))
	}
	r.a.CreatePool(PoolSpec{Name: "other", Mdisks: []MdiskSpec{{Name: "o", Size: 64 << 20}}}, func(_ *Pool, err error) { mustDo(t, err) })
	r.clock.RunUntil(r.clock.Now() + 1e9) // the clock never runs out of events while an mdisk is stuck
	r.a.CreateVolume(VolumeSpec{Name: "w", Pool: "other", Sectors: 1 << 16, Thin: true}, func(_ *Volume, err error) { mustDo(t, err) })
	r.clock.RunUntil(r.clock.Now() + 1e9)

	r.clock = &block.Virtual{}
	r.store = r.store.Clone(r.clock)
	r.opt.Exec, r.opt.Store, s.held = r.clock, &hookedStore{r.store, s.submit}, nil
	a, err := Open(r.opt)
	if err != nil {
		t.Fatal(err)
	}
	r.a = a
	caps := capKept{}
	look := func() {
		t.Helper()
		if what := caps.look(a); what != "" {
			t.Error(what)
		}
	}
	caps.look(a) // what the start found
	a.afterStep = look
	w, room := a.Volume("w"), &a.Volume("w").Pool().Part.Room
	if room.Floor() < 2 || a.cache.Room().Used() != limit {
		t.Fatalf("the start found %d pages of %d, and the floor is %d", a.cache.Room().Used(), limit, room.Floor())
	}
	for i := range uint64(room.Floor()) {
		if !r.start(w, write(i*8, 8))() {
			t.Fatalf("page %d of a floor of %d waits", i, room.Floor())
		}
	}
	more := r.start(w, write(1<<10, 8))
	if got := a.cache.Room().Used(); more() || got != limit+room.Floor() {
		t.Fatalf("the cache holds %d pages of %d, with a floor of %d", got, limit, room.Floor())
	}
	s.answer()
	r.clock.RunUntil(r.clock.Now() + 10e9)
	if got := a.cache.Room().Used(); !more() || got > limit {
		t.Errorf("the cache still holds %d pages of %d; the write that waited has ended: %v", got, limit, more())
	}
}
