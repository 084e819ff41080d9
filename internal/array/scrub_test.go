package array

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// threadTime returns what the thread has had of a processor, in nanoseconds.
func threadTime(t *testing.T) int64 {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// TestScrubOfALongRun: a step of a scrub costs what it reads, however long the run is that it is in.
func TestScrubOfALongRun(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const steps = 100
	cost := func(sectors uint64) (ns int64) {
		r := newRig(t, Options{}, false)
		p := r.pool("p", PoolSpec{}, 64<<30)
		v := r.volume("v", "p", sectors*512, true)
		v.Map.SetData(rng(0, sectors), 0)
		s := r.a.StartScrub(0, func(*Scrub) {})
		begin := threadTime(t)
		for s.Read() < steps*pieceSectors*512 {
			if !r.clock.Step() {
				t.Fatalf("the scrub ends after %d bytes", s.Read())
			}
		}
		ns = threadTime(t) - begin
		s.Stop()
		if n := p.Alloc.MapRefs(0); n != 1 {
			t.Fatalf("the first grain has %d references", n)
		}
		return ns
	}
	cost(2 * steps * pieceSectors)
	small, large := cost(2*steps*pieceSectors), cost(100*2*steps*pieceSectors)
	t.Logf("%d steps take %d us, and %d us in a run 100 times as long", steps, small/1000, large/1000)
	if large > 5*small+50_000_000 { // such times come in clock ticks
		t.Errorf("%d steps take %d us, and %d us in a run 100 times as long", steps, small/1000, large/1000)
	}
}

// TestScrubReadsAllDataOnce: a scrub of maps of anything reads what lies on the mdisks, and nothing twice.
func TestScrubReadsAllDataOnce(t *testing.T) {
	seed := testkit.Seed(t)
	for round := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, round))
		r := newRig(t, Options{LeafBytes: 1 + rnd.Uint64N(2)*5000, MapBytes: round % 3 / 2}, false)
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
