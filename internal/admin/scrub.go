package admin

import "github.com/arraysim/arraysim/internal/array"

// All data at rest is read again and again and compared with its checksums, at a rate
// that nobody notices.
const (
	scrubRate  = 8 << 20         // bytes a second
	scrubFirst = 600_000_000_000 // ns after the start
	scrubPause = 3600_000_000_000
)

// startScrub starts the background scrub; it ends with the array. The executor is held.
func (d *daemon) startScrub() {
	var start func()
	start = func() {
		d.array.StartScrub(scrubRate, func(s *array.Scrub) {
			if s.Bad > 0 {
				d.log.Error("the scrub found damaged data; arraysim check names it", "sectors", s.Bad)
			}
			d.exec.At(d.exec.Now()+scrubPause, start)
		})
	}
	d.exec.At(d.exec.Now()+scrubFirst, start)
}
