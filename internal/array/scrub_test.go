package array

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
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
