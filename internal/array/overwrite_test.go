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
	lent  int // pages above floors
}

func (c *capKept) look(a *Array) (what string) {
	room, lent := a.cache.Room(), 0
	used, limit := map[*Pool]int{}, map[*Pool]int{}
	for _, p := range a.Pools() {
		n := p.Part.Room.Used()
		lent += max(0, n-p.Part.Room.Floor())
		used[p], limit[p] = n, p.Part.Limit()
		if n > limit[p] && n > c.used[p] && limit[p] >= c.limit[p] && n > pieceSectors/8+1 {
			what = fmt.Sprintf("pool %s holds %d pages of %d, and held %d", p.Name(), n, limit[p], c.used[p])
		}
	}
	if n := room.Used(); n > room.Limit() && n > c.all && lent > c.lent {
		what = fmt.Sprintf("the cache holds %d pages of %d, and held %d; %d of them are borrowed, and %d were", n, room.Limit(), c.all, lent, c.lent)
	}
	c.used, c.limit, c.all, c.lent = used, limit, room.Used(), lent
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
