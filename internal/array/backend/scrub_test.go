package backend

import (
	"errors"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// scrubRig is a scrubber whose user writes down what it hears.
type scrubRig struct {
	*rig
	d *Mdisk
	m *medium
	s *Scrubber
	// wrong are sectors of the medium whose checksum is wrong, and how often still; flipped those in
	// which a bit is.
	wrong   map[uint64]int
	flipped map[uint64]uint32 // the checksum that they should have
	bad     BadSectors        // of the mdisk's pool
}

func newScrubRig(t *testing.T, repair bool) *scrubRig {
	r := &scrubRig{rig: newRig(t), wrong: map[uint64]int{}, flipped: map[uint64]uint32{}}
	r.d, r.m = r.mdisk("m", Limits{})
	r.bad = BadSectorsOf(r.d.Pool())
	r.m.fail = func(io *block.IO) error {
		e := &block.ChecksumError{Medium: "m"}
		for s := io.Off / block.SectorSize; s < (io.Off+io.N)/block.SectorSize; s++ {
			sum, flipped := r.flipped[s]
			switch {
			case io.Write:
				delete(r.flipped, s)
			case flipped || r.wrong[s] > 0:
				r.wrong[s]--
				e.Sectors, e.Sums = append(e.Sectors, s), append(e.Sums, sum)
			}
		}
		if len(e.Sectors) == 0 {
			return nil
		}
		return e
	}
	r.s = NewScrubber(repair, ScrubHooks{
		Failed: func(x *Op) {
			var e *block.ChecksumError
			errors.As(x.IO.Err, &e)
			r.note("failed %d %v", x.Phys, e.Sectors)
		},
		Mended: func(x *Op) {
			r.bad.Forget(layout.KeyOf(r.d.Pool(), x.Phys), 1<<(x.Phys%layout.PageSectors))
		},
		Ended: func(x *Op) { r.note("ended %d+%d", x.Phys, x.IO.N/block.SectorSize) },
		Idle:  func() { r.note("idle") },
	})
	return r
}

// check reads runs of 8 sectors of the medium in one step.
func (r *scrubRig) check(sectors ...uint64) []string {
	r.s.Begin()
	for _, s := range sectors {
		r.s.Check(r.d, s*block.SectorSize, make([]byte, layout.PageBytes), 1000+s)
	}
	r.s.End()
	if len(sectors) > 0 && len(r.seen) > 0 {
		r.t.Errorf("before the end of the step, heard: %q", r.seen)
	}
	r.step()
	return r.heard()
}

// TestScrub: a sector counts as wrong when it was read three times; each run ends once, and the step
// behind the last.
func TestScrub(t *testing.T) {
	r := newScrubRig(t, false)
	if got, want := r.check(), []string{"0: idle"}; !slices.Equal(got, want) {
		t.Errorf("a step without runs: %q", got)
	}
	if got, want := r.check(0, 8), []string{"0: ended 1000+8", "0: idle", "0: ended 1008+8"}; !slices.Equal(got, want) {
		t.Errorf("heard: %q", got)
	}
	r.wrong[3], r.wrong[9], r.wrong[10] = ReadTries-1, ReadTries, ReadTries
	if got, want := r.check(0, 8), []string{"0: ended 1000+8", "0: failed 1008 [9 10]", "0: idle", "0: ended 1008+8"}; !slices.Equal(got, want) {
		t.Errorf("heard: %q", got)
	}
	for range 3 { // operations that are used again begin anew
		r.wrong[3] = ReadTries - 1
		if got, want := r.check(0), []string{"0: idle", "0: ended 1000+8"}; !slices.Equal(got, want) {
			t.Errorf("heard: %q", got)
		}
	}
	if want := int64(7 * layout.PageBytes); r.s.Read != want || r.d.Failures() != 1 || r.s.Mended != 0 {
		t.Errorf("read %d bytes, not %d; %d failures, %d mended", r.s.Read, want, r.d.Failures(), r.s.Mended)
	}
	if ops, _ := r.d.Moved(false, block.OriginHost, block.ReasonScrub); ops != 6 {
		t.Errorf("%d good reads are counted", ops)
	}
}

// TestScrubRepairs: what one flipped bit has damaged is mended and leaves the list of bad sectors;
// the rest stays in the error, and who only looks mends nothing.
func TestScrubRepairs(t *testing.T) {
	for _, repair := range []bool{false, true} {
		r := newScrubRig(t, repair)
		data, sums := stamped(77)
		copy(r.m.content, data)
		r.m.content[2*512+300] ^= 8
		r.m.content[5*512] ^= 1
		r.m.content[5*512+1] ^= 1 // two bits: nobody knows which
		r.flipped[2], r.flipped[5] = sums[2], sums[5]
		k := layout.KeyOf(r.d.Pool(), 1000)
		r.bad.AddMask(k, 1<<2|1<<5|1<<7)
		got := r.check(0)
		want := []string{"0: failed 1000 [2 5]", "0: idle", "0: ended 1000+8"}
		bad, mended := 3, 0
		if repair {
			want = []string{"0: failed 1000 [5]", "0: ended 1000+8", "0: idle"}
			bad, mended = 2, 1
		}
		if !slices.Equal(got, want) || r.bad.Len() != bad || r.s.Mended != mended || r.bad.Has(k, 2) == repair {
			t.Errorf("repair %v: heard %q; %d bad, %d mended", repair, got, r.bad.Len(), r.s.Mended)
		}
		if slices.Equal(r.m.content[2*512:3*512], data[2*512:3*512]) != repair {
			t.Errorf("repair %v: the sector is not as it should be", repair)
		}
		// A write that fails mends nothing.
		r.m.content[512] ^= 1
		r.flipped[1] = sums[1]
		read := r.m.fail
		r.m.fail = func(io *block.IO) error {
			if io.Write {
				return errDisk
			}
			return read(io)
		}
		if r.check(0); r.s.Mended != mended {
			t.Errorf("repair %v: a write that failed counts as mended", repair)
		}
	}
}
