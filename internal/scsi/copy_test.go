package scsi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// seeds are the seeds of a random test: that of the flag, or n of them.
func seeds(n int) []uint64 {
	if s := testkit.GivenSeed(); s != 0 {
		return []uint64{s}
	}
	var s []uint64
	for range n {
		s = append(s, rand.Uint64()|1)
	}
	return s
}

// TestCopyModel copies at random between three units of two block sizes, some of
// it wrong, and compares with a model that knows bytes only.
func TestCopyModel(t *testing.T) {
	for _, seed := range seeds(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("repeat with -seed=%d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			r := newRig(t)
			luns := []uint64{scsitest.Thin, scsitest.Large, scsitest.Other}
			sizes := []uint64{512, 4096, 512}
			var model [][]byte
			s := &scsitest.Session{TB: t, Initiator: &direct{t, r.exec, r.a}}
			var cscds [][]byte
			for i, lun := range luns {
				d := r.devs[lun].Data
				for j := 0; j < len(d); j += 8 {
					binary.NativeEndian.PutUint64(d[j:], rng.Uint64())
				}
				model = append(model, slices.Clone(d))
				cscds = append(cscds, s.NAA6(lun, int(sizes[i])))
			}
			for range 60 {
				var segs [][]byte
				failed := -1
				for k := range 1 + rng.IntN(5) {
					src, dst := rng.IntN(3), rng.IntN(3)
					a, b := sizes[src], sizes[dst]
					size := uint64(len(model[0]))
					n := rng.Uint64N(64) * max(a, b)
					from, to := rng.Uint64N(size/a+4)*a, rng.Uint64N(size/b+4)*b
					var offA, offB uint64
					if rng.IntN(2) == 0 {
						segs = append(segs, scsitest.Segment02(src, dst, int(n/b), from/a, to/b, true))
					} else {
						n = rng.Uint64N(512) * 512
						offA, offB = rng.Uint64N(16)*512, rng.Uint64N(16)*512
						segs = append(segs, scsitest.Segment0A(src, dst, int(n), from/a, to/b, int(offA), int(offB)))
					}
					from, to = from+offA, to+offB
					if failed >= 0 {
						continue
					}
					if from > size || n > size-from || to > size || n > size-to {
						failed = k
						continue
					}
					copy(model[dst][to:to+n], slices.Clone(model[src][from:from+n]))
				}
				list := scsitest.CopyList(1, 2, cscds, segs)
				res := s.Do(scsitest.Command{LUN: luns[rng.IntN(3)], CDB: scsitest.CopyCDB(list), Out: list})
				if failed < 0 && res.Status != scsi.StatusGood {
					t.Fatalf("status %02x sense %x", res.Status, res.Sense)
				}
				if failed >= 0 {
					if k, _, _ := scsitest.SenseCode(res.Sense); k != 0x0A || int(res.Sense[11]) != failed {
						t.Fatalf("sense %x, want COPY ABORTED in segment %d", res.Sense, failed)
					}
				}
				for i, lun := range luns {
					if !bytes.Equal(r.devs[lun].Data, model[i]) {
						t.Fatalf("LUN %d differs from the model", lun)
					}
					if r.devs[lun].Refs != 0 {
						t.Fatalf("LUN %d: %d references are not released", lun, r.devs[lun].Refs)
					}
				}
			}
		})
	}
}

// copyTask makes an EXTENDED COPY from Thin to Other with this list id.
func (r *rig) copyTask(name string, id byte, segments int) *scsi.Task {
	s := &scsitest.Session{TB: r, Initiator: &direct{r, r.exec, r.a}}
	var segs [][]byte
	for i := range segments {
		segs = append(segs, scsitest.Segment02(0, 1, 4, uint64(i*4), uint64(i*4), false))
	}
	list := scsitest.CopyList(id, 0, [][]byte{s.NAA6(scsitest.Thin, 512), s.NAA6(scsitest.Other, 512)}, segs)
	t := r.task(name, scsitest.Thin, scsitest.CopyCDB(list))
	t.DataOut = [][]byte{list}
	return t
}

func TestCopyAborted(t *testing.T) {
	for _, c := range []struct {
		name string
		lun  int // where a request is held
	}{{"in hold", scsitest.Thin}, {"in place", scsitest.Other}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			k := r.copyTask("copy", 5, 3)
			r.devs[c.lun].Hold = true
			r.submit(r.a, k)
			r.ended()
			r.submit(r.a, r.copyTask("same id", 5, 1))
			r.ended("same id 5/00/16")
			r.manage(r.a, scsi.AbortTaskSet, scsitest.Thin, 0)
			r.ended("copy aborted", "tmf 0")
			for _, d := range r.devs {
				if d.Refs != 0 {
					t.Errorf("%d references are not released", d.Refs)
				}
			}
		})
	}
}

func TestCopyDeviceErrors(t *testing.T) {
	for _, c := range []struct {
		op     block.Op
		status block.Status
		want   string // status and sense of the unit
		at     int    // byte that says where it stands
	}{
		{block.OpHold, block.MediumRead, "02 3/11/00", 8},
		{block.OpPlace, block.NoSpace, "02 7/27/07", 9},
		{block.OpPlace, block.Resources, "08 0/00/00", 9},
		{block.OpHold, block.Gone, "02 5/25/00", 8},
	} {
		r := newRig(t)
		k := r.copyTask("copy", 5, 3)
		left := 2
		for _, d := range r.devs {
			d.Fault = func(q *block.Request) block.Status {
				if q.Op == c.op {
					if left--; left == 0 {
						return c.status
					}
				}
				return block.OK
			}
		}
		r.submit(r.a, k)
		r.ended("copy a/0d/01")
		if k.Sense[11] != 1 || k.Sense[c.at] != 18 {
			t.Errorf("%v %v: sense %x", c.op, c.status, k.Sense)
		}
		a, b, q := scsitest.SenseCode(k.Sense[19:])
		if got := fmt.Sprintf("%02x %x/%02x/%02x", k.Sense[18], a, b, q); got != c.want {
			t.Errorf("%v %v: forwarded %s, want %s", c.op, c.status, got, c.want)
		}
		for _, d := range r.devs {
			if d.Refs != 0 {
				t.Errorf("%v: %d references are not released", c.op, d.Refs)
			}
		}
	}
}

// TestCopyUnmapped takes the destination away between hold and place.
func TestCopyUnmapped(t *testing.T) {
	r := newRig(t)
	k := r.copyTask("copy", 5, 1)
	r.devs[scsitest.Thin].Hold, r.devs[scsitest.Thin].Deaf = true, true
	r.submit(r.a, k)
	r.tg.Unmap("", scsitest.Other)
	r.devs[scsitest.Thin].Release(1)
	r.ended("copy a/0d/02")
	if r.devs[scsitest.Thin].Refs != 0 {
		t.Error("a reference is not released")
	}
}
