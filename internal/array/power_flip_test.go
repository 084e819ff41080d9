package array

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

var flipsFlag = flag.Int("flips", 160, "number of flipped bits of TestFlippedBits")

// verifyAll runs a check in steps to its end.
func verifyAll(a *Array, clock *block.Virtual, repair bool) Report {
	v := a.NewVerify(repair)
	more, ended := true, false
	for more {
		ended = false
		v.Step(func(m bool) { more, ended = m, true })
		for !ended && clock.Step() {
		}
	}
	return v.Report()
}

// TestFlippedBits flips one bit somewhere in the files of an array that was killed or
// stopped. The array starts all the same, and every sector reads as what was acknowledged, or as a medium error
// that check names; a copy of the metadata that was hit is whole again afterwards.
func TestFlippedBits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 9))
	renewed, errors, clean := map[string]int{}, map[string]int{}, 0
	flips := *flipsFlag
	if testing.Short() {
		flips /= 2
	}
	if underRace {
		flips /= 4
	}
	hit := func() bool { return errors[".img"] > 0 && renewed[".log"]+renewed["MANIFEST"]+renewed[".sst"] > 0 }
	for n := 0; n < flips || !hit() && n < *flipsFlag; { // 20 flips may all miss
		r := newPowerRig(t, rnd.Uint64(), rnd.IntN(2) == 0)
		for range 300 {
			if r.rnd.IntN(3) == 0 && len(r.busy) < 6 {
				r.launch()
			} else {
				r.clock.Step()
			}
		}
		r.clock.RunUntil(r.clock.Now() + 2e9) // all commands end
		if rnd.IntN(2) == 0 {
			stopped := false
			r.a.Stop(func(err error) { r.must(nil, err); stopped = true })
			for !stopped && r.clock.Step() {
			}
		}
		image := r.disk.Kill()
		r.files.Close()
		if rnd.IntN(2) == 0 { // the meta store's log becomes a table
			_, files, err := openOn(image, &block.Virtual{}, rnd, r.opt)
			if err != nil {
				t.Fatal(err)
			}
			files.Close()
		}
		for range 20 {
			n++
			disk := image.Kill()
			dir := []string{"/data/nvram", "/data/nvram", "/data/mdisk/", "/data/mdisk/", "/data/meta/", "/data/meta.copy/", "/data/"}[n%7]
			path, off := disk.Flip(rnd, dir)
			where := fmt.Sprintf("%s byte %d", path, off)
			kind := strings.TrimRight(path[strings.LastIndex(path, "/")+1:], "0123456789-")
			if i := strings.LastIndexByte(kind, '.'); i >= 0 {
				kind = kind[i:]
			}
			clock := &block.Virtual{}
			a, files, err := openOn(disk, clock, rnd, r.opt)
			if err != nil {
				t.Errorf("%s: one bit keeps the array from starting: %v", where, err)
				continue
			}
			if files.Renewed() > 0 {
				renewed[kind]++
			}
			if lines := a.CheckCopies(); len(lines) > 0 && !strings.Contains(path, "/meta") {
				t.Errorf("%s: %v", where, lines)
			}
			if len(a.Volumes()) != len(r.sectors) {
				t.Fatalf("%s: %d volumes, recovery %+v", where, len(a.Volumes()), a.Recovery())
			}
			bad := 0
			got := make([]byte, 512)
			for i := range r.sectors {
				for s := range r.sectors[i] {
					vs := r.sectors[i][s]
					want := make([]byte, 512)
					fillStamp(want, vs[len(vs)-1].stamp)
					at := lba(i, s)
					if at >= r.vols[i].Spec.Sectors {
						continue
					}
					q := &block.Request{Op: block.OpRead, Range: rng(at, 1), Data: [][]byte{got}}
					ended := false
					q.Done = func(*block.Request) { ended = true }
					a.Volume(fmt.Sprintf("v%d", i)).Submit([]*block.Request{q})
					for !ended && clock.Step() {
					}
					switch {
					case q.Status == block.MediumRead:
						bad++
					case q.Status != block.OK:
						t.Fatalf("%s: reading sector %d of volume %d ended %v", where, at, i, q.Status)
					case !bytes.Equal(got, want):
						t.Fatalf("%s: sector %d of volume %d holds %x, not %x (%s)", where, at, i, le.Uint64(got), vs[len(vs)-1].stamp, r.what(vs))
					}
				}
			}
			rep := verifyAll(a, clock, false)
			switch {
			case rep.BadSectors > 1:
				t.Errorf("%s: one bit cost %d sectors", where, rep.BadSectors)
			case bad > 0 && len(rep.Problems) == 0:
				t.Errorf("%s: %d sectors cannot be read, and check names none", where, bad)
			case bad > 0:
				errors[kind]++
				if rep := verifyAll(a, clock, true); strings.Contains(path, ".img") && len(rep.Problems) > 0 {
					t.Errorf("%s: repair could not mend one bit: %s", where, rep.Problems[0])
				}
			default:
				clean++
			}
			files.Close()
		}
	}
	t.Logf("of %d flips: a copy of the metadata made anew %v, medium errors %v, nothing lost %d", flips, renewed, errors, clean)
	if !hit() {
		t.Error("no data or no metadata was hit")
	}
}

func (r *powerRig) what(vs []version) string {
	var s []string
	for _, v := range vs {
		if v.cmd != nil {
			s = append(s, fmt.Sprintf("%x by %s acked %d", v.stamp, v.cmd.what, v.cmd.acked))
		}
	}
	return strings.Join(s, "; ")
}
