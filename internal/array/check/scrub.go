// A scrub: one pass over all data at rest, at a rate. It owns how far it is. The back end reads,
// and pools keep the list of bad sectors; hosts may write meanwhile, unless it repairs, and dirty
// sectors are left out.

package check

import (
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Scrub reads all data at rest once and compares it with its checksums. What fails goes
// on the list of bad sectors. Dirty sectors are left out: what is under them is of the past.
// It says what is read next; the back end reads it.
type Scrub struct {
	*Checker
	back *backend.Scrubber
	rate int64 // bytes a second, 0: as fast as the mdisks
	vol  int
	at   uint64
	pool *pool.Pool // of this step
	buf  []byte
	next int64
	done func()

	// Total is the mapped data at the start, in bytes, Bad the sectors that went on the list.
	Total int64
	Bad   int
}

const (
	scrubSlots = 4096 // of a map, that one step looks at
	scrubStart = 1_000_000
)

// NewScrub starts a scrub of that many bytes a second; 0 is no limit. It calls done at its end,
// unless it is stopped before. With repair, sectors are mended in which one bit was flipped;
// nothing else may write meanwhile.
func (c *Checker) NewScrub(rate int64, repair bool, done func(*Scrub)) *Scrub {
	s := &Scrub{Checker: c, rate: rate, buf: make([]byte, layout.PieceSectors*block.SectorSize), next: c.Set.Exec.Now()}
	s.done = func() { done(s) }
	s.back = backend.NewScrubber(repair, backend.ScrubHooks{
		Failed: func(x *backend.Op) { s.Bad += s.pool.NoteBad(x) },
		Mended: func(x *backend.Op) {
			s.pool.Bad.Forget(layout.KeyOf(s.pool.ID(), x.Phys), 1<<(x.Phys%layout.PageSectors))
		},
		Ended: func(x *backend.Op) { s.pool.UnpinRead(x) },
		Idle:  s.pace,
	})
	for _, v := range c.Set.Volumes() {
		s.Total += v.Map.Sums().Data * block.SectorSize
	}
	c.Set.Exec.At(s.next+scrubStart, s.step)
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
	c := s.Checker
	if s.done == nil {
		return
	}
	for s.vol < len(c.Set.Vols) && (c.Set.Vols[s.vol] == nil || c.Set.Vols[s.vol].Deleted || s.at >= c.Set.Vols[s.vol].Spec.Sectors) {
		s.vol, s.at = s.vol+1, 0
	}
	if s.vol == len(c.Set.Vols) || !c.Set.Payload || c.Stopped() {
		s.done()
		s.done = nil
		return
	}
	v := c.Set.Vols[s.vol]
	data := s.nextData(v)
	s.pool = v.Pool()
	s.back.Begin()
	s.read(data.Phys, data.Count)
	s.back.End()
	c.Stepped()
}

// nextData returns the next run of data of a volume, at most a piece of it, or an empty one if there is
// none near. It looks at states first: a run can be as long as the volume, and Walk goes to its end.
func (s *Scrub) nextData(v *pool.Volume) (data extent.Run) {
	end := v.Spec.Sectors
	v.Map.WalkStates(block.Range{Start: s.at, Count: end - s.at}, scrubSlots, func(x extent.Run) bool {
		if x.State == block.Data {
			s.at = x.Start
			data.Count = min(end-s.at, layout.PieceSectors)
			return false
		}
		s.at = x.End()
		return true
	})
	if data.Count > 0 {
		v.Map.Walk(block.Range{Start: s.at, Count: data.Count}, func(x extent.Run) bool {
			data = x
			return false
		})
		s.at = data.End()
	}
	return data
}

// read starts the operations on what is not dirty of physical sectors [phys, phys+n).
func (s *Scrub) read(phys, n uint64) {
	c, p := s.Set.Cache, s.pool
	for buf := s.buf; n > 0; {
		md, off, k := p.Alloc.Locate(phys)
		k = min(k, n)
		clean := uint64(0)
		for clean < k && c.Lookup(layout.KeyOf(p.ID(), phys+clean)) == wcache.NoPage {
			clean = min(k, (phys+clean)&^(layout.PageSectors-1)+layout.PageSectors-phys)
		}
		if clean == 0 || p.Mdisks[md].Offline() {
			skip := min(k, layout.PageSectors-phys%layout.PageSectors)
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
	now := s.Set.Exec.Now()
	s.next = max(s.next, now)
	if s.rate > 0 {
		s.next += layout.PieceSectors * block.SectorSize * 1_000_000_000 / s.rate
	}
	s.Set.Exec.At(s.next, s.step)
}
