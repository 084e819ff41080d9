package alloc

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// computed is the processor time that this thread has taken, whatever else the machine does.
func computed(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestTakeInANearlyFullSpace: what a grain costs does not depend on how many extents have none. Here nearly all of a
// million have none, and no two that are taken lie in one extent.
func TestTakeInANearlyFullSpace(t *testing.T) {
	const takes = 4000
	s := New([]int{MaxExtents}, Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
	for e := range uint32(MaxExtents) {
		grains := allocatedFull
		if e%(MaxExtents/takes) == 0 {
			grains &^= 1 << (e % layout.ExtentGrains)
		}
		s.use(e, grains)
	}
	tenant := s.AddTenant(1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := computed(t)
	for n := range takes {
		if _, ok := s.Take(tenant); !ok {
			t.Fatalf("take %d finds none", n)
		}
	}
	// With a look at each extent it was a millisecond each.
	if took := computed(t) - begin; took > time.Second {
		t.Errorf("%d takes last %v", takes, took)
	}
}

// TestCountsOfALargeSpace: a check that comes by the last grain of a large space makes no more of its counts than what is near:
// hosts wait for that.
func TestCountsOfALargeSpace(t *testing.T) {
	s := New([]int{MaxExtents}, Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
	last := uint64(s.Grains()) - 1
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := s.NewCounts()
	c.Add(last)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100<<10 {
		t.Errorf("one reference takes %d bytes", n)
	}
	if c.Of(0) != 0 || c.Of(last) != 1 || !c.Sub(last) || c.Sub(last) {
		t.Error("it is counted wrongly")
	}
}
