package sim

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// paceSlice is the number of I/Os between two laps of a Pace: 5 to 20 ms.
const paceSlice = 5000

// BenchmarkHostIO is the speed of the whole path on one core: a host's generator, the
// link, the SCSI layer, the firmware, the disks, and back. What others use of the machine is
// in neither rate; that it is slower while they do is not in IO/lap.
func BenchmarkHostIO(b *testing.B) {
	for _, row := range []struct{ name, size, profile, job string }{
		{"4KiB-random-write", "1GiB", "all-flash", "io: 4KiB, write: 1, outstanding: 32"},
		{"4KiB-random-write-16GiB", "16GiB", "all-flash", "io: 4KiB, write: 1, outstanding: 32"},
		{"4KiB-random-write-no-times", "1GiB", "none", "io: 4KiB, write: 1, outstanding: 32, think: 1us"},
		{"4KiB-random-read", "1GiB", "all-flash", "io: 4KiB, write: 0, outstanding: 32"},
		{"64KiB-sequential-write", "1GiB", "all-flash", "io: 64KiB, write: 1, outstanding: 32, pattern: sequential"},
	} {
		b.Run(row.name, func(b *testing.B) {
			s, err := Parse(fmt.Appendf(nil, `
name: bench
profile: %[1]s
until: 1000h
arrays:
  - name: array
    cache: 64MiB
    pools: [{name: p, mdisks: [{size: 64GiB, count: 4}]}]
    volumes: [{name: v, pool: p, size: %[2]s, filled: %[2]s}]
hosts: [{name: h}]
jobs: [{name: load, volume: v, %[3]s}]
`, row.profile, row.size, row.job))
			if err != nil {
				b.Fatal(err)
			}
			r, err := New(s)
			if err != nil {
				b.Fatal(err)
			}
			r.Advance(100e6) // the cache fills
			j := r.jobs[0]
			pace := testkit.NewPace()
			b.ReportAllocs()
			b.ResetTimer()
			for first := j.ios; j.ios-first < uint64(b.N); {
				pace.Begin()
				for end := min(j.ios-first+paceSlice, uint64(b.N)); j.ios-first < end; {
					r.exec.Step()
				}
				pace.End()
				b.StopTimer()
				pace.Lap()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N)/pace.Seconds(), "IO/cpu-s")
			b.ReportMetric(float64(b.N)/pace.Laps(), "IO/lap")
			b.ReportMetric(float64(pace.LapTime().Microseconds()), "lap-us")
		})
	}
}
