package rados_test

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// TestFullPoolRecovers: what is dirty and has no room in a full pool finds it when another volume is deleted, in the same
// life and in the next one.
func TestFullPoolRecovers(t *testing.T) {
	for _, crash := range []bool{false, true} {
		r := newArrayRig(t, simulated.Options{Latency: 2e6}, 8<<20)
		r.write("v", 0, 24<<11, 1)
		r.write("w", 0, 4096, 2)
		r.x.Run()
		r.c.SetCapacity(r.c.Used())
		r.write("w", 32<<11, 2048, 3)
		r.x.RunUntil(r.x.Now() + 10e9)
		if crash {
			r.crash()
			r.c.SetCapacity(r.c.Used() + 128<<10) // what the start has given up of the reserve others have
			r.x.RunUntil(r.x.Now() + 10e9)
		}
		if r.a.Dirty() == 0 {
			t.Fatal("it finds room: nothing is shown")
		}
		if !r.remove("v") {
			t.Fatal("the volume was not deleted")
		}
		r.x.RunUntil(r.x.Now() + 120e9)
		if n := r.a.Dirty(); n != 0 {
			t.Errorf("crash %v: %d bytes are dirty though a volume was deleted", crash, n)
		}
		r.expect("w", 32<<11, 3)
		r.expect("w", 0, 2)
		r.check()
	}
}

// TestManyDeathsInAFullPool: an array starts in a full pool however often it has died there: the list of those who are
// fenced grows, and with it the head.
func TestManyDeathsInAFullPool(t *testing.T) {
	r := newArrayRig(t, simulated.Options{Latency: 2e6}, 8<<20)
	r.self = rados.Owner{Host: "here", Process: "a process of a name that is long, as those of machines and boots are together"}
	r.write("v", 0, 16<<11, 1)
	for life := range 60 {
		r.c.SetCapacity(0)
		r.x.RunUntil(r.x.Now() + 10e9) // the reserve is there again
		r.c.SetCapacity(r.c.Used())
		r.s.client.Kill()
		if err := r.open(); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
	}
	r.expect("v", 4096, 1)
	if !r.remove("v") {
		t.Fatal("the volume was not deleted")
	}
	r.check()
}

// TestHeadGrowsInAFullPool: a change of the head that needs more room than it has finds it in the reserve.
func TestHeadGrowsInAFullPool(t *testing.T) {
	r := newArrayRig(t, simulated.Options{Latency: 2e6}, 8<<20)
	before := 0
	for i := range 40 {
		room := r.c.Used() - before // for the object map: the first one shows how much it takes
		if before = r.c.Used(); i > 1 {
			r.c.SetCapacity(before + room + 100)
		}
		failed := block.ErrFull
		name := "a name that is long, so that the head soon has no room for it any more, of mdisk " + string(rune('A'+i))
		r.s.MakeMedium(name, 64<<20, func(err error) { failed = err })
		r.x.RunUntil(r.x.Now() + 30e9)
		if failed != nil {
			t.Fatalf("mdisk %d cannot be made: %v", i, failed)
		}
		r.c.SetCapacity(0)
		r.x.RunUntil(r.x.Now() + 30e9)
	}
}
