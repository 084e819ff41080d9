package report

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/sim"
)

// fitted is the part of an array that a tower is about, as a scenario for the firmware: one
// partition, its hosts as a handful of volumes, a copy into it from elsewhere, and
// disks that take what was seen to leave the cache.
//
// Bytes are scaled down by a factor and times are not: cap, rates and what the copy has
// outstanding shrink alike, so all waits stay as they are, and a run takes a second.
type fitted struct {
	scale       float64
	whole, cap  float64 // bytes of the write cache, and of the partition
	level       float64 // usual fullness
	usual       float64 // bytes a second that hosts write usually, which fullness goes with
	hosts       float64 // and in the tower
	drain       float64
	copyRate    float64 // how fast the copy goes if nothing holds it up
	copyBytes   float64
	outstanding float64 // bytes that the copy keeps waiting
	seconds     float64 // after the copy began
	// crowded is by what factor rates and waits were higher than their means over the tower's
	// samples, if the copy ran for half a sample less than these last.
	crowded float64
	// areas are those of the scenarios that have run, by their text; models of one tower share them. Several questions
	// about a tower are one where twice the partition is all of the cache, or what the copy keeps waiting is bounded.
	areas map[string]float64
}

// What a fitted scenario is made of.
const (
	fitDrain   = 24e6 // bytes a second that the disks of the scenario take, after scaling
	fitVolumes = 6
	fitIO      = 64 << 10
	fitLead    = 60.0  // seconds before the copy, beyond those in which the partition fills
	fitLongest = 900.0 // of a tower
)

// scenario writes the model as a scenario file; part is the partition's part of the
// write cache, offload says whether the copy runs.
func (m *fitted) scenario(part float64, offload bool) (text string, copyAt float64) {
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	k := m.scale
	percent := int(math.Round(100 * min(max(part, 0.01), 1)))
	level := min(max(m.level, 0.05), 0.95)
	// The ramp reaches what hosts usually write at the usual fullness.
	copyAt = math.Ceil(fitLead + 1.5*level*m.whole*part/max(m.usual, 1))
	put("name: fitted\nuntil: %.0fs\nseries: 1s\nprofile: none\narrays:\n  - name: a\n    cache: %dKiB\n    adjust:", copyAt+m.seconds, int(m.whole/k/1024))
	put("      copy.mode: data\n      copy.outstanding: 256KiB")
	put("      policy.caps: [%d, %d]\n      policy.in_flight: 2", percent, percent)
	put("      policy.ramp.points: [{at: %d, rate: 0}, {at: %d, rate: %d}, {at: 1000, rate: %d}]", int(700*level), int(1000*level), int(m.usual/k), int(max(m.drain, 1.01*m.usual)/k))
	put("      mdisks: {default: {parallel: 1, bandwidth: %d, low: 800, high: 1200}, source: {parallel: 4, bandwidth: %d, low: 1000, high: 1000}}", int(m.drain/k), int(m.copyRate/k/4))
	put("    pools:\n      - {name: pool, mdisks: [{size: 256GiB}]}\n      - {name: source, mdisks: [{kind: source, size: 128GiB}]}")
	put("    volumes:\n      - {name: v, count: %d, group: hosts, pool: pool, size: 8GiB}\n      - {name: from, pool: source, size: 64GiB, filled: 64GiB}\n      - {name: to, pool: pool, size: 64GiB}", fitVolumes)
	// What the copy has outstanding is commands of one piece each, or of more if they are many.
	commands, piece := math.Round(m.outstanding/k/(256<<10)), 256
	for commands > 128 {
		commands, piece = math.Round(commands/2), piece*2
	}
	put("hosts: [{name: h, vaai: {MaxHWTransferSize: %dKiB}}]\njobs:", piece)
	put("  - {name: hosts, volume: hosts, rate: %.2f, total: true, lognormal: 0.7, io: 64KiB, write: 1, span: 8GiB, pattern: sequential, changes: [{at: %.0fs, rate: %.2f}]}",
		m.usual/k/fitIO, copyAt, m.hosts/k/fitIO)
	if offload {
		bytes := min(m.copyBytes/k, 60<<30)
		put("  - {name: copy, kind: clone, at: %.0fs, volume: from, to: to, size: %dMiB, outstanding: %d}", copyAt, max(int(bytes/(1<<20)), 1), max(int(commands), 1))
	}
	return b.String(), copyAt
}

// run lets the firmware carry the scenario out, and returns what hosts' writes waited for
// room from the copy's beginning on: the sum over time of the mean wait, in seconds times
// seconds. A scenario runs once: the firmware does the same each time.
func (m *fitted) run(part float64, offload bool) (area float64, err error) {
	text, copyAt := m.scenario(part, offload)
	if area, ok := m.areas[text]; ok {
		return area, nil
	}
	s, err := sim.Parse([]byte(text))
	if err != nil {
		return 0, err
	}
	r, err := sim.New(s)
	if err != nil {
		return 0, err
	}
	var snap metrics.Snapshot
	var lock sync.Mutex // nobody else has the run
	waited := func() float64 {
		sum := 0.0
		snap.Take(0, &lock, r)
		snap.Each(func(f *metrics.Family, l []string, _ float64, h *metrics.Histogram) {
			if f == metrics.CacheWait && l[0] == "pool" && l[1] == "host" {
				sum = float64(h.Sum) / 1e9
			}
		})
		return sum
	}
	r.Advance(int64(copyAt * 1e9))
	before := waited()
	r.Advance(int64((copyAt + m.seconds) * 1e9))
	area = (waited() - before) / (m.hosts / m.scale / fitIO)
	r.Finish()
	if err := r.Problem(); err != nil {
		return area, err
	}
	m.areas[text] = area
	return area, nil
}
