package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/stats"
)

const mb = 1 << 20 // the documents' MB

// Value returns a figure of a run by its name, over the interval that ends at and is
// over long; 0 and 0 mean the whole run. Times are the scenario's. An interval that is not within the run is an error, and so is
// one that is not whole steps of the figure's series, and one of a figure of the whole run. The names:
//
//	job.NAME.seconds|gb_s|mb_s|iops|latency_ms|p50_ms|p99_ms|max_ms|bytes|failed|aborted|wire_mb_s
//	                                         rates are of what ended while the job lasted, and the rest of all that it sent
//	job.NAME.first.latency_ms|seconds|iops   while the disk has blocks that were never written
//	job.NAME.after.latency_ms|iops           once it has none
//	job.NAME.lap1.latency_ms|p99_ms|seconds|wire_mb_s  of the first lap of several
//	host.NAME.CLONE_RD|CLONE_WR|CLONE_F|ATS|ATSF|ZERO|ZERO_F|DELETE|DELETE_F|wire_mb_s
//	volume.NAME.held_mb|write_mb_s|read_mb_s|response_ms|write_ms|read_ms|iops|lower_mb_s|lower_ORIGIN_mb_s
//	group.NAME.FIGURE-OF-A-VOLUME.median|p95|max|min|mean
//	pool.NAME.fullness|fullness_mean|fullness_max (percent)|used_mb|limit_mb|write_ms|write_peak_ms|wait_ms|tower_seconds|iops
//	metric.FAMILY[,label=value...]           a counter's increase, summed over the rest of its labels
//	job.NAME.tpm|response_s|response_ms          transactions a minute, and their time, in the interval; cpu_percent of the whole run
//	job.NAME.type.TYPE.count|response_s          of transactions of a type, in the whole run
//	cache.NAME.COMPONENT_ms|iops|mb_s        effective, local, network, datastore, each with _read or _write or both; destage
//	cache.NAME.hit_percent|occupancy|occupancy_max|throttled|injected_ms|passed|host_write_percent|array_write_percent|memory_percent|dirty_mb|evictions|...
//	array.NAME.problems                      what the array's own check finds
func (r *Run) Value(name string, at, over Duration) (float64, error) {
	if err := r.checkInterval(name, at, over); err != nil {
		return 0, err
	}
	to := int64(at)
	if to == 0 {
		to = r.end
		if r.end < 0 {
			to = r.now()
		}
	}
	from := to - int64(over)
	if over == 0 {
		from = 0
	}
	kind, rest, _ := strings.Cut(name, ".")
	if kind == "metric" {
		return r.metric(rest)
	}
	v, ok := math.NaN(), false
	take := func(x float64, good bool) { // of what this name may mean, the one of which there is such a figure
		if good {
			v, ok = x, true
		}
	}
	switch kind {
	case "job":
		for _, j := range r.jobs {
			if what, is := ofObject(rest, j.spec.Name); is {
				take(j.value(what))
				take(j.transactionValue(what, from, to))
			}
		}
	case "host":
		for _, h := range r.hosts {
			if what, is := ofObject(rest, h.name); is {
				take(h.value(what))
			}
		}
	case "volume":
		for i, w := range r.volumes {
			if what, is := ofObject(rest, w.name); is {
				take(r.volumeValue(i, what, from, to))
			}
		}
	case "group":
		last := ""
		for _, w := range r.volumes {
			if what, is := ofObject(rest, w.group); is && w.group != last {
				take(r.groupValue(w.group, what, from, to))
				last = w.group
			}
		}
	case "cache":
		for _, k := range r.caches {
			if what, is := ofObject(rest, k.name); is {
				take(k.value(r, what, from, to))
			}
		}
	case "pool":
		for i := range r.series.pools {
			if what, is := ofObject(rest, r.series.pools[i].name); is {
				take(r.poolValue(&r.series.pools[i], what, from, to))
			}
		}
	case "array":
		for _, y := range r.arrays {
			if what, is := ofObject(rest, y.name); is && what == "problems" {
				take(float64(len(y.report().Problems)), true)
			}
		}
	}
	if !ok {
		return 0, fmt.Errorf("there is no figure %q: the name is unknown, or there was nothing to take the mean of", name)
	}
	return v, nil
}

// checkInterval returns an error for an interval over which there is no such figure.
func (r *Run) checkInterval(name string, at, over Duration) error {
	if at == 0 && over == 0 {
		return nil
	}
	switch kind, _, _ := strings.Cut(name, "."); {
	case kind == "metric" || kind == "host" || kind == "array",
		kind == "job" && !strings.HasSuffix(name, ".tpm") && !strings.HasSuffix(name, ".response_s") && !strings.HasSuffix(name, ".response_ms"):
		return fmt.Errorf("%s is a figure of the whole run: leave out at and over", name)
	case at == 0:
		at = Duration(r.ending())
	}
	switch {
	case over > at:
		return fmt.Errorf("%s: %s before %s began before the run", name, over, at)
	case int64(at) > r.ending():
		return fmt.Errorf("%s: the run ended at %s, before %s", name, Duration(r.ending()), at)
	}
	return r.s.checkSteps(name, at, over, Duration(r.ending()))
}

