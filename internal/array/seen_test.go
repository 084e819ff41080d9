package array

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// seenWrite is a command that changes a volume, as its readers may see it.
type seenWrite struct {
	n      int // in the order in which they were begun
	vol    int
	ranges []block.Range
	whole  bool // a reader finds all of it, or nothing
	begun  int
	ended  int // 0: not yet
	what   string
}

// seenVersion is what a command has made of a sector.
type seenVersion struct {
	by    *seenWrite // nil: nobody has written it
	stamp uint64
}

// seen is a program of commands with readers beside them.
type seen struct {
	t     *testing.T
	r     *rig
	rnd   *rand.Rand
	vols  []*Volume
	has   [][][]seenVersion // by volume and sector, the oldest first
	busy  []*seenWrite
	now   int // events that the readers tell apart
	made  int
	reads int
	torn  int // reads that saw something of a command under way
}

const seenSectors = 3000

// TestReadersBesideWriters: a READ beside commands that change what it reads finds of each sector what it had when the READ
// began, or what it got until it ended. A map edit, a WRITE ATOMIC, a COMPARE AND WRITE and a write inside 256 KiB it finds
// whole, or not at all.
func TestReadersBesideWriters(t *testing.T) {
	base := testkit.Seed(t)
	runs := 24
	if testing.Short() || underRace {
		runs = 6
	}
	total := 0
	for n := range runs {
		seed := base + uint64(n)
		s := &seen{t: t, rnd: rand.New(rand.NewPCG(seed, 3))}
		s.run(seed)
		total += s.torn
		if t.Failed() {
			t.Fatalf("-seed %d", seed)
		}
	}
	if total == 0 {
		t.Error("no reader has met a writer")
	}
}

func (s *seen) run(seed uint64) {
	opt := Options{CacheBytes: []int64{1 << 20, 4 << 20}[s.rnd.IntN(2)], LogBytes: 64 << 10, Policy: randomPolicy(s.rnd)}
	opt.Policy.Budget.Pressure = true // without it an offload may wait for ever
	s.r = newRig(s.t, opt, false)
	disk := MdiskSpec{Name: "m", Size: 64 << 20, Bandwidth: []uint64{0, 2 << 20, 20 << 20}[s.rnd.IntN(3)]}
	s.r.pool("p", PoolSpec{CopyData: seed%2 == 0, Mdisks: []MdiskSpec{disk}}, 0)
	for i := range 2 {
		s.vols = append(s.vols, s.r.volume(fmt.Sprintf("v%d", i), "p", seenSectors*512, i == 0))
		s.has = append(s.has, make([][]seenVersion, seenSectors))
		for at := range seenSectors {
			s.has[i][at] = []seenVersion{{}}
		}
	}
	left := 0
	for range 500 {
		switch k := s.rnd.IntN(20); {
		case k < 7:
			s.write(&left)
		case k < 14:
			s.read(&left)
		case k == 14:
			s.r.a.checkpoint(true)
		case k == 15:
			s.r.clock.RunUntil(s.r.clock.Now() + s.rnd.Int64N(1e9))
		}
		for range s.rnd.IntN(3) {
			s.r.clock.Step()
		}
		if s.t.Failed() {
			return
		}
	}
	s.r.clock.RunUntil(s.r.clock.Now() + 120e9)
	if left != 0 {
		s.t.Errorf("%d commands never ended", left)
	}
	s.r.check()
}

// tick returns the number of an event.
func (s *seen) tick() int {
	s.now++
	return s.now
}

func (s *seen) span(limit uint64) block.Range {
	n := 1 + s.rnd.Uint64N(limit)
	at := s.rnd.Uint64N(seenSectors - n)
	if s.rnd.IntN(3) == 0 {
		at &^= 127
	}
	return rng(at, n)
}

// isFree reports whether no command under way changes a range.
func (s *seen) isFree(vol int, g block.Range) bool {
	return !slices.ContainsFunc(s.busy, func(w *seenWrite) bool {
		return w.vol == vol && slices.ContainsFunc(w.ranges, g.Overlaps)
	})
}

// last returns what a sector has when all is done.
func (s *seen) last(vol int, at uint64) seenVersion {
	vs := s.has[vol][at]
	return vs[len(vs)-1]
}

