package array

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
)

// TestDeathsOfAStartThatFindsDamage: a dirty sector is damaged when the process dies, and what its mdisk has is older. A
// start dies within each of its updates of NVRAM and of files, and the power may go behind that. Whatever is there then, the
// sector reads as it was written last, or as a medium error, and never as what was before.
func TestDeathsOfAStartThatFindsDamage(t *testing.T) {
	const sector = 3
	for name, row := range map[string]struct {
		sectors uint64 // that are written with it
		hangs   string // the mdisk whose sync does not end, so that an older page of the address counts, too
	}{
		"alone in its page":        {1, ""},
		"above another page":       {1, "b.m"},
		"joined with another page": {2, "b.m"},
	} {
		t.Run(name, func(t *testing.T) {
			k, h := &killer{}, &hungSync{}
			r := newPowerRigWith(t, 1, false, func(r *powerRig) {
				k.r = r
				r.wrap = []func(block.Store) block.Store{
					func(s block.Store) block.Store { h.Store = s; return h },
					func(s block.Store) block.Store { return killable{s, k} },
				}
			})
			ok := func(s block.Status) {
				t.Helper()
				mustOK(t, s)
			}
			ok(r.put(2, 0, 8, 1))
			ok(r.wait(2, &block.Request{Op: block.OpFlush}))
			h.name = row.hangs
			r.clock.RunUntil(r.clock.Now() + 3e9)
			ok(r.put(2, sector, row.sectors, 2))
			ok(r.wait(2, &block.Request{Op: block.OpFlush}))
			ok(r.put(1, 0, 8, 1))
			ok(r.wait(2, &block.Request{Op: block.OpFlush})) // else the damage may be a page that a loss of power tore
			page := r.a.cache.Lookup(layout.KeyOf(r.vols[2].Pool().ID(), physOf(t, r.vols[2], sector)))
			region := r.opt
			region.fill()
			l := region.region(true).Region()
			r.disk.KillNow()
			image := r.disk.Image()
			r.files.Close()
			image.FlipAt("/data/nvram", int64(l.Offset(block.PartPages))+int64(page)*4096+sector*512+7, 0)
			h.name = ""
			deaths, bad := 0, 0
			for _, files := range []bool{false, true} {
				for n, dead := 1, true; dead; n++ {
					for try := range uint64(4) {
						r.disk = image.Kill()
						*k = killer{r: r}
						if files {
							r.disk.KillAtWrite(n)
						} else {
							k.left = n
						}
						_, opened, err := openOn(r.disk, &block.Virtual{}, r.rnd, r.opt, r.wrap...)
						if err != nil {
							t.Fatalf("death %d: %v", n, err)
						}
						k.ended()
						opened.Close()
						if dead = r.isCut(); !dead {
							break
						}
						deaths++
						left := r.disk.Image()
						if try > 0 {
							left = left.Cut()
						}
						if r.neverStale(fmt.Sprintf("death %d, in a file: %t, try %d", n, files, try), left, rng(sector, row.sectors)) {
							bad++
						}
					}
				}
			}
			t.Logf("%d deaths, %d of them left a medium error", deaths, bad)
			if deaths < 50 || bad == 0 {
				t.Error("too few")
			}
		})
	}
}

// neverStale starts the array twice on what is left, and reports whether the first sector of what was written last is bad: it
// must not read as it was before.
func (r *powerRig) neverStale(what string, left *storetest.Disk, last block.Range) (bad bool) {
	r.disk = left
	for range 2 {
		r.clock = &block.Virtual{}
		var err error
		if r.a, r.files, err = openOn(r.disk, r.clock, r.rnd, r.opt); err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
		r.find()
		for s := range uint64(8) {
			got, want := make([]byte, 512), make([]byte, 512)
			fillStamp(want, 1<<20|s)
			if s >= last.Start && s < last.End() {
				fillStamp(want, 2<<20|(s-last.Start))
			}
			st := r.wait(2, &block.Request{Op: block.OpRead, Range: rng(s, 1), Data: [][]byte{got}})
			if s == last.Start && st == block.MediumRead {
				bad = true
			} else if st != block.OK || !bytes.Equal(got, want) {
				r.t.Fatalf("%s: sector %d: %v, %x, not %x", what, s, st, le.Uint64(got), le.Uint64(want))
			}
		}
		if rep := r.a.Check(true); len(rep.Problems) > rep.BadSectors {
			r.t.Fatalf("%s: check: %q", what, rep.Problems)
		}
		r.disk.KillNow()
		r.files.Close()
		r.disk = r.disk.Image()
	}
	return bad
}
