package admin

import "github.com/arraysim/arraysim/internal/array"

// The metadata and all data at rest are read again and again and compared with their checksums, at a
// rate that nobody notices.
const (
	scrubRate  = 8 << 20         // bytes a second
	scrubFirst = 600_000_000_000 // ns after the start
	scrubPause = 3600_000_000_000
)

// startScrub starts the background scrub; it ends with the array. The executor is held.
func (g *ioGroup) startScrub() {
	var start func()
	start = func() {
		g.array.StartScrub(scrubRate, func(s *array.Scrub) {
			if s.Bad > 0 {
				g.log.Error("the scrub found damaged data; arraysim check names it", "sectors", s.Bad)
			}
			for i, n := range s.Damaged {
				if n > 0 {
					g.log.Error("the scrub found damaged metadata; the next start rebuilds the copy from the other one, if that is whole", "copy", i+1, "entries", n)
				}
			}
			g.exec.At(g.exec.Now()+scrubPause, start)
		})
	}
	g.exec.At(g.exec.Now()+scrubFirst, start)
}
