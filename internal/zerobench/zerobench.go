// Package zerobench measures what zeroing costs as a hypervisor does it: an eager disk zeroed from end
// to end, or a lazy or thin one whose new blocks of 1 MiB are zeroed while a guest waits. It does so
// in virtual time, as a scenario, or by the wall clock against a real LUN.
package zerobench

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/size"
)

// Config says what is measured.
type Config struct {
	// Disk is eager, lazy or thin.
	Disk string
	// VAAI zeroes by WRITE SAME, else by writes.
	VAAI bool
	// Size of the disk in bytes, whole MiB.
	Size uint64
	// Profile is the array's in virtual time, Target the LUN that is overwritten otherwise.
	Profile, Target string
	// Outstanding commands, 1 to 256.
	Outstanding int
}

// Validate says what of a configuration cannot be, by the flags of `arraysim bench zero`.
func (c *Config) Validate() error {
	switch {
	case c.Disk != "eager" && c.Disk != "lazy" && c.Disk != "thin":
		return fmt.Errorf("--disk is %q; it is eager, lazy or thin", c.Disk)
	case c.Size == 0 || c.Size%blockBytes != 0:
		return fmt.Errorf("--size is %s; a disk is whole MiB", size.Text(c.Size))
	case c.Outstanding < 1 || c.Outstanding > 256:
		return errors.New("--outstanding is 1 to 256")
	}
	return nil
}

func (c *Config) vaai() string {
	if c.VAAI {
		return "on"
	}
	return "off"
}

// Result is what the benchmark measured. MB and GB are 10^6 and 10^9 bytes.
type Result struct {
	Disk      string  `json:"disk"`
	VAAI      string  `json:"vaai"`
	Bytes     uint64  `json:"bytes"`
	Where     string  `json:"where"`
	Seconds   float64 `json:"seconds"`
	GBps      float64 `json:"gb_per_second"`
	WireMBps  float64 `json:"wire_mb_per_second"`
	MeanMS    float64 `json:"latency_mean_ms"`
	P99MS     float64 `json:"latency_p99_ms"`
	AfterMS   float64 `json:"latency_once_allocated_ms,omitempty"`
	FallBacks uint64  `json:"fallbacks"`
	Series    []Point `json:"series"`
}

// Point is a step of the series: the mean latency of its commands, or the last known one where it has none.
type Point struct {
	Seconds   float64 `json:"seconds"`
	LatencyMS float64 `json:"latency_ms"`
	MBps      float64 `json:"mb_per_second"`
}

// add appends a point of the series.
func (r *Result) add(at, length float64, ios, bytes uint64, wait int64) {
	p := Point{Seconds: at, MBps: float64(bytes) / length / 1e6}
	if ios > 0 {
		p.LatencyMS = float64(wait) / float64(ios) / 1e6
	} else if n := len(r.Series); n > 0 {
		p.LatencyMS = r.Series[n-1].LatencyMS
	}
	r.Series = append(r.Series, p)
}

// laps is how often the disk is written in virtual time: a lazy or thin one again when it is allocated.
func (c *Config) laps() uint64 {
	if c.Disk == "eager" {
		return 1
	}
	return 2
}

// Scenario is the benchmark in virtual time.
func (c *Config) Scenario() (*sim.Scenario, error) {
	job := fmt.Sprintf("{name: zero, kind: zero, volume: lun, size: %d, outstanding: %d}", c.Size, c.Outstanding)
	if c.Disk != "eager" {
		job = fmt.Sprintf("{name: zero, volume: lun, disk: %s, size: %d, pattern: sequential, io: 32KiB, write: 1, outstanding: %d, laps: %d}", c.Disk, c.Size, c.Outstanding, c.laps())
	}
	return sim.Parse(fmt.Appendf(nil, `
name: %s
profile: %s
sample: 10s
arrays: [{name: array, pools: [{name: pool, mdisks: [{size: 2TiB, count: %d}]}], volumes: [{name: lun, pool: pool, size: %d}]}]
hosts: [{name: esx, vaai: {HardwareAcceleratedInit: %v}}]
jobs: [%s]
`, c.Disk, c.Profile, 1+c.Size>>40, c.Size+blockBytes, c.VAAI, job))
}

// OfRun is the result of a run of Scenario, nil if it did not begin. On a lazy or thin disk it is that of the first lap, as
// Live has only that, but for AfterMS. A run that did not end has no result, and neither has one that takes no time.
func (c *Config) OfRun(r *sim.Run) (*Result, error) {
	if r == nil || !r.Ended() {
		return nil, c.cutOff(r)
	}
	var bad error
	v := func(name string) float64 {
		x, err := r.Value(name, 0, 0)
		if bad == nil {
			bad = err
		}
		return x
	}
	const mib = float64(1<<20) / 1e6 // the figure is in MiB
	res := &Result{Disk: c.Disk, VAAI: c.vaai(), Bytes: c.Size, Where: "profile " + c.Profile + ", virtual time",
		FallBacks: uint64(v("host.esx.ZERO_F"))}
	job := "job.zero."
	if c.laps() > 1 {
		job += "lap1."
		res.AfterMS = v("job.zero.after.latency_ms")
	}
	res.Seconds, res.MeanMS, res.P99MS, res.WireMBps = v(job+"seconds"), v(job+"latency_ms"), v(job+"p99_ms"), v(job+"wire_mb_s")*mib
	switch {
	case bad != nil:
		return nil, bad
	case res.Seconds == 0:
		return nil, fmt.Errorf("nothing takes time in the profile %s, so that there is no throughput; give another --profile", c.Profile)
	}
	res.GBps = float64(c.Size) / res.Seconds / 1e9
	steps, _, _ := r.Steps("zero")
	for i, x := range steps {
		res.add(float64(i+1)/10, 0.1, x.IOs, x.Bytes, x.Wait)
	}
	return res, nil
}

// cutOff says how far a run was when it was cut off.
func (c *Config) cutOff(r *sim.Run) error {
	done, laps := 0.0, ""
	if r != nil {
		done, _ = r.Value("job.zero.bytes", 0, 0) // each job has this
	}
	if c.laps() > 1 {
		laps = " in two laps"
	}
	return fmt.Errorf("ended after %s of %s%s", size.Text(uint64(done)), size.Text(c.Size*c.laps()), laps)
}