// write begins a command that changes something which no other one changes.
func (s *seen) write(left *int) {
	w := &seenWrite{n: s.made, vol: s.rnd.IntN(2)}
	g := s.span([]uint64{8, 200, 500}[s.rnd.IntN(3)])
	if !s.isFree(w.vol, g) {
		return
	}
	v, q := s.vols[w.vol], &block.Request{Op: block.OpWrite, Range: g}
	w.ranges, w.whole = []block.Range{g}, true
	stamps := make([]uint64, g.Count)
	fresh := func() {
		s.made++
		buf := make([]byte, g.Bytes())
		for i := range stamps {
			stamps[i] = uint64(s.made)<<20 | uint64(i)
			fillStamp(buf[i*512:(i+1)*512], stamps[i])
		}
		q.Data = [][]byte{buf}
	}
	switch k := s.rnd.IntN(12); {
	case k < 3:
		fresh()
		w.whole = g.Start/pieceSectors == (g.End()-1)/pieceSectors
	case k < 5:
		fresh()
		q.Flags = block.Atomic
	case k < 7:
		fresh()
		was := make([]byte, g.Bytes())
		for i := range stamps {
			fillStamp(was[i*512:(i+1)*512], s.last(w.vol, g.Start+uint64(i)).stamp)
		}
		q.Op, q.Compare = block.OpCompareWrite, [][]byte{was}
	case k < 8:
		q.Op = block.OpWriteSame
	case k < 9:
		q.Op, q.Range, q.Ranges = block.OpUnmap, block.Range{}, nil
		for at := g.Start; at < g.End(); at += 3 {
			q.Ranges = append(q.Ranges, rng(at, min(2, g.End()-at)))
		}
		w.ranges = q.Ranges
	default:
		from := s.rnd.IntN(2)
		src := rng(s.rnd.Uint64N(seenSectors-g.Count), g.Count)
		if s.rnd.IntN(2) == 0 {
			src.Start = src.Start&^127 + g.Start&127
		}
		if src.End() > seenSectors || !s.isFree(from, src) {
			return
		}
		h := &block.Request{Op: block.OpHold, Ranges: []block.Range{src}, Done: func(*block.Request) {}}
		s.vols[from].Submit([]*block.Request{h})
		for i := range stamps {
			stamps[i] = s.last(from, src.Start+uint64(i)).stamp
		}
		q.Op, q.Ref, q.Origin = block.OpPlace, h.Ref, block.OriginXCopy
		w.whole = !v.Pool().CopyData
	}
	w.what, w.begun = fmt.Sprint(q.Op, " ", g), s.tick()
	for _, x := range w.ranges {
		for at := x.Start; at < x.End(); at++ {
			s.has[w.vol][at] = append(s.has[w.vol][at], seenVersion{w, stamps[at-g.Start]})
		}
	}
	s.busy = append(s.busy, w)
	*left++
	q.Done = func(q *block.Request) {
		*left--
		if q.Status != block.OK {
			s.t.Errorf("%s ended %v", w.what, q.Status)
		}
		if q.Ref != nil {
			q.Ref.Release()
		}
		w.ended = s.tick()
		s.busy = slices.DeleteFunc(s.busy, func(o *seenWrite) bool { return o == w })
	}
	v.Submit([]*block.Request{q})
}

// read begins a READ, and looks at what it brings.
func (s *seen) read(left *int) {
	vol, g := s.rnd.IntN(2), s.span([]uint64{8, 200, 700}[s.rnd.IntN(3)])
	if n := len(s.busy); n > 0 && s.rnd.IntN(4) > 0 { // of what changes just now
		w := s.busy[s.rnd.IntN(n)]
		vol, g = w.vol, w.ranges[0]
		g.Count = min(g.Count+s.rnd.Uint64N(300), seenSectors-g.Start)
	}
	begun, got := s.tick(), make([]byte, g.Bytes())
	*left++
	s.vols[vol].Submit([]*block.Request{{Op: block.OpRead, Range: g, Data: [][]byte{got}, Done: func(q *block.Request) {
		*left--
		if q.Status != block.OK {
			s.t.Errorf("a read of %v ended %v", g, q.Status)
			return
		}
		s.reads++
		s.look(vol, g, got, begun)
	}}})
}

// look compares what a read has brought with what it may have found.
func (s *seen) look(vol int, g block.Range, got []byte, begun int) {
	type sight struct{ before, since bool } // the read found what was before a command, or what it made, or more
	sights := map[*seenWrite]sight{}
	for i := range g.Count {
		at := g.Start + i
		vs := s.has[vol][at]
		oldest := 0 // the last version that was certain when the read began
		for k, v := range vs {
			if v.by == nil || v.by.ended != 0 && v.by.ended < begun {
				oldest = k
			}
		}
		stamp := le.Uint64(got[i*512:])
		found, times := -1, 0
		for k := oldest; k < len(vs); k++ {
			if vs[k].stamp == stamp {
				found, times = k, times+1
			}
		}
		if times > 1 { // nobody knows which of them it was
			continue
		}
		if found < 0 {
			s.t.Errorf("sector %d of volume %d has %x, which is none of %d versions from %v on", at, vol, stamp, len(vs)-oldest, vs[oldest].by)
			return
		}
		for k := oldest + 1; k < len(vs); k++ {
			if w := vs[k].by; w.whole && vs[k].stamp != vs[k-1].stamp {
				x := sights[w]
				x.before, x.since = x.before || found < k, x.since || found >= k
				sights[w] = x
			}
		}
	}
	for w, x := range sights {
		s.torn++
		if x.before && x.since {
			s.t.Errorf("a read of %v of volume %d finds a part of command %d: %s", g, vol, w.n, w.what)
		}
	}
}
