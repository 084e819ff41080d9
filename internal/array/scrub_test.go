package array

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestScrubStepIsShort: a step of a scrub costs what it reads, though all of a large volume lies in one piece on its mdisk.
func TestScrubStepIsShort(t *testing.T) {
	const size, steps = 32 << 30, 100
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: size}}}, 0)
	v := r.volume("v", "p", size, true)
	for w := range uint64(size / layout.GrainBytes) {
		g, ok := v.Map.Allocate(w)
		if !ok {
			t.Fatal("there is no space")
		}
		v.Map.SetData(rng(w<<layout.WindowShift, layout.WindowSectors), g<<layout.WindowShift)
	}
	v.Account()
	if n := v.Map.Entries(v.Spec.Sectors); n > 10 {
		t.Fatalf("the volume lies in %d pieces: nothing is shown", n)
	}
	s := r.a.StartScrub(layout.PieceSectors*block.SectorSize*1000, func(*Scrub) { t.Error("it has ended") })
	began := time.Now()
	r.clock.RunUntil(r.clock.Now() + 2e6 + steps*1e6)
	if took := time.Since(began); s.Read() < steps*layout.PieceSectors*block.SectorSize || took > time.Second {
		t.Errorf("%d bytes are read in %v", s.Read(), took)
	}
	s.Stop()
}

// TestScrubReadsAllDataOnce: a scrub of maps of anything reads what lies on the mdisks, and nothing twice.
func TestScrubReadsAllDataOnce(t *testing.T) {
	seed := testkit.Seed(t)
	for round := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, round))
		r := newRig(t, Options{LeafBytes: 1 + rnd.Uint64N(2)*5000}, false)
		r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}, {Name: "n", Size: 32 << 20}}}, 0)
		const sectors = 80 << 11
		v := r.volume("v", "p", 40<<20, true)
		w := r.volume("w", "p", 40<<20, rnd.IntN(2) == 0)
		for range 100 {
			to := []*Volume{v, w}[rnd.IntN(2)]
			at := rnd.Uint64N(sectors / 2)
			n := min(1+rnd.Uint64N(1<<rnd.IntN(12)), sectors/2-at)
			if rnd.IntN(2) == 0 {
				at &^= layout.WindowSectors - 1
			}
			q := written(at, n, byte(rnd.Uint32()))
			switch rnd.IntN(6) {
			case 0:
				q = unmap(0, rng(at, n))
			case 1:
				q = &block.Request{Op: block.OpWriteSame, Range: rng(at, n)}
			}
			mustOK(t, r.do(to, q))
		}
		r.clock.Run()
		if n := r.a.Dirty(); n != 0 {
			t.Fatalf("-seed %d, round %d: %d bytes are dirty", seed, round, n)
		}
		ended := false
		s := r.a.StartScrub(0, func(s *Scrub) {
			ended = true
			if s.Bad > 0 {
				t.Errorf("-seed %d, round %d: %d sectors are bad", seed, round, s.Bad)
			}
		})
		r.clock.Run()
		if !ended || s.Total == 0 || s.Read() != s.Total {
			t.Errorf("-seed %d, round %d: ended %v, %d bytes of %d are read", seed, round, ended, s.Read(), s.Total)
		}
		r.check()
	}
}
