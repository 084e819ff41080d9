package array

import (
	"errors"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Scrub reads all data at rest once and compares it with its checksums. What fails goes
// on the list of bad sectors. Dirty sectors are left out: what is under them is of the past.
type Scrub struct {
	a    *Array
	rate int64 // bytes a second, 0: as fast as the mdisks
	// repair mends sectors in which one bit was flipped, which the checksum tells. Nothing
	// else may write meanwhile.
	repair bool
	vol    int
	at     uint64
	buf    []byte
	left   int // operations of this step
	next   int64
	done   func()

	// Read, Bad and Mended count bytes that were read and sectors; Total is the mapped
	// data at the start.
	Read, Total int64
	Bad, Mended int
}

const (
	scrubRuns  = 1024 // of a map, that one step looks at
	scrubStart = 1_000_000
)

// StartScrub starts a scrub of that many bytes a second; 0 is no limit. It calls done at
// its end, unless it is stopped before.
func (a *Array) StartScrub(rate int64, done func(*Scrub)) *Scrub {
	return a.startScrub(rate, false, done)
}

func (a *Array) startScrub(rate int64, repair bool, done func(*Scrub)) *Scrub {
	s := &Scrub{a: a, rate: rate, repair: repair, buf: make([]byte, pieceSectors*block.SectorSize), next: a.exec.Now()}
	s.done = func() { done(s) }
	for _, v := range a.Volumes() {
		s.Total += v.m.Sums().Data * block.SectorSize
	}
	a.exec.At(s.next+scrubStart, s.step)
	return s
}

// Stop ends the scrub after the step under way.
func (s *Scrub) Stop() { s.done = nil }

// step reads the next run of data, at most a piece.
func (s *Scrub) step() {
	a := s.a
	if s.done == nil {
		return
	}
	for s.vol < len(a.vols) && (a.vols[s.vol] == nil || a.vols[s.vol].deleted || s.at >= a.vols[s.vol].spec.Sectors) {
		s.vol, s.at = s.vol+1, 0
	}
	if s.vol == len(a.vols) || !a.payload || a.stopped {
		s.done()
		s.done = nil
		return
	}
	v := a.vols[s.vol]
	var data extent.Run
	runs := 0
	v.m.Walk(block.Range{Start: s.at, Count: v.spec.Sectors - s.at}, func(x extent.Run) bool {
		s.at = x.End()
		if x.State == block.Data {
			data = x
			data.Count = min(x.Count, pieceSectors)
			s.at = data.End()
			return false
		}
		runs++
		return runs < scrubRuns
	})
	s.left = 1
	s.read(v.pool, data.Phys, data.Count)
	s.ended(nil)
	a.endStep()
}

// read starts the operations on what is not dirty of physical sectors [phys, phys+n).
func (s *Scrub) read(p *Pool, phys, n uint64) {
	a := s.a
	for buf := s.buf; n > 0; {
		md, off, k := p.space.Locate(phys)
		k = min(k, n)
		clean := uint64(0)
		for clean < k && a.cache.Lookup(keyOf(p.id, phys+clean)) == wcache.NoPage {
			clean = min(k, (phys+clean)&^(pageSectors-1)+pageSectors-phys)
		}
		if clean == 0 || p.mdisks[md].offline {
			skip := min(k, pageSectors-phys%pageSectors)
			phys, n, buf = phys+skip, n-skip, buf[skip*block.SectorSize:]
			continue
		}
		p.space.Pin(phys, clean)
		x := a.getIO()
		x.io.Write, x.io.Off, x.io.N, x.reason = false, off, clean*block.SectorSize, block.ReasonScrub
		x.io.Vec = append(x.io.Vec, buf[:x.io.N])
		x.bytes[block.OriginHost] = uint32(x.io.N)
		x.phys, x.sectors, x.pool = phys, clean, p
		x.done = s.readDone
		s.left++
		p.mdisks[md].start(x)
		phys, n, buf = phys+clean, n-clean, buf[x.io.N:]
	}
}

func (s *Scrub) readDone(x *diskIO) {
	defer x.pool.space.Unpin(x.phys, x.sectors)
	if x.io.Err != nil && x.tries+1 < readTries {
		s.again(x)
		s.ended(x)
		return
	}
	s.Read += int64(x.io.N)
	if x.io.Err != nil {
		x.d.failures++
		if s.repair {
			s.mend(x)
		}
		s.Bad += s.a.noteBad(x)
	}
	s.ended(x)
}

// again reads once more: what was written and destaged meanwhile may have been found without its checksums.
func (s *Scrub) again(x *diskIO) {
	x.pool.space.Pin(x.phys, x.sectors)
	y := s.a.getIO()
	y.io.Write, y.io.Off, y.io.N, y.reason = false, x.io.Off, x.io.N, x.reason
	y.io.Vec = append(y.io.Vec, x.io.Vec...)
	y.bytes[block.OriginHost] = uint32(y.io.N)
	y.phys, y.sectors, y.pool, y.done, y.tries = x.phys, x.sectors, x.pool, s.readDone, x.tries+1
	s.left++
	x.d.start(y)
}

// ended ends one operation, or the start of them; behind the last the next step follows
// at the rate.
func (s *Scrub) ended(*diskIO) {
	if s.left--; s.left > 0 {
		return
	}
	now := s.a.exec.Now()
	s.next = max(s.next, now)
	if s.rate > 0 {
		s.next += pieceSectors * block.SectorSize * 1_000_000_000 / s.rate
	}
	s.a.exec.At(s.next, s.step)
}

// mend writes those sectors of a failed read again whose checksum says which single
// bit was flipped, and takes them out of the error.
func (s *Scrub) mend(x *diskIO) {
	var e *block.ChecksumError
	if !errors.As(x.io.Err, &e) {
		return
	}
	kept := block.ChecksumError{Medium: e.Medium}
	for i, sector := range e.Sectors {
		at := (sector - x.io.Off/block.SectorSize) * block.SectorSize
		b := x.io.Vec[0][at : at+block.SectorSize]
		if !flipBack(b, e.Sums[i]) {
			kept.Sectors, kept.Sums = append(kept.Sectors, sector), append(kept.Sums, e.Sums[i])
			continue
		}
		w := s.a.getIO()
		w.io.Write, w.io.Off, w.io.N, w.reason = true, sector*block.SectorSize, block.SectorSize, block.ReasonScrub
		w.io.Vec = append(w.io.Vec, append([]byte(nil), b...))
		w.bytes[block.OriginRebuild] = block.SectorSize
		phys := x.phys + at/block.SectorSize
		k := keyOf(x.pool.id, phys)
		w.done = func(w *diskIO) {
			if w.io.Err == nil {
				s.Mended++
				s.a.mend(k, 1<<(phys%pageSectors))
			}
			s.ended(w)
		}
		s.left++
		x.d.start(w)
	}
	x.io.Err = nil
	if len(kept.Sectors) > 0 {
		x.io.Err = &kept
	}
}

// flipBack looks for the bit whose flip gives a sector its checksum.
func flipBack(b []byte, sum uint32) bool {
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if crc32.Checksum(b, castagnoli) == sum {
			return true
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	return false
}

// Verify is Check in small steps, with the data at rest: what hosts wait for one
// step is a pool's maps at the most. With repair, single flipped bits of data at rest are
// mended; no host may use the array then.
type Verify struct {
	a      *Array
	repair bool
	pools  []*Pool
	page   uint32
	scrub  *Scrub
	r      Report
	phase  int
	Mended int
}

// verifyPages is the number of pages of the cache that one step looks at.
const verifyPages = 256

// NewVerify returns a check that has not begun.
func (a *Array) NewVerify(repair bool) *Verify { return &Verify{a: a, repair: repair} }

// Step does the next step and calls done, perhaps at once: false means that it was the last.
func (v *Verify) Step(done func(more bool)) {
	a := v.a
	switch {
	case v.phase == 0:
		a.checkConservation(&v.r)
		v.pools = a.Pools()
		v.phase++
	case v.phase == 1 && len(v.pools) > 0:
		if p := v.pools[0]; a.pools[p.id] == p {
			a.checkPool(&v.r, p)
		}
		v.pools = v.pools[1:]
	case v.phase == 1:
		a.checkCache(&v.r, false)
		v.phase++
	case v.phase == 2 && int(v.page) < a.cache.Pages():
		for range verifyPages {
			if int(v.page) < a.cache.Pages() {
				a.cache.CheckSums(a.names(&v.r), v.page)
				v.page++
			}
		}
	case v.phase == 2:
		v.phase++
		v.scrub = a.startScrub(0, v.repair, func(s *Scrub) {
			v.Mended = s.Mended
			a.checkHealth(&v.r)
			done(false)
		})
		return
	}
	done(true)
}

// Progress returns how many bytes of data at rest were read, of how many.
func (v *Verify) Progress() (read, total int64) {
	if v.scrub == nil {
		return 0, 0
	}
	return v.scrub.Read, max(v.scrub.Read, v.scrub.Total)
}

// Stop ends the check after the step under way.
func (v *Verify) Stop() {
	if v.scrub != nil {
		v.scrub.Stop()
	}
}

// Report is what was found up to now.
func (v *Verify) Report() Report { return v.r }