// checkSteps returns an error for an interval that is not whole steps of its figure's series, but for where the run ends: of an
// uneven one there would be the I/Os of other whole steps, or of none.
func (s *Scenario) checkSteps(name string, at, over, end Duration) error {
	var step Duration
	switch kind, _, _ := strings.Cut(name, "."); kind {
	case "volume", "group", "cache":
		step = s.Series
	case "pool":
		step = second
	default:
		return nil
	}
	from := at - over
	if over == 0 {
		from = 0
	}
	if from%step == 0 && (at%step == 0 || at == end) {
		return nil
	}
	mend := "give whole steps"
	if step > second { // the shortest that a series can have
		mend += ", or the scenario a shorter series"
	}
	return fmt.Errorf("%s: from %s to %s is not whole steps of %s; %s", name, from, at, step, mend)
}

// ofObject cuts the name of an object off that of a figure. Names may have dots.
func ofObject(rest, name string) (what string, ok bool) {
	if what, ok = strings.CutPrefix(rest, name); !ok || name == "" {
		return "", false
	}
	return strings.CutPrefix(what, ".")
}

func perSecond(n uint64, seconds float64) float64 {
	if seconds == 0 {
		return 0
	}
	return float64(n) / seconds
}

func meanMS(wait int64, n uint64) float64 {
	if n == 0 {
		return 0
	}
	return float64(wait) / float64(n) / 1e6
}

// meanOf is the mean of so many waits; that of none is not known.
func meanOf(wait int64, n uint64) (float64, bool) { return meanMS(wait, n), n > 0 }

func (j *job) value(what string) (float64, bool) {
	first, after := &j.phase[0], &j.phase[1]
	switch what {
	case "bytes", "failed", "aborted":
	default:
		if !j.begun() {
			return 0, false
		}
	}
	switch what {
	case "seconds":
		return j.seconds(), true
	case "gb_s":
		return perSecond(j.did().bytes, j.seconds()) / 1e9, true
	case "mb_s":
		return perSecond(j.did().bytes, j.seconds()) / mb, true
	case "iops":
		return perSecond(j.did().ios, j.seconds()), true
	case "latency_ms":
		return meanOf(first.wait+after.wait, first.ios+after.ios)
	case "p50_ms":
		return j.percentile(50)
	case "p99_ms":
		return j.percentile(99)
	case "max_ms":
		return j.percentile(100)
	case "bytes":
		return float64(j.bytes), true
	case "failed":
		return float64(j.failed), true
	case "aborted":
		return float64(j.aborted), true
	case "wire_mb_s":
		return perSecond(j.did().wire, j.seconds()) / mb, true
	case "first.latency_ms":
		return meanOf(first.wait, first.ios)
	case "first.seconds":
		return float64(first.end-j.began) / 1e9, first.ios > 0
	case "first.iops":
		return perSecond(first.ios, float64(first.end-j.began)/1e9), first.ios > 0
	case "after.latency_ms":
		return meanOf(after.wait, after.ios)
	case "after.iops":
		return perSecond(after.ios, float64(after.end-max(first.end, j.began))/1e9), after.ios > 0
	}
	if lap, ok := strings.CutPrefix(what, "lap1."); ok {
		return j.lap1.value(lap, j.began)
	}
	return 0, false
}

// percentile is of the response times of the job's I/Os, in milliseconds; that of none is not known.
func (j *job) percentile(p float64) (float64, bool) {
	if p == 100 {
		return float64(j.latency.Max()) / 1e6, j.latency.TotalCount() > 0
	}
	return float64(stats.Percentile(j.latency, p)) / 1e6, j.latency.TotalCount() > 0
}

