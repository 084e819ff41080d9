package array

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
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

// TestBadSectorsWrittenDuringACheck: a check does not name a sector that was bad when it began to look for whose it is, and was
// written again or given to another volume before it had found that.
func TestBadSectorsWrittenDuringACheck(t *testing.T) {
	for name, row := range map[string]struct {
		change func(r *rig, v, w *Volume)
		bad    int
	}{
		"left alone": {func(*rig, *Volume, *Volume) {}, 2},
		"written":    {func(r *rig, v, _ *Volume) { mustOK(r.t, r.do(v, write(3, 1))) }, 1},
		"given away": {func(r *rig, v, w *Volume) {
			mustOK(r.t, r.do(v, unmap(0, rng(0, 2*windowSectors))))
			for at := uint64(0); at < 8<<11; at += windowSectors {
				mustOK(r.t, r.do(w, write(at, windowSectors)))
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{}, false)
			p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 8 << 20}}}, 0)
			v, w := r.volume("v", "p", 8<<20, true), r.volume("w", "p", 8<<20, true)
			mustOK(t, r.do(v, write(0, 2*windowSectors)))
			r.clock.Run()
			for _, s := range []uint64{3, windowSectors + 5} {
				phys := physOf(t, v, s)
				p.Bad.Add(layout.KeyOf(p.ID(), phys), int(phys%layout.PageSectors))
			}
			steps := 0
			_, all := r.checkAmong(func() {})
			report, _ := r.checkAmong(func() {
				if steps++; steps == all-2 { // the search has begun
					row.change(r, v, w)
				}
			})
			if report.BadSectors != row.bad || len(report.Problems) != row.bad {
				t.Errorf("%d sectors are bad: %q", report.BadSectors, report.Problems)
			}
		})
	}
}

// TestChecksAmongAll: checks that go on beside each other while hosts write, copy and unmap, volumes and pools come and go and
// change, checkpoints are made, and some checks are given up, find nothing, and leave nothing behind.
func TestChecksAmongAll(t *testing.T) {
	seed := testkit.Seed(t)
	ended, stopped, checkpoints := 0, 0, 0
	for round := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, round))
		r := newRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10, CheckpointBytes: 4096, LeafBytes: 1 + rnd.Uint64N(2)*50000, MapBytes: round % 2}, false)
		r.a.ckpt.StepNodes = 1
		const leaf = 256 * windowSectors
		made := 0
		var vols []*Volume
		size := func() uint64 { return (1 + rnd.Uint64N(40*leaf)) * 512 }
		addVolume := func(pool string) {
			made++
			thin := rnd.IntN(3) > 0
			n := size()
			if !thin {
				n = 1 << 20
			}
			vols = append(vols, r.volume(fmt.Sprint("v", made), pool, n, thin))
		}
		for _, name := range []string{"p", "q"} {
			r.pool(name, PoolSpec{}, 256<<20)
			addVolume(name)
			addVolume(name)
		}
		change := func() {
			v := vols[rnd.IntN(len(vols))]
			at := rnd.Uint64N(v.Spec.Sectors)
			if rnd.IntN(2) == 0 {
				at = min(at, rnd.Uint64N(leaf))
			}
			left := v.Spec.Sectors - at
			fits := func(s block.Status) {
				if s == block.Hardware {
					t.Fatalf("-seed %d, round %d: %v", seed, round, s)
				}
			}
			switch rnd.IntN(13) {
			case 12:
				r.a.checkpoint(true)
			case 0, 1:
				fits(r.do(v, unmap(0, rng(at, min(left, 1+rnd.Uint64N(leaf<<rnd.IntN(6)))))))
			case 2, 3:
				from := vols[rnd.IntN(len(vols))]
				if from.Pool() != v.Pool() {
					return
				}
				n := min(left, from.Spec.Sectors, 1+rnd.Uint64N(3000))
				h := r.holdOf(from, rng(rnd.Uint64N(from.Spec.Sectors-n+1), n))
				fits(r.do(v, &block.Request{Op: block.OpPlace, Range: rng(at, n), Ref: h}))
				h.Release()
			case 4:
				if rnd.IntN(3) == 0 {
					n := v.Spec.Sectors
					if v.Spec.Thin {
						n = size() / 512
					}
					_ = r.resize(v, n)
				}
			case 5:
				if rnd.IntN(3) == 0 && len(vols) > 2 {
					vols = slices.DeleteFunc(vols, func(x *Volume) bool { return x == v })
					r.a.DeleteVolume(v, func(error) {})
				} else if len(vols) < 8 {
					addVolume([]string{"p", "q"}[rnd.IntN(2)])
				}
			case 6:
				if p := r.a.Pool("r"); p == nil {
					r.pool("r", PoolSpec{}, 16<<20)
				} else if o := r.a.Volume("or"); o != nil {
					mustOK(t, r.do(o, write(0, 200)))
					r.a.DeleteVolume(o, func(error) {})
					r.clock.Run()
				} else if rnd.IntN(2) == 0 {
					r.volume("or", "r", 1<<20, rnd.IntN(2) == 0)
				} else {
					r.a.DeletePool(p, func(error) {})
					r.clock.Run()
				}
			case 7:
				r.clock.RunUntil(r.clock.Now() + rnd.Int64N(1e9))
			default:
				fits(r.do(v, write(at, min(left, 1+rnd.Uint64N(600)))))
			}
		}
		var under []*Verify
		for range 4000 {
			if len(under) < 3 && rnd.IntN(20) == 0 {
				under = append(under, r.a.NewVerify(false))
			}
			if len(under) == 0 || rnd.IntN(3) == 0 {
				change()
				continue
			}
			i := rnd.IntN(len(under))
			v := under[i]
			over := rnd.IntN(200) == 0
			if over {
				stopped++
				v.Stop()
			} else {
				heard := false
				v.Step(func(more bool) { heard, over = true, !more })
				for !heard && r.clock.Step() {
					if rnd.IntN(50) == 0 {
						change()
					}
				}
				if over {
					ended++
				}
			}
			for _, why := range v.Report().Problems {
				t.Fatalf("-seed %d, round %d: %s", seed, round, why)
			}
			if over {
				under = slices.Delete(under, i, i+1)
			}
		}
		for _, v := range under {
			v.Stop()
		}
		r.clock.Run()
		r.check()
		checkpoints += int(r.a.ckpt.Count())
	}
	if ended < 20 || stopped < 5 || checkpoints < 20 {
		t.Errorf("%d checks have ended, %d were stopped, %d checkpoints were made: the test shows too little", ended, stopped, checkpoints)
	}
}
