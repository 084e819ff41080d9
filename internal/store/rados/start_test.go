package rados_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// holder returns the cookie of who has the array's lock now; "": nobody has.
func holder(t *testing.T, cl *simulated.Client) string {
	t.Helper()
	list, err := cl.Lockers("array", "owner")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		return ""
	}
	return list[0].Cookie
}

// reaches lets time go by, a little at a time, until something is true, for a second at the most.
func reaches(v *block.Virtual, until func() bool) bool {
	for end := v.Now() + 1e9; !until() && v.Now() < end; {
		v.RunUntil(v.Now() + 50e3)
	}
	return until()
}

// TestTakerStops: a taker that is stopped between its lock and its raise of the epoch, and goes on when another one takes
// over from it, with monitors that take their time, never serves beside that one.
func TestTakerStops(t *testing.T) {
	stopped, both := 0, 0
	for seed := range uint64(120) {
		rnd := rand.New(rand.NewPCG(seed, 41))
		c, v := simulated.New(simulated.Options{Latency: 1e6}, rnd), &block.Virtual{}
		eye := c.Connect(v, "array")
		first := stand(c, v, 1, nil)
		if !reaches(v, first.serves) {
			t.Fatal(first.err)
		}
		first.Go(func() { first.err = first.s.Close() }) // so that the taker has nobody to keep out, which takes it time
		if !reaches(v, func() bool { return holder(t, eye) == "" }) {
			t.Fatal(first.err)
		}
		first.end()
		a := stand(c, v, 2, nil)
		if !reaches(v, func() bool { return strings.HasPrefix(holder(t, eye), "p2.") }) {
			t.Fatalf("seed %d: the taker does not get the lock: %v", seed, a.err)
		}
		v.RunUntil(v.Now() + rnd.Int64N(3e6))
		a.Stop()
		if a.s == nil {
			stopped++
		}
		b := stand(c, v, 3, nil)
		c.SetMonitor(rnd.Int64N(3e9))
		v.At(v.Now()+9e9+rnd.Int64N(6e9), a.Continue)
		for end := v.Now() + 40e9; v.Now() < end; v.RunUntil(v.Now() + 20e6) {
			if a.serves() && b.serves() {
				both++
				t.Errorf("seed %d: two serve at %d ms", seed, v.Now()/1e6)
				break
			}
		}
		if !a.serves() && !b.serves() {
			t.Errorf("seed %d: nobody serves: %v, %v", seed, a.err, b.err)
		}
		a.end()
		b.end()
	}
	t.Logf("%d of 120 takers were stopped before they had the array; %d served beside another one", stopped, both)
	if stopped < 30 {
		t.Error("the test does not get there")
	}
}

// TestFirstOwnerEnds: the first owner of a new array that dies, or stops, at any moment of its start is taken over from when
// a lease has gone by, by one that cannot know of its death.
func TestFirstOwnerEnds(t *testing.T) {
	for _, dies := range []bool{true, false} {
		locked := 0
		for step := int64(0); ; step++ {
			c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
			a := stand(c, v, 1, nil)
			v.RunUntil(step * 200e3)
			over := a.s != nil
			if strings.HasPrefix(holder(t, c.Connect(v, "array")), "p1.") && !over {
				locked++
			}
			if dies {
				a.end()
			} else {
				a.Stop()
			}
			b := stand(c, v, 2, nil)
			if v.RunUntil(v.Now() + 15e9); !b.serves() {
				t.Errorf("behind the end of the first owner at %d us (by death: %v) nobody serves: %v", step*200, dies, b.err)
			}
			a.Continue()
			if v.RunUntil(v.Now() + 20e9); !b.serves() || a.serves() {
				t.Errorf("the first owner that was stopped at %d us goes on, and serves %v beside %v", step*200, a.serves(), b.serves())
			}
			a.end()
			b.end()
			if over || t.Failed() {
				break
			}
		}
		if locked < 5 {
			t.Errorf("the test does not get there: %d ended with the lock and no epoch", locked)
		}
	}
}
