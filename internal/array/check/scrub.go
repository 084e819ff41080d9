// A scrub: one pass over the metadata and all data at rest, at a rate. It owns how far it is. The back end reads,
// and pools keep the list of bad sectors; hosts may write meanwhile, unless it repairs, and dirty
// sectors are left out.

package check

import (
	"errors"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Scrub reads all copies of the metadata and all data at rest once and compares them with their checksums. What fails of data
// goes on the list of bad sectors. Dirty sectors are left out: what is under them is of the past.
// It says what is read next; the back end reads it.
type Scrub struct {
	*Checker
	back *backend.Scrubber
	rate int64           // bytes a second, 0: as fast as the mdisks
	meta *metadata.Sweep // nil: the metadata were read
	vol  int
	at   uint64
	pool *pool.Pool // of this step
	buf  []byte
	due  int64 // when the next step is
	done func()

	// Total is the mapped data at the start, in bytes, Bad the sectors that went on the list.
	Total int64
	Bad   int
	// Unread is leaves of maps that could not be read: their data was passed over.
	Unread int
	// Damaged is entries of the metadata that are damaged, by copy: the next start makes such a copy anew.
	Damaged []int
}

const (
	scrubSlots = extent.GarbageStep // of a map, that one step looks at for data
	scrubStart = 1_000_000
)

// NewScrub starts a scrub of that many bytes a second; 0 is no limit. It calls done at its end,
// unless it is stopped before. With repair, sectors are mended in which one bit was flipped;
// nothing else may write meanwhile.
func (c *Checker) NewScrub(rate int64, repair bool, done func(*Scrub)) *Scrub {
	s := &Scrub{Checker: c, rate: rate, buf: make([]byte, layout.PieceSectors*block.SectorSize), due: c.Set.Exec.Now()}
	s.done = func() { done(s) }
	s.meta = c.Meta.NewSweep()
	s.Damaged = s.meta.Bad
	s.back = backend.NewScrubber(repair, backend.ScrubHooks{
		Failed: func(x *backend.Op) { s.Bad += s.pool.NoteBad(x) },
		Mended: func(x *backend.Op) {
			s.pool.Bad.Forget(layout.KeyOf(s.pool.ID(), x.Phys), 1<<(x.Phys%layout.PageSectors))
		},
		Ended: func(x *backend.Op) { s.pool.UnpinRead(x) },
		Idle:  func() { s.pace(layout.PieceSectors * block.SectorSize) },
	})
	for _, v := range c.Set.Volumes() {
		s.Total += v.Map.Sums().Data * block.SectorSize
	}
	c.Set.Exec.At(s.due+scrubStart, s.step)
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
	if s.meta != nil && c.Set.Payload && !c.Stopped() {
		s.meta.Step(func(read int64, more bool) {
			if !more {
				s.meta = nil
			}
			s.pace(read)
		})
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
	data, waits := s.next(v)
	if waits {
		return
	}
	s.at = data.End()
	s.pool = v.Pool()
	s.back.Begin()
	s.read(data.Phys, data.Count)
	s.back.End()
	c.Stepped()
}

// next returns the next run of data of a volume, at most a piece, or where the scrub goes on if there is none nearby. A walk
// joins what lies in a row: over all of the volume it would look for the end of a run of which a piece is read. Where it
// waits for a leaf of the map, step is called again.
func (s *Scrub) next(v *pool.Volume) (data extent.Run, waits bool) {
	data.Start = s.at
	if s.fetch(v, block.Range{Start: s.at, Count: 1}, extent.States) {
		return data, true
	}
	found := false
	v.Map.WalkStates(block.Range{Start: s.at, Count: v.Spec.Sectors - s.at}, scrubSlots, func(x extent.Run) bool {
		if found = x.State == block.Data; found {
			data.Start = x.Start
		} else {
			data.Start = x.End()
		}
		return !found
	})
	if found {
		// It waits for one leaf, which is all that it needs when it comes back: others may leave meanwhile.
		s.at = data.Start
		piece := block.Range{Start: data.Start, Count: min(layout.PieceSectors, v.Spec.Sectors-data.Start)}
		if here := v.Map.Present(piece); here > 0 {
			piece.Count = here
		} else if s.fetch(v, piece, extent.Look) {
			return data, true
		}
		v.Map.Walk(piece, func(x extent.Run) bool {
			data = x
			return false
		})
	}
	return data, false
}

// fetch has step called again when a leaf has come that a range of a volume needs, and reports whether there is one. The
// data of one that cannot be read cannot be found: the scrub goes on behind it, and it counts as bad.
func (s *Scrub) fetch(v *pool.Volume, g block.Range, use extent.Use) (waits bool) {
	return v.Map.Fetch(g, use, func(err error) {
		if err != nil && !errors.Is(err, demand.ErrLate) { // else nobody says that it is damaged
			first := g.Start + v.Map.Present(g)
			s.at = first - first%node.LeafSectors + node.LeafSectors
			s.Unread++
		}
		s.step()
	})
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

// pace sets the time of the next step behind one that has read so many bytes.
func (s *Scrub) pace(read int64) {
	now := s.Set.Exec.Now()
	s.due = max(s.due, now)
	if s.rate > 0 {
		s.due += read * 1_000_000_000 / s.rate
	}
	s.Set.Exec.At(s.due, s.step)
}
