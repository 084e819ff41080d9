// Reading data at rest, again where it looks wrong, and repairing single flipped bits. Its user
// says what is read and keeps the list of what is bad.

package backend

import (
	"errors"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// ReadTries is how often a sector is read until its checksum counts as wrong.
const ReadTries = 3

// ScrubHooks are what a Scrubber tells its user.
type ScrubHooks struct {
	// Failed: a run could not be read, or some of its sectors are wrong for good; see IO.Err.
	Failed func(*Op)
	// Mended: a sector is good again, with the data that it had. Phys says which it is.
	Mended func(*Op)
	// Ended: a run is not read any more. Ctx is nil; Phys and IO.N say which it was.
	Ended func(*Op)
	// Idle: a step is over.
	Idle func()
}

// Scrubber reads data at rest in steps, so that its medium compares it with its checksums. A step
// is Begin, Check for each run, and End.
type Scrubber struct {
	hooks ScrubHooks
	// repair mends sectors in which one bit was flipped, which the checksum tells. Nothing else may
	// write meanwhile.
	repair bool
	left   int // operations of this step, and one for the start of them

	readFn, mendFn func(*Op)

	Read   int64 // bytes that were read
	Mended int   // sectors
}

// NewScrubber returns a scrubber. With repair it mends what it can, and nobody else may write.
func NewScrubber(repair bool, hooks ScrubHooks) *Scrubber {
	s := &Scrubber{hooks: hooks, repair: repair}
	s.readFn, s.mendFn = s.readDone, s.mendDone
	return s
}

// Begin begins a step.
func (s *Scrubber) Begin() { s.left = 1 }

// Check reads a run of sectors into buf, from an offset of the mdisk on; phys is the physical
// sector of its pool.
func (s *Scrubber) Check(d *Mdisk, off uint64, buf []byte, phys uint64) {
	x := d.Op(false, off, uint64(len(buf)), block.ReasonScrub)
	x.IO.Vec = append(x.IO.Vec, buf)
	x.Phys = phys
	s.start(x)
}

// End says that the step has no more runs.
func (s *Scrubber) End() { s.ended() }

func (s *Scrubber) start(x *Op) {
	x.Bytes[block.OriginHost] = uint32(x.IO.N)
	s.left++
	x.d.start(x, s.readFn)
}

func (s *Scrubber) readDone(x *Op) {
	if x.IO.Err != nil && x.Tries+1 < ReadTries {
		s.again(x)
		s.ended()
		return
	}
	s.Read += int64(x.IO.N)
	if x.IO.Err != nil {
		x.d.failures++
		if s.repair {
			s.mend(x)
		}
	}
	if x.IO.Err != nil { // what was mended is no failure any more
		s.hooks.Failed(x)
	}
	s.ended()
	s.hooks.Ended(x)
}

// again reads once more: what was written and destaged meanwhile may have been found without its
// checksums.
func (s *Scrubber) again(x *Op) {
	y := x.d.Op(false, x.IO.Off, x.IO.N, x.Reason)
	y.IO.Vec = append(y.IO.Vec, x.IO.Vec...)
	y.Phys, y.Tries = x.Phys, x.Tries+1
	s.start(y)
}

// ended ends one operation of a step, or the start of them.
func (s *Scrubber) ended() {
	if s.left--; s.left == 0 {
		s.hooks.Idle()
	}
}

// mend writes those sectors of a failed read again whose checksum says which single bit was
// flipped, and takes them out of the error.
func (s *Scrubber) mend(x *Op) {
	var e *block.ChecksumError
	if !errors.As(x.IO.Err, &e) {
		return
	}
	kept := block.ChecksumError{Medium: e.Medium}
	for i, sector := range e.Sectors {
		at := (sector - x.IO.Off/block.SectorSize) * block.SectorSize
		b := x.IO.Vec[0][at : at+block.SectorSize]
		if !flipBack(b, e.Sums[i]) {
			kept.Sectors, kept.Sums = append(kept.Sectors, sector), append(kept.Sums, e.Sums[i])
			continue
		}
		w := x.d.Op(true, sector*block.SectorSize, block.SectorSize, block.ReasonScrub)
		w.IO.Vec = append(w.IO.Vec, append([]byte(nil), b...))
		w.Bytes[block.OriginRebuild] = block.SectorSize
		w.Phys = x.Phys + at/block.SectorSize
		s.left++
		w.d.start(w, s.mendFn)
	}
	x.IO.Err = nil
	if len(kept.Sectors) > 0 {
		x.IO.Err = &kept
	}
}

func (s *Scrubber) mendDone(w *Op) {
	if w.IO.Err == nil {
		s.Mended++
		s.hooks.Mended(w)
	}
	s.ended()
}

// flipBack looks for the bit whose flip gives a sector its checksum, and flips it.
func flipBack(b []byte, sum uint32) bool {
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if crc32c.Sector(b) == sum {
			return true
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	return false
}
