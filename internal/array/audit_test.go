package array

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// checkAmong runs a check in steps with something done between each two, and returns what it found and
// how many steps it took.
func (r *rig) checkAmong(do func()) (Report, int) {
	v, steps := r.a.NewVerify(false), 0
	for more := true; more; steps++ {
		ended := false
		v.Step(func(m bool) { more, ended = m, true })
		for !ended && r.clock.Step() {
		}
		do()
	}
	return v.Report(), steps
}

// TestCheckWhileHostsWrite: a check of a map that takes several steps finds nothing that is not there
// while hosts write, overwrite, clone and unmap, volumes among it; and then finds a reference that is
// counted too often.
func TestCheckWhileHostsWrite(t *testing.T) {
	const leaves, leaf = 200, 256 * windowSectors
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 11))
	r := newRig(t, Options{CacheBytes: 1 << 20}, false)
	p := r.pool("p", PoolSpec{}, 64<<20)
	v, thick := r.volume("v", "p", leaves*leaf*512, true), r.volume("thick", "p", 8<<20, false)
	for i := range uint64(leaves) {
		mustOK(t, r.do(v, write(i*leaf, 8)))
	}
	change := func() {
		at := rnd.Uint64N(leaves)*leaf + rnd.Uint64N(4)*windowSectors/2
		switch rnd.IntN(6) {
		case 0:
			mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(at, rnd.Uint64N(leaf))}}))
		case 1: // what lies on both sides of where the check is
			n := min(rnd.Uint64N(40)*leaf, leaves*leaf-at)
			mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(at, n)}}))
		case 2:
			h := r.holdOf(v, rng(at, 500))
			mustOK(t, r.do(v, &block.Request{Op: block.OpPlace, Range: rng(rnd.Uint64N(leaves)*leaf, 500), Ref: h}))
			h.Release()
		case 3:
			mustOK(t, r.do(thick, write(rnd.Uint64N(8<<20/512-100), 1+rnd.Uint64N(100))))
		default:
			mustOK(t, r.do(v, write(at, 1+rnd.Uint64N(100))))
		}
		if name := "other"; rnd.IntN(20) == 0 {
			if o := r.a.Volume(name); o != nil {
				r.a.DeleteVolume(o, func(error) {})
			} else {
				mustOK(t, r.do(r.volume(name, "p", 1<<20, rnd.IntN(2) == 0), write(0, 300)))
			}
		}
	}
	// Beside those of the maps and of the space a check has six steps.
	if _, steps := r.checkAmong(func() {}); steps < 6+leaves/32 {
		t.Errorf("the check of %d leaves takes %d steps", leaves, steps)
	}
	for range 20 {
		report, _ := r.checkAmong(change)
		for _, why := range report.Problems {
			t.Error(why)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	r.clock.Run()
	g := uint64(0)
	for p.Alloc.MapRefs(g) == 0 {
		g++
	}
	p.Alloc.Retain(g)
	if report, _ := r.checkAmong(func() {}); !slices.ContainsFunc(report.Problems, func(s string) bool { return strings.Contains(s, "references, the maps have") }) {
		t.Errorf("a reference too many is not found: %q", report.Problems)
	}
}