// Percentile returns a percentile, from 0 to 100, of the response times of a job's I/Os, in
// milliseconds.
func (r *Run) Percentile(job string, p float64) (float64, error) {
	for _, j := range r.jobs {
		if v, ok := j.percentile(p); j.spec.Name == job && ok && p >= 0 && p <= 100 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("there is no percentile %g of job %q: no such job, or it had no I/O", p, job)
}

func (h *host) value(what string) (float64, bool) {
	if what == "wire_mb_s" {
		return perSecond(h.wire[0]+h.wire[1], float64(h.r.ending())/1e9) / mb, true
	}
	sum := uint64(0)
	found := false
	for _, d := range h.devices {
		for _, c := range d.top.columns() {
			if c.name == what {
				sum += c.n
				found = true
			}
		}
	}
	return float64(sum), found
}

type column struct {
	name string
	n    uint64
}

// columns are the counters by esxtop's names; those in bytes are the sums behind MBC_RD/s
// and its like.
func (e *esxtop) columns() []column {
	return []column{{"CLONE_RD", e.CloneRd}, {"CLONE_WR", e.CloneWr}, {"CLONE_F", e.CloneF}, {"MBC_RD", e.MBCRd / mb}, {"MBC_WR", e.MBCWr / mb},
		{"ATS", e.ATS}, {"ATSF", e.ATSF}, {"ZERO", e.Zero}, {"ZERO_F", e.ZeroF}, {"MBZERO", e.MBZero / mb},
		{"DELETE", e.Delete}, {"DELETE_F", e.DeleteF}, {"MBDEL", e.MBDel / mb}}
}

func (r *Run) volumeValue(i int, what string, from, to int64) (float64, bool) {
	x, sec := r.series.window(i, from, to)
	h := &x.host
	switch what {
	case "held_mb":
		return float64(x.held) / mb, true
	case "write_mb_s":
		return perSecond(h.bytes[1], sec) / mb, true
	case "read_mb_s":
		return perSecond(h.bytes[0], sec) / mb, true
	case "response_ms":
		return meanOf(h.wait[0]+h.wait[1], h.ops[0]+h.ops[1])
	case "write_ms":
		return meanOf(h.wait[1], h.ops[1])
	case "read_ms":
		return meanOf(h.wait[0], h.ops[0])
	case "iops":
		return perSecond(h.ops[0]+h.ops[1], sec), true
	case "lower_mb_s":
		sum := uint64(0)
		for _, n := range x.lower {
			sum += n
		}
		return perSecond(sum, sec) / mb, true
	}
	if o, ok := strings.CutPrefix(what, "lower_"); ok {
		if o, ok = strings.CutSuffix(o, "_mb_s"); ok {
			if g, ok := originByName[o]; ok {
				return perSecond(x.lower[g], sec) / mb, true
			}
		}
	}
	return 0, false
}

// groupValue is a statistic over the volumes of a group. Volumes without an I/O have no
// response time and are left out of statistics of it.
func (r *Run) groupValue(group, what string, from, to int64) (float64, bool) {
	at := strings.LastIndexByte(what, '.')
	if at < 0 {
		return 0, false
	}
	figure, stat := what[:at], what[at+1:]
	var all []float64
	sum := 0.0
	for i, v := range r.volumes {
		if v.group != group {
			continue
		}
		x, ok := r.volumeValue(i, figure, from, to)
		if !ok && strings.HasSuffix(figure, "_ms") {
			continue
		}
		if !ok {
			return 0, false
		}
		all = append(all, x)
		sum += x
	}
	if len(all) == 0 {
		return 0, false
	}
	switch stat {
	case "median":
		return stats.Quantile(all, 0.5), true
	case "p95":
		return stats.Quantile(all, 0.95), true
	case "max":
		return slices.Max(all), true
	case "min":
		return slices.Min(all), true
	case "mean":
		return sum / float64(len(all)), true
	}
	return 0, false
}

// towerMS is the mean response of a second's writes from which on the second belongs to a
// response-time tower.
const towerMS = 300

func (r *Run) poolValue(p *poolSeries, what string, from, to int64) (float64, bool) {
	var used, limit, mean, top, n, writes, ios, towers uint64
	var wait, waited int64
	peak := 0.0
	for k, x := range p.samples {
		end := int64(k+1) * second
		if end <= from || end > to || x.limit == 0 { // it was not there yet, or not any more
			continue
		}
		n++
		used, limit = x.used, x.limit
		mean += x.mean * 1e6 / limit
		top = max(top, x.top*1e6/limit)
		writes, ios, wait = writes+x.writes, ios+x.ios, wait+x.wait
		waited += x.waited
		if w := meanMS(x.wait, x.writes); w > 0 {
			peak = max(peak, w)
			if w > towerMS {
				towers++
			}
		}
	}
	switch what {
	case "fullness":
		return float64(used) / float64(max(1, limit)) * 100, n > 0
	case "fullness_mean":
		return float64(mean) / float64(max(1, n)) / 1e4, n > 0
	case "fullness_max":
		return float64(top) / 1e4, n > 0
	case "limit_mb":
		return float64(limit) / mb, n > 0
	case "used_mb":
		return float64(used) / mb, n > 0
	case "write_ms":
		return meanOf(wait, writes)
	case "write_peak_ms":
		return peak, writes > 0
	case "wait_ms": // for room in the partition, in the mean of all writes of hosts
		return meanOf(waited, writes)
	case "tower_seconds":
		return float64(towers), n > 0
	case "iops":
		return perSecond(ios, float64(n)), n > 0
	}
	return 0, false
}

// figure prints a number with what matters of it.
func figure(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

var originByName = func() map[string]block.Origin {
	m := map[string]block.Origin{}
	for o := range block.NumOrigins {
		m[o.String()] = o
	}
	return m
}()

// undercover is what the array wrote below that no host sent, since the start.
func (r *Run) undercover(i int) uint64 {
	sum := uint64(0)
	x, _ := r.series.window(i, 0, math.MaxInt64)
	for o := range block.NumOrigins {
		if o.Undercover() {
			sum += x.lower[o]
		}
	}
	return sum
}
