package alloc

import (
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array/layout"
)

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
	begin := time.Now()
	for n := range takes {
		if _, ok := s.Take(tenant); !ok {
			t.Fatalf("take %d finds none", n)
		}
	}
	// With a look at each extent it was a millisecond each.
	if took := time.Since(begin); took > time.Second {
		t.Errorf("%d takes last %v", takes, took)
	}
}
