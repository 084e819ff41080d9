package array

import (
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Scrub reads all data at rest once and compares it with its checksums. What fails goes
// on the list of bad sectors. Dirty sectors are left out: what is under them is of the past.
// It says what is read next; the back end reads it.
type Scrub struct {
	a    *Array
	back *backend.Scrubber
	rate int64 // bytes a second, 0: as fast as the mdisks
	vol  int
	at   uint64
	pool *Pool // of this step
	buf  []byte
	next int64
	done func()

	// Total is the mapped data at the start, in bytes, Bad the sectors that went on the list.
	Total int64
	Bad   int
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

// startScrub is StartScrub. With repair, sectors are mended in which one bit was flipped; nothing
// else may write meanwhile.
func (a *Array) startScrub(rate int64, repair bool, done func(*Scrub)) *Scrub {
	s := &Scrub{a: a, rate: rate, buf: make([]byte, pieceSectors*block.SectorSize), next: a.exec.Now()}
	s.done = func() { done(s) }
	s.back = backend.NewScrubber(repair, backend.ScrubHooks{
		Failed: func(x *backend.Op) { s.Bad += a.set.NoteBad(s.pool, x) },
		Ended:  func(x *backend.Op) { s.pool.UnpinRead(x) },
		Idle:   s.pace,
	})
	for _, v := range a.Volumes() {
		s.Total += v.Map.Sums().Data * block.SectorSize
	}
	a.exec.At(s.next+scrubStart, s.step)
	return s
}

// Stop ends the scrub after the step under way.
func (s *Scrub) Stop() { s.done = nil }

// Read returns the bytes that were read.
func (s *Scrub) Read() int64 { return s.back.Read }

// Mended returns the number of sectors that were mended.
func (s *Scrub) Mended() int { return s.back.Mended }

// step reads the next run of data, at most a piece.
func (s *Scrub) step() {
	a := s.a
	if s.done == nil {
		return
	}
	for s.vol < len(a.set.Vols) && (a.set.Vols[s.vol] == nil || a.set.Vols[s.vol].Deleted || s.at >= a.set.Vols[s.vol].Spec.Sectors) {
		s.vol, s.at = s.vol+1, 0
	}
	if s.vol == len(a.set.Vols) || !a.payload || a.engine.Stopped() {
		s.done()
		s.done = nil
		return
	}
	v := a.set.Vols[s.vol]
	var data extent.Run
	runs := 0
	v.Map.Walk(block.Range{Start: s.at, Count: v.Spec.Sectors - s.at}, func(x extent.Run) bool {
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
	s.pool = v.Pool()
	s.back.Begin()
	s.read(data.Phys, data.Count)
	s.back.End()
	a.engine.endStep()
}

// read starts the operations on what is not dirty of physical sectors [phys, phys+n).
func (s *Scrub) read(phys, n uint64) {
	a, p := s.a, s.pool
	for buf := s.buf; n > 0; {
		md, off, k := p.Alloc.Locate(phys)
		k = min(k, n)
		clean := uint64(0)
		for clean < k && a.cache.Lookup(keyOf(p.ID(), phys+clean)) == wcache.NoPage {
			clean = min(k, (phys+clean)&^(pageSectors-1)+pageSectors-phys)
		}
		if clean == 0 || p.Mdisks[md].Offline() {
			skip := min(k, pageSectors-phys%pageSectors)
			phys, n, buf = phys+skip, n-skip, buf[skip*block.SectorSize:]
			continue
		}
		p.Alloc.Pin(phys, clean)
		bytes := clean * block.SectorSize
		s.back.Check(p.Mdisks[md].Mdisk, off, buf[:bytes], phys)
		phys, n, buf = phys+clean, n-clean, buf[bytes:]
	}
}

// pace sets the time of the next step.
func (s *Scrub) pace() {
	now := s.a.exec.Now()
	s.next = max(s.next, now)
	if s.rate > 0 {
		s.next += pieceSectors * block.SectorSize * 1_000_000_000 / s.rate
	}
	s.a.exec.At(s.next, s.step)
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
		if p := v.pools[0]; a.set.ByID(p.ID()) == p {
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
			v.Mended = s.Mended()
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
	return v.scrub.Read(), max(v.scrub.Read(), v.scrub.Total)
}

// Stop ends the check after the step under way.
func (v *Verify) Stop() {
	if v.scrub != nil {
		v.scrub.Stop()
	}
}

// Report is what was found up to now.
func (v *Verify) Report() Report { return v.r }
