package sim

import (
	"fmt"
	"syscall"
	"testing"
)

// cpuSeconds is the time that this process has had of a core.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for oneself
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkHostIO is the speed of the whole path on one core: a host's generator, the
// link, the SCSI layer, the firmware, the disks, and back.
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
			b.ReportAllocs()
			b.ResetTimer()
			began := cpuSeconds()
			for first := j.ios; j.ios-first < uint64(b.N); {
				r.exec.Step()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "IO/s")
			if cpu := cpuSeconds() - began; cpu > 0 { // what others use of the machine does not count
				b.ReportMetric(float64(b.N)/cpu, "IO/cpu-s")
			}
		})
	}
}
